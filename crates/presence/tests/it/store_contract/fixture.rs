//! A store with a listener that records, and helpers for the one room of the contract tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::Id;
use bongsu_kernel::task::Supervisor;
use bongsu_presence::store::{
    CHANGE_BATCH_INTERVAL, PresenceChange, PresenceListener, PresenceStore, ReportOutcome,
};
use bongsu_presence::{Options, compare_ids};
use bongsu_testkit::wait;

use super::Adapter;
use crate::support::{WAIT_TIMEOUT, id, ids};

pub(crate) const ROOM: &str = "42";
/// A person who joins and leaves last, so that a test that receives both knows that all earlier announcements arrived.
const MARKER: &str = "marker";

/// For tests in which no lease expires.
pub(crate) const LONG_LEASES: Options =
    Options { user_ttl: Duration::from_secs(60), hash_ttl: Duration::from_secs(120) };
/// For tests in which leases expire. Longer than a busy machine delays a renewal.
pub(crate) const SHORT_LEASES: Options =
    Options { user_ttl: Duration::from_secs(6), hash_ttl: Duration::from_secs(20) };

/// Records the calls of the store, in order.
#[derive(Default)]
pub(crate) struct RecordingListener {
    changes: Mutex<Vec<(Id, PresenceChange)>>,
    report_requests: AtomicUsize,
}

impl PresenceListener for RecordingListener {
    fn deliver(&self, room: &Id, change: PresenceChange) {
        self.changes.lock().unwrap().push((room.clone(), change));
    }

    fn request_report(&self, _: &Id, within: Duration) {
        assert!(within <= CHANGE_BATCH_INTERVAL);
        self.report_requests.fetch_add(1, Ordering::SeqCst);
    }

    fn mark_stale(&self, room: &Id) {
        panic!("room {room} became stale, although the engine did not fail");
    }
}

impl RecordingListener {
    /// The number of requested reports.
    pub(crate) fn report_requests(&self) -> usize {
        self.report_requests.load(Ordering::SeqCst)
    }

    pub(crate) fn changes_in(&self, room: &str) -> Vec<PresenceChange> {
        let all = self.changes.lock().unwrap();
        all.iter()
            .filter(|(recorded, _)| recorded.as_str() == room)
            .map(|(_, change)| change.clone())
            .collect()
    }
}

/// The store of one instance.
pub(crate) struct Fixture<A: Adapter> {
    pub(crate) adapter: A,
    pub(crate) store: Arc<dyn PresenceStore>,
    pub(crate) listener: Arc<RecordingListener>,
    supervisor: Supervisor,
}

impl<A: Adapter> Fixture<A> {
    pub(crate) async fn create(options: Options) -> Option<Self> {
        let adapter = A::create().await?;
        let (supervisor, listener) = (Supervisor::new(), Arc::new(RecordingListener::default()));
        let store = adapter.open(options, listener.clone(), &supervisor);
        store.subscribe(&id(ROOM)).await.unwrap();
        Some(Self { adapter, store, listener, supervisor })
    }

    /// Opens the store of another instance on the same storage.
    pub(crate) async fn another_instance(
        &self,
        options: Options,
    ) -> (Arc<dyn PresenceStore>, Arc<RecordingListener>) {
        let listener = Arc::new(RecordingListener::default());
        let store = self.adapter.open(options, listener.clone(), &self.supervisor);
        store.subscribe(&id(ROOM)).await.unwrap();
        (store, listener)
    }

    pub(crate) async fn report(&self, present: &[&str], left: &[&str]) -> ReportOutcome {
        report(&self.store, present, left).await
    }

    pub(crate) async fn heartbeat(&self, person: &str) {
        self.store.heartbeat(&id(ROOM), &id(person)).await.unwrap();
    }

    pub(crate) async fn occupants(&self) -> Vec<String> {
        occupants(&self.store, ROOM).await
    }

    /// Waits until all announcements of the room have arrived, and returns them as text.
    pub(crate) async fn announcements(&self) -> Vec<String> {
        // First removes people whose leases have expired, so that they do not leave after the marker has joined.
        self.report(&[], &[]).await;
        self.report(&[MARKER], &[]).await;
        self.report(&[], &[MARKER]).await;
        all_changes(&self.listener).await.iter().map(describe).collect()
    }
}

/// Waits until the marker has joined and left, and returns all other changes.
pub(crate) async fn all_changes(listener: &RecordingListener) -> Vec<PresenceChange> {
    let marker = Some(id(MARKER));
    let changes = wait::value_within(WAIT_TIMEOUT, || async {
        let changes = listener.changes_in(ROOM);
        changes.last().is_some_and(|last| last.left == marker).then_some(changes)
    });
    let mut changes = changes.await.expect("the marker was not announced");
    changes.retain(|change| change.joined != marker && change.left != marker);
    changes
}

pub(crate) async fn report(store: &Arc<dyn PresenceStore>, present: &[&str], left: &[&str]) -> ReportOutcome {
    store.report(&id(ROOM), &ids(present), &ids(left)).await.unwrap()
}

/// The people in a room, in order.
pub(crate) async fn occupants(store: &Arc<dyn PresenceStore>, room: &str) -> Vec<String> {
    let occupants = store.occupants(&id(room), None, usize::MAX).await.unwrap();
    assert_eq!((occupants.count, occupants.has_more), (occupants.online.len(), false));
    occupants.online.iter().map(|online| online.user.to_string()).collect()
}

/// A change as text: `+7 of 3 7 9`, `-7 of 3 9`, `= of 201`.
pub(crate) fn describe(change: &PresenceChange) -> String {
    let joined_or_left = match (&change.joined, &change.left) {
        (Some(joined), None) => format!("+{joined}"),
        (None, Some(left)) => format!("-{left}"),
        (None, None) => "=".to_owned(),
        both => panic!("{both:?} in one change"),
    };
    match &change.online {
        Some(online) => {
            assert_eq!(online.len(), change.count, "{joined_or_left}");
            let mut online = online.clone();
            online.sort_by(compare_ids);
            let online: Vec<&str> = online.iter().map(Id::as_str).collect();
            format!("{joined_or_left} of {}", online.join(" ")).trim_end().to_owned()
        }
        None => format!("{joined_or_left} of {}", change.count),
    }
}
