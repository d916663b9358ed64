//! A subject in memory: its ring buffer, and the connections subscribed to it, by shard.
//!
//! A subject exists while it has subscribers, and for up to a minute afterwards. Its ring buffer begins at
//! the head of the log, and is compared with the log whenever the subject is marked stale.

use std::fmt;
use std::sync::Arc as StdArc;
use std::time::Instant;

use bongsu_kernel::{Id, StreamId};

use crate::connection_state::ConnectionState;
use crate::encode::Encoder;
use crate::log::LogPosition;
use crate::message::Message;
use crate::ring::{Cursor, PushOutcome, Ring, RingEntry, TakeOutcome};
use crate::shard::WakeQueue;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};

/// The name of a subject, such as `room:42`: its kind and its id within the kind. The part that owns the kind chooses
/// ids.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubjectName(StdArc<str>);

impl SubjectName {
    pub fn new(kind: &'static str, id: &Id) -> Self {
        Self(format!("{kind}:{id}").into())
    }

    /// A name that [`SubjectName::as_str`] returned.
    pub fn from_stored(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind, and the id within the kind.
    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once(':').unwrap_or((&self.0, ""))
    }
}

impl fmt::Debug for SubjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A subject that has subscribers, or had some within the last minute.
pub(crate) struct Subject {
    ring: Mutex<Ring>,
    shards: Vec<ShardSubscribers>,
    /// A comparison of the ring buffer with the log was requested.
    is_stale: AtomicBool,
    /// A repair is queued or running.
    is_repairing: AtomicBool,
    /// The delivered entries are not those of the log: every stream of the subject is closed.
    is_invalidated: AtomicBool,
    /// Set once the head of the log is known; the first subscriber reads it for all.
    initialized: tokio::sync::OnceCell<()>,
}

/// The subscribers of one shard.
#[derive(Default)]
struct ShardSubscribers {
    connections: Mutex<Vec<Arc<ConnectionState>>>,
    /// The number of connections, readable without the lock, which is held while a large room's connections are woken.
    count: AtomicUsize,
    /// Whether this subject is in the wake queue of the shard.
    is_queued: AtomicBool,
}

impl Subject {
    pub(crate) fn new(ring: Ring, shards: usize) -> Self {
        Self {
            ring: Mutex::new(ring),
            shards: (0..shards).map(|_| ShardSubscribers::default()).collect(),
            is_stale: AtomicBool::new(false),
            is_repairing: AtomicBool::new(false),
            is_invalidated: AtomicBool::new(false),
            initialized: tokio::sync::OnceCell::new(),
        }
    }

    /// Lets the first subscriber find the head of the log; the others wait for the result.
    pub(crate) async fn initialize<E>(
        &self,
        find_head: impl AsyncFnOnce() -> Result<LogPosition, E>,
    ) -> Result<(), E> {
        self.initialized
            .get_or_try_init(async || {
                let position = find_head().await?;
                lock(&self.ring).initialize_at(position);
                Ok(())
            })
            .await
            .copied()
    }

    /// Requests a comparison with the log. Returns true when no repair is queued or running; the caller has
    /// to start one.
    pub(crate) fn mark_stale(&self) -> bool {
        self.is_stale.store(true, Ordering::SeqCst);
        !self.is_repairing.swap(true, Ordering::SeqCst)
    }

    /// Starts a repair round. Returns false when the subject is not stale any more; the next caller of
    /// `mark_stale` has to start a repair.
    pub(crate) fn begin_repair(&self) -> bool {
        if self.is_stale.swap(false, Ordering::SeqCst) {
            return true;
        }
        self.is_repairing.store(false, Ordering::SeqCst);
        // `mark_stale` may have been called between the two stores, and have relied on this repair.
        self.is_stale.load(Ordering::SeqCst) && !self.is_repairing.swap(true, Ordering::SeqCst) && {
            self.is_stale.store(false, Ordering::SeqCst);
            true
        }
    }

    /// The last position of the ring buffer. None while it is being repaired or is not initialized.
    pub(crate) fn settled_position(&self) -> Option<LogPosition> {
        let ring = lock(&self.ring);
        (ring.is_initialized() && !self.is_repairing.load(Ordering::SeqCst)).then(|| ring.last())
    }

    /// Adds an entry and notifies every shard that has subscribers. A connection that subscribes at the same time reads
    /// the ring buffer afterwards and finds the entry there.
    pub(crate) fn push(
        self: &Arc<Self>,
        previous: StreamId,
        entry: RingEntry,
        wake_queues: &[WakeQueue],
    ) -> PushOutcome {
        let outcome = lock(&self.ring).push(previous, entry);
        if outcome == PushOutcome::Added {
            self.notify_shards(wake_queues);
        }
        outcome
    }

    /// Adds an ephemeral message.
    pub(crate) fn push_ephemeral(
        self: &Arc<Self>,
        message: Message,
        accepted: Instant,
        wake_queues: &[WakeQueue],
    ) {
        lock(&self.ring).push_ephemeral(message, accepted);
        self.notify_shards(wake_queues);
    }

    /// Holds back an ephemeral message until [`Subject::release_held`].
    pub(crate) fn hold(&self, message: Message) {
        lock(&self.ring).hold(message);
    }

    pub(crate) fn release_held(self: &Arc<Self>, wake_queues: &[WakeQueue]) {
        if lock(&self.ring).release_held() {
            self.notify_shards(wake_queues);
        }
    }

    /// Restarts the ring buffer at the head of the log, so that every reader reads the log.
    pub(crate) fn restart_at(self: &Arc<Self>, head: LogPosition, wake_queues: &[WakeQueue]) {
        lock(&self.ring).restart_at(head);
        self.notify_shards(wake_queues);
    }

    /// Closes every stream of the subject, because the delivered entries are not those of the log.
    pub(crate) fn invalidate(self: &Arc<Self>, wake_queues: &[WakeQueue]) {
        self.is_invalidated.store(true, Ordering::SeqCst);
        self.notify_shards(wake_queues);
    }

    pub(crate) fn is_invalidated(&self) -> bool {
        self.is_invalidated.load(Ordering::SeqCst)
    }

    fn notify_shards(self: &Arc<Self>, wake_queues: &[WakeQueue]) {
        for (subscribers, wake_queue) in self.shards.iter().zip(wake_queues) {
            if subscribers.count.load(Ordering::Acquire) > 0
                && !subscribers.is_queued.swap(true, Ordering::AcqRel)
            {
                wake_queue.push(self.clone());
            }
        }
    }

    /// Wakes the streams of a shard. A message pushed from here on queues the subject again.
    pub(crate) fn wake(&self, shard: usize) {
        let subscribers = &self.shards[shard];
        subscribers.is_queued.store(false, Ordering::Release);
        for connection in lock(&subscribers.connections).iter() {
            connection.wake();
        }
    }

    pub(crate) fn add_subscriber(&self, shard: usize, state: Arc<ConnectionState>) {
        let subscribers = &self.shards[shard];
        lock(&subscribers.connections).push(state);
        subscribers.count.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove_subscriber(&self, shard: usize, state: &Arc<ConnectionState>) {
        let subscribers = &self.shards[shard];
        let mut connections = lock(&subscribers.connections);
        if let Some(at) = connections.iter().position(|other| Arc::ptr_eq(other, state)) {
            connections.swap_remove(at);
            subscribers.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn subscriber_count(&self) -> usize {
        self.shards.iter().map(|subscribers| subscribers.count.load(Ordering::Acquire)).sum()
    }

    /// Whether the ring buffer holds stored events, which reconnecting clients may need.
    pub(crate) fn has_events(&self) -> bool {
        lock(&self.ring).has_events()
    }

    #[cfg(all(test, feature = "model"))]
    pub(crate) fn initialize_at(&self, position: LogPosition) {
        lock(&self.ring).initialize_at(position);
    }

    pub(crate) fn end(&self) -> Cursor {
        lock(&self.ring).end()
    }

    pub(crate) fn find(&self, id: StreamId) -> Option<Cursor> {
        lock(&self.ring).find(id)
    }

    pub(crate) fn resume(&self, cursor: Cursor) -> Option<Cursor> {
        lock(&self.ring).resume(cursor)
    }

    pub(crate) fn last(&self) -> LogPosition {
        lock(&self.ring).last()
    }

    pub(crate) fn take(
        &self,
        cursor: &mut Cursor,
        person: &Id,
        access_checked_at: StreamId,
        encoder: &Encoder,
    ) -> TakeOutcome {
        lock(&self.ring).take(cursor, person, access_checked_at, encoder)
    }
}
