//! What rooms wrote down becomes entries: for those named, or for the members of the room. A record that cannot be used
//! becomes a dead letter and holds up no other.

use std::sync::Arc;
use std::time::Duration;

use bongsu_inbox::marks::WriteBehind;
use bongsu_inbox::{
    Changed, EntryId, EventId, FromRooms, Inbox, Kind, Live, Notice, Options, Templates, Told,
};
use bongsu_kernel::json::Object;
use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::{Clock, EventType, Id, Millis};
use bongsu_live::SubjectName;
use bongsu_live::log::embedded::{self, EmbeddedLog};
use bongsu_live::log::{Append, Delivery, FollowUps, Log, Passing, Recipients, Sink};
use bongsu_part::{DeadLetter, DeadLetters};
use bongsu_rooms::store::sql::{self, SqlStore};
use bongsu_sql::{DataFolder, Database, Migrations, Records, Store, WriterState};
use bongsu_testkit::wait;
use tempfile::TempDir;

use crate::contract::NOW;

const SOON: Duration = Duration::from_secs(60);

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

fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

fn person() -> Id {
    id("7")
}

fn event(room: &str) -> Append {
    Append {
        subject: SubjectName::new("room", &id(room)),
        event_type: EventType::new("a.b").unwrap(),
        data: Object::stored("{}").unwrap(),
        publisher: None,
        once: None,
        recipients: Recipients::Named(vec![person()]),
        membership_version: None,
        audience: 0,
        keep: 100,
        trace: None,
    }
}

/// An inbox and a log in one file. The rooms `club` and `empty` are registered.
struct Scene {
    inbox: Inbox,
    log: EmbeddedLog,
    follow_ups: Arc<dyn FollowUps>,
    store: Store,
    supervisor: Supervisor,
    _writer: WriterState,
    _folder: TempDir,
}

impl Scene {
    async fn open() -> Self {
        let (folder, supervisor) = (tempfile::tempdir().unwrap(), Supervisor::new());
        let inbox = bongsu_inbox::store::MIGRATIONS;
        let parts = [embedded::MIGRATIONS, sql::MIGRATIONS, inbox, bongsu_sql::MIGRATIONS];
        let file = Database::open(DataFolder::take(folder.path()).unwrap(), &Migrations::new(parts)).unwrap();
        let (store, writer) = Store::start(file, &supervisor).unwrap();
        let clock = Clock::manual(NOW);
        let log = EmbeddedLog::start(store.clone(), 1_000, clock.clone(), Arc::new(Nobody), &supervisor);
        let follow_ups: Arc<dyn FollowUps> = Arc::new(log.follow_ups());
        let options = Options {
            templates: Templates::load(None).unwrap(),
            keeps: Duration::from_secs(86_400),
            write_behind: WriteBehind { interval: Duration::from_secs(30), at_once: 200 },
        };
        let members = SqlStore(Records::embedded(store.clone()));
        for room in ["club", "empty"] {
            members.register(&id(room)).await.unwrap();
        }
        for person in ["7", "8", "9"] {
            members.add(&id("club"), &id(person), 10).await.unwrap();
        }
        let rooms = FromRooms { follow_ups: follow_ups.clone(), members };
        let (records, live) = (Records::embedded(store.clone()), Arc::new(Nobody));
        let inbox = Inbox::start(records, options, clock, live, None, Some(rooms), &supervisor);
        Self { inbox, log, follow_ups, store, supervisor, _writer: writer, _folder: folder }
    }

    fn start_deriving(&self) {
        let inbox = self.inbox.clone();
        self.supervisor.spawn("derive", OnEnd::Restart, move || inbox.clone().derive());
    }

    async fn execute(&self, sql: &'static str) {
        self.store.write(move |connection| Ok(connection.execute_batch(sql)?)).await.unwrap();
    }

    async fn append(&self, event: Append) {
        self.log.append(vec![event]).await.unwrap().remove(0).unwrap();
    }

    async fn unread(&self, person: &str) -> u64 {
        self.inbox.standing(&id(person)).await.unwrap().unread
    }

    async fn wait_for_unread(&self, count: u64) {
        wait::until(SOON, async || self.unread("7").await >= count).await;
    }

    async fn wait_for_dead_letters(&self, count: u64) -> Vec<DeadLetter> {
        wait::until(SOON, async || self.inbox.depth().await.unwrap() == count).await;
        self.inbox.after(i64::MIN, 1_000).await.unwrap()
    }

    /// No record waits any more.
    async fn is_done(&self) -> bool {
        self.follow_ups.take(1, &[]).await.unwrap().is_empty()
    }
}

/// Refuses notices of the room `bad`, as a database might for a reason of its own.
const REFUSE: &str = "CREATE TRIGGER refuse BEFORE INSERT ON bongsu_notices WHEN NEW.ref_id = 'bad'
    BEGIN SELECT RAISE(ABORT, 'not this one'); END";

#[tokio::test]
async fn a_record_that_the_database_refuses_becomes_a_dead_letter_and_holds_up_no_other() {
    let scene = Scene::open().await;
    scene.execute(REFUSE).await;
    // More of them than are taken at once, and something good behind.
    let bad = 100;
    let mut events = vec![event("bad"); bad];
    events.push(event("good"));
    let appended = scene.log.append(events).await.unwrap();
    scene.start_deriving();
    // And so is what comes later.
    for count in 1..5 {
        scene.wait_for_unread(count).await;
        scene.append(event("good")).await;
    }
    scene.wait_for_unread(5).await;
    let letters = scene.wait_for_dead_letters(bad as u64).await;
    wait::until(SOON, async || scene.is_done().await).await;
    let first = appended[0].as_ref().unwrap().id.to_string();
    for letter in &letters {
        assert_eq!((letter.key.as_str(), letter.kind.as_str()), ("room:bad", "a.b"));
        assert!(letter.reason.contains("not this one"), "{letter:?}");
        assert_eq!((letter.attempts, letter.created_at), (3, NOW));
    }
    assert!(letters.iter().any(|letter| letter.payload.as_ref().unwrap().contains(&first)), "its own text");
    // Nothing has changed, so they stay; then somebody has mended it.
    let ids: Vec<i64> = letters.iter().map(|letter| letter.id).collect();
    assert_eq!(scene.inbox.redrive(ids[..1].to_vec()).await.unwrap(), 0);
    let again = scene.inbox.after(ids[0] - 1, 1).await.unwrap();
    assert_eq!((again[0].id, again[0].attempts), (ids[0], 4));
    scene.execute("DROP TRIGGER refuse").await;
    assert_eq!(scene.inbox.redrive(ids.clone()).await.unwrap(), bad as u64);
    assert_eq!(scene.inbox.redrive(ids.clone()).await.unwrap(), 0, "they are gone");
    assert_eq!((scene.unread("7").await, scene.inbox.depth().await.unwrap()), (105, 0));
}

/// Records as nobody here would write them, each in a row: no JSON, no UTF-8, a version of later, no room, a NUL in the
/// name of a room, and no recipients in a version that names them.
const UNUSABLE: &str = r#"INSERT INTO follow_ups (record) VALUES ('no JSON'), (CAST(X'7bff00fe' AS TEXT)),
    ('{"v":9,"subject":"room:42","streamId":"5-0","eventType":"a.b","data":{},"publisherId":null,"timestamp":5,"recipients":[7]}'),
    ('{"v":1,"subject":"room:4 2","streamId":"5-0","eventType":"a.b","data":{},"publisherId":null,"timestamp":5,"recipients":[7]}'),
    ('{"v":1,"subject":"room:4\u00002","streamId":"5-0","eventType":"a.b","data":{},"publisherId":null,"timestamp":5,"recipients":[7]}'),
    ('{"v":1,"subject":"room:42","streamId":"5-0","eventType":"a.b","data":{},"publisherId":null,"timestamp":5,"recipients":null}')"#;

#[tokio::test]
async fn a_record_that_cannot_be_used_becomes_a_dead_letter_at_once() {
    let scene = Scene::open().await;
    scene.execute(UNUSABLE).await;
    scene.append(event("good")).await;
    scene.start_deriving();
    scene.wait_for_unread(1).await;
    let letters = scene.wait_for_dead_letters(6).await;
    wait::until(SOON, async || scene.is_done().await).await;
    let shown: Vec<&str> = letters.iter().map(|letter| letter.payload.as_deref().unwrap()).collect();
    assert_eq!(shown[..2], ["no JSON", "{\u{fffd}\0\u{fffd}"]);
    assert!(shown[2].contains(r#""v":9"#) && shown[4].contains(r"4\u00002"), "{shown:?}");
    for letter in &letters {
        assert!(letter.attempts == 1 && !letter.reason.is_empty(), "{letter:?}");
    }
    assert_eq!((letters[3].key.as_str(), letters[3].created_at), ("room:4 2", 5));
    // What can never work stays until somebody drops it.
    let ids: Vec<i64> = letters.iter().map(|letter| letter.id).collect();
    assert_eq!(scene.inbox.redrive(ids.clone()).await.unwrap(), 0);
    assert!(scene.inbox.discard(ids[0]).await.unwrap());
    assert!(!scene.inbox.discard(ids[0]).await.unwrap());
    assert_eq!((scene.inbox.depth().await.unwrap(), scene.unread("7").await), (5, 1));
}

#[tokio::test]
async fn a_record_that_is_found_again_after_a_crash_is_one_dead_letter() {
    let scene = Scene::open().await;
    scene.execute("INSERT INTO follow_ups (id, record) VALUES (17, 'no JSON')").await;
    scene.start_deriving();
    scene.wait_for_dead_letters(1).await;
    wait::until(SOON, async || scene.is_done().await).await;
    // As if the hub had died before the record left its queue.
    scene.execute("INSERT INTO follow_ups (id, record) VALUES (17, 'no JSON')").await;
    wait::until(SOON, async || scene.is_done().await).await;
    assert_eq!(scene.inbox.depth().await.unwrap(), 1);
}

#[tokio::test]
async fn a_record_that_names_nobody_is_for_the_members_of_its_room() {
    let scene = Scene::open().await;
    for room in ["club", "empty", "unregistered"] {
        scene
            .append(Append { recipients: Recipients::Members, publisher: Some(id("9")), ..event(room) })
            .await;
    }
    scene.append(event("good")).await;
    scene.start_deriving();
    scene.wait_for_unread(2).await;
    wait::until(SOON, async || scene.is_done().await).await;
    let unread = [scene.unread("7").await, scene.unread("8").await, scene.unread("9").await];
    assert_eq!(unread, [2, 1, 0], "members, less the publisher");
    assert_eq!(scene.inbox.depth().await.unwrap(), 0);
}

#[tokio::test]
async fn a_service_cannot_take_the_name_of_an_event_that_a_room_will_have() {
    let scene = Scene::open().await;
    let name = EventId::new(&format!("good:{NOW}-0")).unwrap();
    let taken = Notice {
        event: name.clone(),
        kind: Kind::new("POST_LIKE").unwrap(),
        reference: None,
        actor: None,
        payload: Object::stored("{}").unwrap(),
    };
    assert_eq!(scene.inbox.notify(taken, &[person()]).await.unwrap().len(), 1);
    scene.append(event("good")).await;
    // Before the entry is made, the name is the room's already.
    assert_eq!(scene.inbox.mark_read(&person(), EntryId::of(name)).await.unwrap().unwrap().seq, 2);
    scene.start_deriving();
    wait::until(SOON, async || scene.is_done().await).await;
    assert_eq!((scene.unread("7").await, scene.inbox.depth().await.unwrap()), (1, 0));
}
