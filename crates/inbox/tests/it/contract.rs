//! The contract of the inbox on its records, tested on every database.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_inbox::{
    EntryId, EventId, Inbox, InboxChange, InboxSource, ListFilter, LiveDelivery, Notification,
    NotificationType, NotifyOutcome, Options, RedisDeps, Templates, marks::WriteBehindOptions, subject,
};
use bongsu_kernel::json::Object;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis, StreamId};
use bongsu_live::log::ReadLimits;
use bongsu_live::{Source, StartPosition};
use bongsu_testkit::{Rng, proof, tier};
use serde_json::json;

use crate::database::Database;

const DAY: Millis = 24 * 60 * 60 * 1_000;
pub(crate) const NOW: Millis = 1_800_000_000_000;

/// Records what the inbox delivers to open streams.
#[derive(Default)]
pub(crate) struct RecordedDelivery {
    pub(crate) entries: Mutex<Vec<NotifyOutcome>>,
    pub(crate) changes: Mutex<Vec<(Id, InboxChange)>>,
}

impl LiveDelivery for RecordedDelivery {
    fn deliver_entries(&self, _: &Notification, _: Millis, outcomes: &[NotifyOutcome]) {
        self.entries.lock().unwrap().extend_from_slice(outcomes);
    }

    fn deliver_change(&self, person: &Id, change: &InboxChange) {
        self.changes.lock().unwrap().push((person.clone(), change.clone()));
    }
}

pub(crate) struct Scene {
    pub(crate) inbox: Inbox,
    pub(crate) clock: Clock,
    pub(crate) delivered: Arc<RecordedDelivery>,
    supervisor: Supervisor,
}

async fn scene(database: &Database) -> Scene {
    scene_with_redis(database, None).await
}

pub(crate) async fn scene_with_redis(database: &Database, redis_deps: Option<RedisDeps>) -> Scene {
    let (clock, supervisor) = (Clock::manual(NOW), Supervisor::new());
    let delivered = Arc::new(RecordedDelivery::default());
    let write_behind = WriteBehindOptions { interval: Duration::from_secs(30), batch_size: 200 };
    let options = Options {
        templates: Templates::load(None).unwrap(),
        retention: Duration::from_secs(30 * 86_400),
        write_behind,
    };
    let records = database.records().await;
    let inbox =
        Inbox::start(records, options, clock.clone(), delivered.clone(), redis_deps, None, &supervisor);
    Scene { inbox, clock, delivered, supervisor }
}

pub(crate) fn id(number: u64) -> Id {
    named(&number.to_string())
}

fn named(text: &str) -> Id {
    Id::new(text).unwrap()
}

pub(crate) fn notification(event: &str) -> Notification {
    Notification {
        event: EventId::new(event).unwrap(),
        kind: NotificationType::new("POST_LIKE").unwrap(),
        reference: None,
        actor: None,
        payload: Object::from_stored("{}").unwrap(),
    }
}

/// The notification of a room event.
fn room_notification(event: &str) -> Notification {
    let room = event.split_once(':').unwrap().0;
    Notification {
        kind: NotificationType::new("comment.created").unwrap(),
        reference: Some(named(room)),
        ..notification(event)
    }
}

fn entry_id(event: &str) -> EntryId {
    EntryId::from_request(EventId::new(event).unwrap())
}

/// The sequence numbers of a person's entries, and the unread count.
async fn listed(inbox: &Inbox, person: &Id) -> (Vec<u64>, u64) {
    let filter = ListFilter { person: person.clone(), before: None, limit: 100, is_unread_only: false };
    let page = inbox.list(filter).await.unwrap();
    (page.entries.iter().map(|entry| entry.seq).collect(), page.state.unread)
}

/// The longest time for which retention may hold the locks on a person's rows.
const MAX_LOCK_TIME: Duration = Duration::from_millis(100);

pub(crate) async fn expired_entries_are_removed_in_batches_with_their_counts(database: Database) {
    let Scene { inbox, clock, supervisor, .. } = scene(&database).await;
    let (people, notices): (Vec<Id>, usize) = ((0..1_000).map(id).collect(), tier::size(20, 1_000));
    for n in 0..notices {
        inbox.notify(notification(&format!("old{n}")), &people).await.unwrap();
    }
    inbox.mark_read(&people[0], EntryId::Seq(1)).await.unwrap().unwrap();
    assert!(inbox.delete(&people[0], EntryId::Seq(2)).await.unwrap());
    clock.set(NOW + 10 * DAY);
    assert_eq!(inbox.remove_before(NOW).await.unwrap().entries, 0, "no entry is older");
    // The same persons are notified during retention.
    let (is_over, added) = (AtomicBool::new(false), AtomicU64::new(0));
    let notifying = async {
        while !is_over.load(Ordering::Relaxed) {
            let n = added.fetch_add(1, Ordering::Relaxed);
            inbox.notify(notification(&format!("young{n}")), &people).await.unwrap();
            // The time between two notifications.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let removing = async {
        let report = inbox.remove_before(NOW + DAY).await.unwrap();
        is_over.store(true, Ordering::Relaxed);
        report
    };
    let ((), report) = tokio::join!(notifying, removing);
    let expired = (notices * people.len()) as u64;
    assert_eq!(report.entries, expired);
    assert!(report.batches >= expired / 200, "in {} batches", report.batches);
    let added = added.load(Ordering::Relaxed);
    for person in &people {
        let state = inbox.unread_state(person).await.unwrap();
        assert_eq!((state.unread, state.last_seq), (added, notices as u64 + added), "{person}");
    }
    let filter = ListFilter { person: people[0].clone(), before: None, limit: 100, is_unread_only: true };
    let listed = inbox.list(filter).await.unwrap().entries.len() as u64;
    assert_eq!(listed, added.min(100));
    proof::record(
        "inbox",
        &format!("retention.{}", database.name()),
        json!({"rows": report.entries, "steps": report.batches, "longestHeldMs": report.max_lock_time.as_millis(), "toldMeanwhile": added}),
    );
    // Only in a proof run: in other runs, parallel tests make the lock times longer.
    assert!(
        tier::Tier::current() != tier::Tier::Prove || report.max_lock_time <= MAX_LOCK_TIME,
        "{report:?}"
    );
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn a_service_and_a_room_may_use_the_same_event_id(database: Database) {
    let Scene { inbox, supervisor, .. } = scene(&database).await;
    let add = async |notification: Notification| inbox.notify(notification, &[id(7)]).await.unwrap().len();
    // In either order, each notification makes one entry.
    assert_eq!([add(notification("42:5-0")).await, add(room_notification("42:5-0")).await], [1, 1]);
    assert_eq!([add(room_notification("42:6-0")).await, add(notification("42:6-0")).await], [1, 1]);
    assert_eq!([add(notification("42:5-0")).await, add(room_notification("42:5-0")).await], [0, 0]);
    assert_eq!(listed(&inbox, &id(7)).await, (vec![4, 3, 2, 1], 4));
    // The id is first taken for that of the room event.
    assert_eq!(inbox.mark_read(&id(7), entry_id("42:5-0")).await.unwrap().unwrap().seq, 2);
    assert_eq!(inbox.mark_read(&id(7), entry_id("42:6-0")).await.unwrap().unwrap().seq, 3);
    assert!(inbox.delete(&id(7), entry_id("42:5-0")).await.unwrap());
    assert_eq!(listed(&inbox, &id(7)).await, (vec![4, 3, 1], 2));
    assert_eq!(
        inbox.mark_read(&id(7), entry_id("42:5-0")).await.unwrap().unwrap().seq,
        1,
        "then for that of the service"
    );
    assert!(inbox.delete(&id(7), entry_id("42:5-0")).await.unwrap());
    assert!(!inbox.delete(&id(7), entry_id("42:5-0")).await.unwrap());
    assert_eq!(listed(&inbox, &id(7)).await, (vec![4, 3], 1));
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn entries_of_the_first_schema_are_not_made_again(database: Database) {
    let Scene { inbox, supervisor, .. } = scene(&database).await;
    assert_eq!(listed(&inbox, &id(7)).await, (vec![3, 2, 1], 3));
    let add = async |notification: Notification| inbox.notify(notification, &[id(7)]).await.unwrap().len();
    assert_eq!([add(room_notification("42:5-0")).await, add(notification("like-1")).await], [0, 0]);
    assert_eq!(add(notification("42:6-0")).await, 0);
    assert_eq!(
        add(room_notification("42:6-0")).await,
        1,
        "the id that the service used is free for the room"
    );
    assert_eq!(listed(&inbox, &id(7)).await, (vec![4, 3, 2, 1], 4));
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn a_page_of_large_entries_is_bounded_and_the_next_one_continues(database: Database) {
    let Scene { inbox, supervisor, .. } = scene(&database).await;
    let person = id(1);
    // Characters of three bytes, because the limit counts bytes.
    let payload = Object::from_stored(&format!("{{\"text\":\"{}\"}}", "봉".repeat(20_000))).unwrap();
    for n in 1..=20 {
        let large = Notification { payload: payload.clone(), ..notification(&format!("e{n}")) };
        inbox.notify(large, std::slice::from_ref(&person)).await.unwrap();
    }
    inbox.mark_read(&person, EntryId::Seq(20)).await.unwrap().unwrap();
    for (unread, newest) in [(false, 20), (true, 19)] {
        let (mut before, mut seen) = (None, Vec::new());
        loop {
            let filter = ListFilter { person: person.clone(), before, limit: 100, is_unread_only: unread };
            let page = inbox.list(filter).await.unwrap();
            assert!((1..=4).contains(&page.entries.len()), "{} entries in a page", page.entries.len());
            assert!(page.entries.iter().all(|entry| entry.notification.payload == payload));
            seen.extend(page.entries.iter().map(|entry| entry.seq));
            before = seen.last().copied();
            if !page.has_more {
                break;
            }
        }
        assert_eq!(seen, (1..=newest).rev().collect::<Vec<_>>());
        // The number of entries is limited as well.
        let filter = ListFilter { person: person.clone(), before: None, limit: 1, is_unread_only: unread };
        let page = inbox.list(filter).await.unwrap();
        assert_eq!((page.entries.len(), page.has_more), (1, true));
    }
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn a_notice_is_removed_after_its_last_entry_and_kept_while_it_has_one(database: Database) {
    let Scene { inbox, clock, supervisor, .. } = scene(&database).await;
    inbox.notify(notification("e"), &[id(1)]).await.unwrap();
    clock.set(NOW + 10 * DAY);
    // The notice is old, and gets a new entry.
    inbox.notify(notification("e"), &[id(2)]).await.unwrap();
    assert_eq!(inbox.remove_before(NOW + DAY).await.unwrap().entries, 1);
    assert_eq!((listed(&inbox, &id(1)).await, listed(&inbox, &id(2)).await), ((vec![], 0), (vec![1], 1)));
    assert_eq!(inbox.remove_before(NOW + 20 * DAY).await.unwrap().entries, 1);
    // The notice is removed, so the same event id makes new entries.
    assert_eq!(inbox.notify(notification("e"), &[id(1), id(2)]).await.unwrap().len(), 2);
    assert_eq!(listed(&inbox, &id(2)).await, (vec![2], 1));
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn a_position_before_a_retention_gap_is_too_far_behind(database: Database) {
    let Scene { inbox, clock, supervisor, .. } = scene(&database).await;
    let (person, source) = (id(1), InboxSource(inbox.clone()));
    let start = async |after: u64| {
        let limits = ReadLimits { entries: 256, bytes: 1 << 20 };
        let page = source.read(&subject(&person), StreamId::new(after, 0), limits).await.unwrap();
        let seqs: Vec<u64> = page.entries.iter().map(|entry| entry.position.id.ms).collect();
        (page.start, seqs)
    };
    for n in 1..=4 {
        inbox.notify(notification(&format!("e{n}")), std::slice::from_ref(&person)).await.unwrap();
        clock.set(NOW + n * DAY);
    }
    // A deleted entry makes no gap.
    assert!(inbox.delete(&person, EntryId::Seq(2)).await.unwrap());
    assert_eq!(start(1).await, (StartPosition::Known, vec![3, 4]));
    assert_eq!(inbox.remove_before(NOW + DAY + 1).await.unwrap().entries, 2);
    assert_eq!(start(1).await, (StartPosition::TooFarBehind, vec![3, 4]), "entry 2 was removed");
    assert_eq!(start(2).await, (StartPosition::Known, vec![3, 4]));
    inbox.remove_before(NOW + 10 * DAY).await.unwrap();
    assert_eq!(start(2).await, (StartPosition::TooFarBehind, vec![]), "all entries were removed");
    assert_eq!(start(4).await, (StartPosition::Known, vec![]));
    assert_eq!(start(5).await.0, StartPosition::Unknown);
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn overlapping_targets_are_notified_without_a_deadlock(database: Database) {
    let scenes = [scene(&database).await, scene(&database).await];
    let (people, notices) = (10_u64, tier::size(60, 1_000));
    let workers = (0..8_u64).map(async |worker| {
        let mut rng = Rng::new(worker);
        for n in 0..notices {
            let mut targets: Vec<Id> = (0..people).filter(|_| rng.chance(2, 3)).map(id).collect();
            rng.shuffle(&mut targets);
            let inbox = &scenes[n % 2].inbox;
            // Every second notification has the same event id in all workers, so that the workers notify overlapping
            // targets of one event concurrently.
            let event = if n % 2 == 0 { format!("all{n}") } else { format!("{worker}-{n}") };
            inbox.notify(notification(&event), &targets).await.unwrap();
            inbox.mark_read(&id(rng.below(people)), EntryId::Seq(rng.below(100) + 1)).await.unwrap();
        }
    });
    futures_util::future::join_all(workers).await;
    for person in (0..people).map(id) {
        let state = scenes[0].inbox.unread_state(&person).await.unwrap();
        let mut seqs: Vec<u64> = Vec::new();
        for scene in &scenes {
            let delivered = scene.delivered.entries.lock().unwrap();
            seqs.extend(delivered.iter().filter(|entry| entry.person == person).map(|entry| entry.seq));
        }
        seqs.sort_unstable();
        assert_eq!(seqs, (1..=state.last_seq).collect::<Vec<_>>(), "every number once for {person}");
    }
    assert_eq!(database.deadlocks(), 0, "deadlocks");
    for scene in scenes {
        scene.supervisor.shut_down(Duration::from_secs(1)).await;
    }
}

pub(crate) async fn every_target_gets_one_entry_with_its_unread_count(database: Database) {
    let Scene { inbox, delivered, supervisor, .. } = scene(&database).await;
    let people = [named("B"), named("a"), named("b")];
    let added = inbox.notify(notification("e1"), &[&people[..], &people[..1]].concat()).await.unwrap();
    assert_eq!(
        added.iter().map(|entry| &entry.person).collect::<Vec<_>>(),
        [&people[0], &people[1], &people[2]]
    );
    let is_first =
        |entry: &NotifyOutcome| (entry.seq, entry.unread, entry.version, entry.is_muted) == (1, 1, 1, false);
    assert!(added.iter().all(is_first));
    assert_eq!(
        inbox.notify(notification("e1"), &people).await.unwrap(),
        [],
        "a repeated request adds no entry"
    );
    assert_eq!(*delivered.entries.lock().unwrap(), added);
    let read = inbox.mark_read(&people[1], EntryId::Seq(1)).await.unwrap().unwrap();
    assert_eq!(inbox.mark_read(&people[1], EntryId::Seq(1)).await.unwrap(), Some(read));
    assert_eq!(inbox.mark_all_read(&people[2]).await.unwrap(), 0);
    assert_eq!(inbox.mark_all_read(&people[2]).await.unwrap(), 0);
    let change = |seqs: &[u64]| InboxChange { seqs: seqs.to_vec(), unread: 0, version: 2 };
    assert_eq!(
        *delivered.changes.lock().unwrap(),
        [(people[1].clone(), change(&[1])), (people[2].clone(), change(&[1]))],
        "one message for each change"
    );
    supervisor.shut_down(Duration::from_secs(1)).await;
}
