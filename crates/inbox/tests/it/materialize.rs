//! Tests of follow-up records: they become entries of the named recipients, or of the members of the room. A record of
//! which no entries can be made becomes a dead letter and delays no other.

use std::sync::Arc;
use std::time::Duration;

use bongsu_inbox::marks::WriteBehindOptions;
use bongsu_inbox::{
    EntryId, EventId, Inbox, InboxChange, LiveDelivery, Notification, NotificationType, NotifyOutcome,
    Options, RoomFollowUps, Templates,
};
use bongsu_kernel::json::Object;
use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::{Clock, EventType, Id, Millis};
use bongsu_live::SubjectName;
use bongsu_live::log::embedded::{self, EmbeddedLog};
use bongsu_live::log::{Append, Delivery, EphemeralMessage, FollowUps, Log, Recipients, Sink};
use bongsu_part::{DeadLetter, DeadLetters};
use bongsu_rooms::store::sql::{self, SqlStore};
use bongsu_sql::{DataFolder, Database, Migrations, Records, Store, WriterThread};
use bongsu_testkit::wait;
use tempfile::TempDir;

use crate::contract::NOW;

/// How long a test waits for an expected change.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Ignores all messages.
struct NoDelivery;

impl Sink for NoDelivery {
    fn deliver(&self, _: Delivery<'_>) {}
    fn deliver_ephemeral(&self, _: &SubjectName, _: &EphemeralMessage) {}
    fn mark_stale(&self, _: &SubjectName) {}
}

impl LiveDelivery for NoDelivery {
    fn deliver_entries(&self, _: &Notification, _: Millis, _: &[NotifyOutcome]) {}
    fn deliver_change(&self, _: &Id, _: &InboxChange) {}
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
        data: Object::from_stored("{}").unwrap(),
        publisher: None,
        idempotency: None,
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
    _writer: WriterThread,
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
        let log = EmbeddedLog::start(store.clone(), 1_000, clock.clone(), Arc::new(NoDelivery), &supervisor);
        let follow_ups: Arc<dyn FollowUps> = Arc::new(log.follow_ups());
        let options = Options {
            templates: Templates::load(None).unwrap(),
            retention: Duration::from_secs(86_400),
            write_behind: WriteBehindOptions { interval: Duration::from_secs(30), batch_size: 200 },
        };
        let members = SqlStore(Records::embedded(store.clone()));
        for room in ["club", "empty"] {
            members.register(&id(room)).await.unwrap();
        }
        for person in ["7", "8", "9"] {
            members.add(&id("club"), &id(person), 10).await.unwrap();
        }
        let rooms = RoomFollowUps { follow_ups: follow_ups.clone(), members };
        let (records, live) = (Records::embedded(store.clone()), Arc::new(NoDelivery));
        let inbox = Inbox::start(records, options, clock, live, None, Some(rooms), &supervisor);
        Self { inbox, log, follow_ups, store, supervisor, _writer: writer, _folder: folder }
    }

    fn start_materializing(&self) {
        let inbox = self.inbox.clone();
        self.supervisor.spawn("materialize", OnEnd::Restart, move || inbox.clone().materialize());
    }

    async fn execute(&self, sql: &'static str) {
        self.store.write(move |connection| Ok(connection.execute_batch(sql)?)).await.unwrap();
    }

    async fn append(&self, event: Append) {
        self.log.append(vec![event]).await.unwrap().remove(0).unwrap();
    }

    async fn unread(&self, person: &str) -> u64 {
        self.inbox.unread_state(&id(person)).await.unwrap().unread
    }

    async fn wait_for_unread(&self, count: u64) {
        wait::until(WAIT_TIMEOUT, async || self.unread("7").await >= count).await;
    }

    async fn wait_for_dead_letters(&self, count: u64) -> Vec<DeadLetter> {
        wait::until(WAIT_TIMEOUT, async || self.inbox.depth().await.unwrap() == count).await;
        self.inbox.list_after(i64::MIN, 1_000).await.unwrap()
    }

    /// Whether the queue of follow-up records is empty.
    async fn is_done(&self) -> bool {
        self.follow_ups.take(1, &[]).await.unwrap().is_empty()
    }
}

/// A trigger that refuses notifications of the room `bad`.
const REFUSE: &str = "CREATE TRIGGER refuse BEFORE INSERT ON bongsu_notices WHEN NEW.ref_id = 'bad'
    BEGIN SELECT RAISE(ABORT, 'not this one'); END";

#[tokio::test]
async fn a_refused_record_becomes_a_dead_letter_and_delays_no_other() {
    let scene = Scene::open().await;
    scene.execute(REFUSE).await;
    // The log gets more refused records than fit into a batch, and a valid record behind them.
    let bad = 100;
    let mut events = vec![event("bad"); bad];
    events.push(event("good"));
    let appended = scene.log.append(events).await.unwrap();
    scene.start_materializing();
    // Valid records that are added later are handled, too.
    for count in 1..5 {
        scene.wait_for_unread(count).await;
        scene.append(event("good")).await;
    }
    scene.wait_for_unread(5).await;
    let letters = scene.wait_for_dead_letters(bad as u64).await;
    wait::until(WAIT_TIMEOUT, async || scene.is_done().await).await;
    let first = appended[0].as_ref().unwrap().id.to_string();
    for letter in &letters {
        assert_eq!((letter.key.as_str(), letter.kind.as_str()), ("room:bad", "a.b"));
        assert!(letter.reason.contains("not this one"), "{letter:?}");
        assert_eq!((letter.attempts, letter.created_at), (3, NOW));
    }
    assert!(
        letters.iter().any(|letter| letter.payload.as_ref().unwrap().contains(&first)),
        "the payload is the record"
    );
    // While the trigger exists, a redrive fails. Without the trigger, every dead letter is redriven.
    let ids: Vec<i64> = letters.iter().map(|letter| letter.id).collect();
    assert_eq!(scene.inbox.redrive(ids[..1].to_vec()).await.unwrap(), 0);
    let again = scene.inbox.list_after(ids[0] - 1, 1).await.unwrap();
    assert_eq!((again[0].id, again[0].attempts), (ids[0], 4));
    scene.execute("DROP TRIGGER refuse").await;
    assert_eq!(scene.inbox.redrive(ids.clone()).await.unwrap(), bad as u64);
    assert_eq!(scene.inbox.redrive(ids.clone()).await.unwrap(), 0, "no dead letter is left");
    assert_eq!((scene.unread("7").await, scene.inbox.depth().await.unwrap()), (105, 0));
}

/// Invalid records: no JSON, no UTF-8, an unknown version, an invalid room id, a NUL in a room id, and no recipients in
/// a version that requires them.
const UNUSABLE: &str = r#"INSERT INTO follow_ups (record) VALUES ('no JSON'), (CAST(X'7bff00fe' AS TEXT)),
    ('{"v":9,"subject":"room:42","streamId":"5-0","eventType":"a.b","data":{},"publisherId":null,"timestamp":5,"recipients":[7]}'),
    ('{"v":1,"subject":"room:4 2","streamId":"5-0","eventType":"a.b","data":{},"publisherId":null,"timestamp":5,"recipients":[7]}'),
    ('{"v":1,"subject":"room:4\u00002","streamId":"5-0","eventType":"a.b","data":{},"publisherId":null,"timestamp":5,"recipients":[7]}'),
    ('{"v":1,"subject":"room:42","streamId":"5-0","eventType":"a.b","data":{},"publisherId":null,"timestamp":5,"recipients":null}')"#;

#[tokio::test]
async fn an_unusable_record_becomes_a_dead_letter_at_once() {
    let scene = Scene::open().await;
    scene.execute(UNUSABLE).await;
    scene.append(event("good")).await;
    scene.start_materializing();
    scene.wait_for_unread(1).await;
    let letters = scene.wait_for_dead_letters(6).await;
    wait::until(WAIT_TIMEOUT, async || scene.is_done().await).await;
    let shown: Vec<&str> = letters.iter().map(|letter| letter.payload.as_deref().unwrap()).collect();
    assert_eq!(shown[..2], ["no JSON", "{\u{fffd}\0\u{fffd}"]);
    assert!(shown[2].contains(r#""v":9"#) && shown[4].contains(r"4\u00002"), "{shown:?}");
    for letter in &letters {
        assert!(letter.attempts == 1 && !letter.reason.is_empty(), "{letter:?}");
    }
    assert_eq!((letters[3].key.as_str(), letters[3].created_at), ("room:4 2", 5));
    // An unusable record stays a dead letter until it is deleted.
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
    scene.start_materializing();
    scene.wait_for_dead_letters(1).await;
    wait::until(WAIT_TIMEOUT, async || scene.is_done().await).await;
    // The record is in its queue again, as after a crash before the hub removed it from there.
    scene.execute("INSERT INTO follow_ups (id, record) VALUES (17, 'no JSON')").await;
    wait::until(WAIT_TIMEOUT, async || scene.is_done().await).await;
    assert_eq!(scene.inbox.depth().await.unwrap(), 1);
}

#[tokio::test]
async fn a_record_without_recipients_is_for_the_members_of_its_room() {
    let scene = Scene::open().await;
    for room in ["club", "empty", "unregistered"] {
        scene
            .append(Append { recipients: Recipients::Members, publisher: Some(id("9")), ..event(room) })
            .await;
    }
    scene.append(event("good")).await;
    scene.start_materializing();
    scene.wait_for_unread(2).await;
    wait::until(WAIT_TIMEOUT, async || scene.is_done().await).await;
    let unread = [scene.unread("7").await, scene.unread("8").await, scene.unread("9").await];
    assert_eq!(unread, [2, 1, 0], "members without the publisher");
    assert_eq!(scene.inbox.depth().await.unwrap(), 0);
}

#[tokio::test]
async fn a_service_cannot_take_the_id_of_a_future_room_event() {
    let scene = Scene::open().await;
    let event_id = EventId::new(&format!("good:{NOW}-0")).unwrap();
    let of_service = Notification {
        event: event_id.clone(),
        kind: NotificationType::new("POST_LIKE").unwrap(),
        reference: None,
        actor: None,
        payload: Object::from_stored("{}").unwrap(),
    };
    assert_eq!(scene.inbox.notify(of_service, &[person()]).await.unwrap().len(), 1);
    scene.append(event("good")).await;
    // Even before the entry is made, the id means the room event.
    let read = scene.inbox.mark_read(&person(), EntryId::from_request(event_id)).await.unwrap().unwrap();
    assert_eq!(read.seq, 2);
    scene.start_materializing();
    wait::until(WAIT_TIMEOUT, async || scene.is_done().await).await;
    assert_eq!((scene.unread("7").await, scene.inbox.depth().await.unwrap()), (1, 0));
}
