//! A subject: its ring, and the streams that listen to it, shard by shard.

use std::fmt;
use std::sync::Arc as StdArc;

use bongsu_kernel::{Id, StreamId};

use crate::log::Place;
use crate::ring::{Cursor, Frame, Ring, Taken};
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

    pub fn as_str(&self) -> &str {
        &self.0
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
        Self { ring: Mutex::new(ring), shards: (0..shards).map(|_| Benches::default()).collect() }
    }

    /// Adds a frame and leaves word at every shard that has listeners. One that sits down meanwhile looks into the
    /// ring afterwards, and finds the frame there.
    pub(crate) fn push(self: &Arc<Self>, previous: StreamId, frame: Frame, inboxes: &[Inbox]) {
        lock(&self.ring).push(previous, frame);
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

    pub(crate) fn has_begun(&self) -> bool {
        lock(&self.ring).has_begun()
    }

    pub(crate) fn begin_at(&self, place: Place) {
        lock(&self.ring).begin_at(place);
    }

    pub(crate) fn end(&self) -> Cursor {
        lock(&self.ring).end()
    }

    pub(crate) fn find(&self, id: StreamId) -> Option<Cursor> {
        lock(&self.ring).find(id)
    }

    pub(crate) fn resume(&self, place: Place) -> Option<Cursor> {
        lock(&self.ring).resume(place)
    }

    pub(crate) fn take(&self, cursor: &mut Cursor) -> Taken {
        lock(&self.ring).take(cursor)
    }
}
