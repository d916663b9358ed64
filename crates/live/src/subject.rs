//! A subject: its ring, and the streams that listen to it, shard by shard.
//!
//! It is there while somebody listens. Whether its ring has everything is asked of the log when it begins, and again
//! whenever that is in doubt.

use std::fmt;
use std::sync::Arc as StdArc;
use std::time::Instant;

use bongsu_kernel::{Id, StreamId};

use crate::encode::Encoder;
use crate::log::Place;
use crate::message::Message;
use crate::ring::{Cursor, Pushed, Ring, RingEntry, Taken};
use crate::seat::Seat;
use crate::shard::Inbox;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};

/// What events are about: `room:42`. The part that owns a family of subjects names them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubjectName(StdArc<str>);

impl SubjectName {
    pub fn new(family: &'static str, id: &Id) -> Self {
        Self(format!("{family}:{id}").into())
    }

    /// A name that [`SubjectName::as_str`] gave.
    pub fn known(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The family, and the id within it.
    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once(':').unwrap_or((&self.0, ""))
    }
}

impl fmt::Debug for SubjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A subject that somebody listens to, or did a moment ago.
pub(crate) struct Subject {
    ring: Mutex<Ring>,
    shards: Vec<Benches>,
    /// Whether somebody asked for a comparison with the log, and whether one is under way.
    doubted: AtomicBool,
    repairing: AtomicBool,
    /// What was told is not what the log has: nobody stays.
    lost: AtomicBool,
    /// Asks the log where it ends, once for all who come first.
    begun: tokio::sync::OnceCell<()>,
}

/// The streams of one shard.
#[derive(Default)]
struct Benches {
    seats: Mutex<Vec<Arc<Seat>>>,
    /// How many there are, for those who must not wait while a large room is being woken.
    seated: AtomicUsize,
    /// Whether this subject waits in the shard's inbox already.
    queued: AtomicBool,
}

impl Subject {
    pub(crate) fn new(ring: Ring, shards: usize) -> Self {
        Self {
            ring: Mutex::new(ring),
            shards: (0..shards).map(|_| Benches::default()).collect(),
            doubted: AtomicBool::new(false),
            repairing: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            begun: tokio::sync::OnceCell::new(),
        }
    }

    /// Lets the first listener find out where the log ends; the others wait for it.
    pub(crate) async fn begin<E>(&self, find: impl AsyncFnOnce() -> Result<Place, E>) -> Result<(), E> {
        self.begun
            .get_or_try_init(async || {
                let place = find().await?;
                lock(&self.ring).begin_at(place);
                Ok(())
            })
            .await
            .copied()
    }

    /// Asks for a comparison with the log. True when nobody is at it, so that the caller has to see to it.
    pub(crate) fn doubt(&self) -> bool {
        self.doubted.store(true, Ordering::SeqCst);
        !self.repairing.swap(true, Ordering::SeqCst)
    }

    /// Takes the doubt up; false when there is none left, and the next one has to be seen to anew.
    pub(crate) fn begin_repair(&self) -> bool {
        if self.doubted.swap(false, Ordering::SeqCst) {
            return true;
        }
        self.repairing.store(false, Ordering::SeqCst);
        // Somebody may have doubted between the two, and relied on this one.
        self.doubted.load(Ordering::SeqCst) && !self.repairing.swap(true, Ordering::SeqCst) && {
            self.doubted.store(false, Ordering::SeqCst);
            true
        }
    }

    /// Where the ring ends, unless it is being repaired or has not begun.
    pub(crate) fn settled(&self) -> Option<Place> {
        let ring = lock(&self.ring);
        (ring.has_begun() && !self.repairing.load(Ordering::SeqCst)).then(|| ring.last())
    }

    /// Adds an entry and leaves word at every shard that has listeners. One that sits down meanwhile looks into the
    /// ring afterwards, and finds the entry there.
    pub(crate) fn push(self: &Arc<Self>, previous: StreamId, entry: RingEntry, inboxes: &[Inbox]) -> Pushed {
        let pushed = lock(&self.ring).push(previous, entry);
        if pushed == Pushed::Added {
            self.leave_word(inboxes);
        }
        pushed
    }

    /// Adds a message that no log holds.
    pub(crate) fn pass(self: &Arc<Self>, message: Message, accepted: Instant, inboxes: &[Inbox]) {
        lock(&self.ring).pass(message, accepted);
        self.leave_word(inboxes);
    }

    /// Holds back a message that no log holds, until [`Subject::pass_held`].
    pub(crate) fn hold(&self, message: Message) {
        lock(&self.ring).hold(message);
    }

    pub(crate) fn pass_held(self: &Arc<Self>, inboxes: &[Inbox]) {
        if lock(&self.ring).pass_held() {
            self.leave_word(inboxes);
        }
    }

    /// Sends every reader through the log.
    pub(crate) fn restart_at(self: &Arc<Self>, head: Place, inboxes: &[Inbox]) {
        lock(&self.ring).restart_at(head);
        self.leave_word(inboxes);
    }

    /// Ends every reader: what they were told is not what the log has.
    pub(crate) fn lose(self: &Arc<Self>, inboxes: &[Inbox]) {
        self.lost.store(true, Ordering::SeqCst);
        self.leave_word(inboxes);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    fn leave_word(self: &Arc<Self>, inboxes: &[Inbox]) {
        for (benches, inbox) in self.shards.iter().zip(inboxes) {
            if benches.seated.load(Ordering::Acquire) > 0 && !benches.queued.swap(true, Ordering::AcqRel) {
                inbox.put(self.clone());
            }
        }
    }

    /// Wakes the streams of a shard. What is pushed from here on leaves word anew.
    pub(crate) fn wake(&self, shard: usize) {
        let benches = &self.shards[shard];
        benches.queued.store(false, Ordering::Release);
        for seat in lock(&benches.seats).iter() {
            seat.wake();
        }
    }

    pub(crate) fn sit_down(&self, shard: usize, seat: Arc<Seat>) {
        let benches = &self.shards[shard];
        lock(&benches.seats).push(seat);
        benches.seated.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn stand_up(&self, shard: usize, seat: &Arc<Seat>) {
        let benches = &self.shards[shard];
        let mut seats = lock(&benches.seats);
        if let Some(at) = seats.iter().position(|other| Arc::ptr_eq(other, seat)) {
            seats.swap_remove(at);
            benches.seated.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn listeners(&self) -> usize {
        self.shards.iter().map(|benches| benches.seated.load(Ordering::Acquire)).sum()
    }

    /// Whether the ring has events of the log for those who come back.
    pub(crate) fn has_events(&self) -> bool {
        lock(&self.ring).has_events()
    }

    #[cfg(all(test, feature = "model"))]
    pub(crate) fn begin_at(&self, place: Place) {
        lock(&self.ring).begin_at(place);
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

    pub(crate) fn last(&self) -> Place {
        lock(&self.ring).last()
    }

    pub(crate) fn take(&self, cursor: &mut Cursor, person: &Id, since: StreamId, encoder: &Encoder) -> Taken {
        lock(&self.ring).take(cursor, person, since, encoder)
    }
}
