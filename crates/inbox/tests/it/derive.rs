//! What rooms wrote down becomes entries: what the database refuses of it holds up nothing else, and is not lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bongsu_inbox::marks::WriteBehind;
use bongsu_inbox::{
    Changed, EntryId, EventId, FromRooms, Inbox, Live, Notice, Options, RoomMembers, Templates, Told,
};
use bongsu_kernel::json::Object;
use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::{Clock, EventType, Id, Millis};
use bongsu_live::SubjectName;
use bongsu_live::log::embedded::{self, EmbeddedLog};
use bongsu_live::log::{Append, Delivery, FollowUps, Log, Passing, Recipients, Sink};
use bongsu_sql::{Boxed, DataFolder, Database, Error, Migrations, Records, Store};
use bongsu_testkit::wait;

const SOON: Duration = Duration::from_secs(20);

struct Nobody;

impl Sink for Nobody {
    fn deliver(&self, _: Delivery<'_>) {}
    fn pass(&self, _: &SubjectName, _: &Passing) {}
    fn doubt(&self, _: &SubjectName) {}
}

impl Live for Nobody {
    fn saved(&self, _: &Notice, _: Millis, _: &[Told]) {}
    fn changed(&self, _: &Id, _: &Changed) {}
}

impl RoomMembers for Nobody {
    fn registered<'a>(&'a self, _: &'a [Id]) -> Boxed<'a, Result<HashSet<Id>, Error>> {
        Box::pin(async { Ok(HashSet::new()) })
    }

    fn members<'a>(&'a self, _: &'a Id) -> Boxed<'a, Result<Vec<Id>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn is_member<'a>(&'a self, _: &'a Id, _: &'a Id) -> Boxed<'a, Result<bool, Error>> {
        Box::pin(async { Ok(false) })
    }
}

fn person() -> Id {
    Id::new("7").unwrap()
}

fn event(room: &str) -> Append {
    Append {
        subject: SubjectName::new("room", &Id::new(room).unwrap()),
        event_type: EventType::new("a.b").unwrap(),
        data: Object::stored("{}").unwrap(),
        publisher: None,
        once: None,
        recipients: Recipients::Named(vec![person()]),
        audience: 0,
        keep: 100,
    }
}

/// Refuses notices of the room `bad`, as a database might for a reason of its own.
const REFUSE: &str = "CREATE TRIGGER refuse BEFORE INSERT ON bongsu_notices WHEN NEW.ref_id = 'bad'
    BEGIN SELECT RAISE(ABORT, 'not this one'); END";

#[tokio::test]
async fn what_the_database_refuses_holds_up_nothing_behind_it_and_stays() {
    let (folder, supervisor) = (tempfile::tempdir().unwrap(), Supervisor::new());
    let migrations = Migrations::new([embedded::MIGRATIONS, bongsu_inbox::store::MIGRATIONS]);
    let file = Database::open(DataFolder::take(folder.path()).unwrap(), &migrations).unwrap();
    let (store, _writer) = Store::start(file, &supervisor).unwrap();
    store.write(|connection| Ok(connection.execute_batch(REFUSE)?)).await.unwrap();
    let clock = Clock::manual(1_800_000_000_000);
    let options = embedded::Options { most_keys: 1_000 };
    let log = EmbeddedLog::start(store.clone(), options, clock.clone(), Arc::new(Nobody), &supervisor);
    let follow_ups: Arc<dyn FollowUps> = Arc::new(log.follow_ups());
    let options = Options {
        templates: Templates::load(None).unwrap(),
        keeps: Duration::from_secs(86_400),
        write_behind: WriteBehind { interval: Duration::from_secs(30), at_once: 200 },
    };
    let rooms = FromRooms { family: "room", follow_ups: follow_ups.clone(), members: Arc::new(Nobody) };
    let records = Records::embedded(store);
    let inbox = Inbox::start(records, options, clock, Arc::new(Nobody), None, Some(rooms), &supervisor);
    // More of them than are taken at once, and something good behind.
    let bad = 100;
    let mut events = vec![event("bad"); bad];
    events.push(event("good"));
    let appended = log.append(events).await.unwrap();
    let deriving = inbox.clone();
    supervisor.spawn("derive", OnEnd::Restart, move || deriving.clone().derive());
    let unread = async |count: u64| {
        wait::until(SOON, async || inbox.standing(&person()).await.unwrap().unread >= count).await;
    };
    unread(1).await;
    // And so is what comes later.
    for count in 2..5 {
        log.append(vec![event("good")]).await.unwrap();
        unread(count).await;
    }
    let refused = appended[0].as_ref().unwrap().id;
    let waiting = follow_ups.find(&event("bad").subject, refused).await.unwrap();
    assert_eq!(waiting.map(|record| record.stream_id), Some(refused.to_string()), "it stays");
    // Whoever asks for it by its event is told that it does not work, and not that it is not there.
    let entry = EntryId::of(EventId::new(&format!("bad:{refused}")).unwrap());
    assert!(inbox.mark_read(&person(), entry).await.is_err());
}
