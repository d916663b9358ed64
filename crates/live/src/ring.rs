//! A subject's recent frames, and cursors into them.
//!
//! The ring is gapless from its floor to its end: a reader whose last id is at or above the floor misses nothing by
//! reading on from here, and one below it reads the log first. It is bounded in frames and, with all other rings,
//! in bytes.

use std::collections::VecDeque;
use std::time::Instant;

use bongsu_kernel::{Id, StreamId};
use bytes::{Bytes, BytesMut};

use crate::budget::Budget;
use crate::control::{self, Removed};
use crate::log::{Entry, Place};
use crate::source::Source;
use crate::sync::Arc;

/// So many bytes leave in one write at most, but at least one frame.
const WRITE_BYTES: usize = 16 << 10;

pub(crate) struct Ring {
    frames: VecDeque<Frame>,
    /// The number that the next frame gets; those in the ring are numbered without a hole up to it.
    next: u64,
    /// The place just before the first frame. Unknown until the log was asked, or the first frame told it.
    floor: Option<Place>,
    /// The place of the newest frame, or the floor.
    last: Place,
    capacity: usize,
    budget: Arc<Budget>,
    /// The last frames that were joined: readers that are level with each other share the bytes.
    joined: Option<(u64, u64, Bytes)>,
}

/// One encoded event.
pub(crate) struct Frame {
    /// Of one that no log holds: the place of the one before it.
    pub(crate) place: Place,
    /// No log holds it: who is not here now does not get it.
    pub(crate) passing: bool,
    /// Whose right it ends: a record, with no bytes of its own.
    pub(crate) removes: Option<Removed>,
    pub(crate) bytes: Bytes,
    pub(crate) accepted: Instant,
}

impl Frame {
    /// An event, encoded once for all its readers.
    pub(crate) fn of(entry: &Entry, source: &dyn Source, accepted: Instant) -> Self {
        let (removes, bytes) = (control::removed(entry), source.frame(entry).into());
        Self { place: entry.place, passing: false, removes, bytes, accepted }
    }

    /// A place that nobody is told of.
    pub(crate) fn silent(place: Place) -> Self {
        Self { place, passing: false, removes: None, bytes: Bytes::new(), accepted: Instant::now() }
    }
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Added,
    /// It was here already.
    Known,
    /// Frames before it are missing: the log has them.
    Gap,
}

/// Where a reader stands: the number of the next frame it wants, and the place of the last one it had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    pub(crate) next: u64,
    pub(crate) place: Place,
    /// Passing frames with lower numbers are not for this reader: it was not here, or has had them.
    pub(crate) here_since: u64,
}

/// What a reader gets.
pub(crate) enum Taken {
    Frames {
        bytes: Bytes,
        /// How many of them are events that the log holds.
        events: u64,
        oldest: Instant,
    },
    /// There is nothing new.
    Level,
    /// What comes next is not for this person any more.
    Removed,
    /// The ring has moved on past this reader: the log has what it needs.
    Behind,
}

impl Ring {
    pub(crate) fn new(capacity: usize, budget: Arc<Budget>) -> Self {
        Self {
            frames: VecDeque::new(),
            next: 0,
            floor: None,
            last: Place::START,
            capacity,
            budget,
            joined: None,
        }
    }

    /// Says where the log ended when this ring began, unless a frame has told it already.
    pub(crate) fn begin_at(&mut self, place: Place) {
        if self.floor.is_none() {
            self.floor = Some(place);
            self.last = place;
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.floor.is_some()
    }

    /// Adds a frame that follows `previous` in the log. One that is here already changes nothing, and neither does one
    /// that does not follow on: whoever pushes has to fill the gap first.
    pub(crate) fn push(&mut self, previous: StreamId, frame: Frame) -> Pushed {
        let before = Place { id: previous, number: frame.place.number.map(|n| n.saturating_sub(1)) };
        self.begin_at(before);
        if frame.place.id <= self.last.id {
            return Pushed::Known;
        }
        if previous != self.last.id {
            return Pushed::Gap;
        }
        if frame.removes.as_ref().is_some_and(Removed::concerns_everybody) {
            // What came before is nobody's any more. Those who are here find the record in the log.
            self.restart_at(frame.place);
            return Pushed::Added;
        }
        self.last = frame.place;
        self.add(frame);
        Pushed::Added
    }

    /// Adds a frame that no log holds, for those who are here now.
    pub(crate) fn pass(&mut self, bytes: Bytes, accepted: Instant) {
        self.add(Frame { place: self.last, passing: true, removes: None, bytes, accepted });
    }

    /// Begins anew at the log's end, because what is between cannot be filled in. Every reader goes through the log,
    /// which tells it what became of its own place.
    pub(crate) fn restart_at(&mut self, head: Place) {
        self.clear();
        self.joined = None;
        // A number that no frame has, so that also a reader that was level is behind now.
        self.next += 1;
        self.floor = Some(head);
        self.last = head;
    }

    pub(crate) fn has_events(&self) -> bool {
        self.frames.iter().any(|frame| !frame.passing)
    }

    /// The place of the newest frame that the log holds, or where the ring began.
    pub(crate) fn last(&self) -> Place {
        self.last
    }

    fn add(&mut self, frame: Frame) {
        self.budget.take(frame.bytes.len());
        self.frames.push_back(frame);
        self.next += 1;
        while self.frames.len() > self.capacity || (self.budget.is_exceeded() && !self.frames.is_empty()) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(frame) = self.frames.pop_front() {
            self.budget.give_back(frame.bytes.len());
            self.floor = Some(frame.place);
        }
    }

    fn clear(&mut self) {
        while !self.frames.is_empty() {
            self.drop_oldest();
        }
    }

    /// From now on.
    pub(crate) fn end(&self) -> Cursor {
        Cursor { next: self.next, place: self.last, here_since: self.next }
    }

    /// The place with exactly this id, if the ring knows it.
    pub(crate) fn find(&self, id: StreamId) -> Option<Cursor> {
        if self.floor.is_some_and(|floor| floor.id == id) {
            return self.floor.map(|place| self.cursor(0, place, self.next));
        }
        let at = self.frames.partition_point(|frame| frame.place.id < id);
        let found = self.frames.get(at).filter(|frame| frame.place.id == id)?;
        Some(self.cursor(at + 1, found.place, self.next))
    }

    /// Where a reader goes on that has had everything up to its place from the log, if nothing between is missing
    /// here.
    pub(crate) fn resume(&self, cursor: Cursor) -> Option<Cursor> {
        let place = cursor.place;
        if self.floor.is_none_or(|floor| place.id < floor.id) {
            return None;
        }
        // Passing frames after its place may be for it: `take` knows which it has had.
        let at = self.frames.partition_point(|frame| frame.place.id < place.id);
        Some(self.cursor(at, place, cursor.here_since.max(cursor.next)))
    }

    /// At the frame with this index, which may be one past the last.
    fn cursor(&self, index: usize, place: Place, here_since: u64) -> Cursor {
        Cursor { next: self.first() + index as u64, place, here_since }
    }

    /// Takes what is new for a reader, as much as fits into one write, up to a record after `since` that ends the
    /// person's right.
    pub(crate) fn take(&mut self, cursor: &mut Cursor, person: &Id, since: StreamId) -> Taken {
        if cursor.next < self.first() {
            return Taken::Behind;
        }
        let mut start = usize::try_from(cursor.next - self.first()).unwrap_or(usize::MAX);
        while self.frames.get(start).is_some_and(|frame| cursor.passes_over(frame)) {
            start += 1;
            cursor.next += 1;
        }
        let Some(first) = self.frames.get(start) else { return Taken::Level };
        let removes = |frame: &Frame| {
            frame.removes.as_ref().is_some_and(|removed| removed.concerns(person)) && frame.place.id > since
        };
        if removes(first) {
            return Taken::Removed;
        }
        let oldest = first.accepted;
        let mut size = 0;
        let mut ahead = *cursor;
        let fits = |frame: &&Frame| {
            size += frame.bytes.len();
            let fits = !ahead.passes_over(frame)
                && !removes(frame)
                && (size <= WRITE_BYTES || size == frame.bytes.len());
            ahead.next += 1;
            fits
        };
        let count = self.frames.range(start..).take_while(fits).count();
        let bytes = self.join(cursor.next, start, count);
        let place = self.frames[start + count - 1].place;
        let events = self.frames.range(start..start + count).filter(|frame| !frame.passing).count();
        cursor.next += count as u64;
        // A passing frame has the place of one that the reader may be ahead of.
        if place.id > cursor.place.id {
            cursor.place = place;
        }
        if bytes.is_empty() {
            // Records about others: there may be events behind them.
            return self.take(cursor, person, since);
        }
        Taken::Frames { bytes, events: events as u64, oldest }
    }

    /// The bytes of `count` frames from number `from` on, which is at `start`. One frame is shared as it is; several
    /// are copied together once, for all readers that stand at the same place.
    fn join(&mut self, from: u64, start: usize, count: usize) -> Bytes {
        let to = from + count as u64;
        if count == 1 {
            return self.frames[start].bytes.clone();
        }
        if let Some((known_from, known_to, bytes)) = &self.joined
            && (*known_from, *known_to) == (from, to)
        {
            return bytes.clone();
        }
        let mut joined = BytesMut::new();
        for frame in self.frames.range(start..start + count) {
            joined.extend_from_slice(&frame.bytes);
        }
        let bytes = joined.freeze();
        self.joined = Some((from, to, bytes.clone()));
        bytes
    }

    fn first(&self) -> u64 {
        self.next - self.frames.len() as u64
    }
}

impl Cursor {
    /// Whether the frame that is next is none for this reader: the log may have shown it before it came here.
    fn passes_over(&self, frame: &Frame) -> bool {
        if frame.passing { self.next < self.here_since } else { frame.place.id <= self.place.id }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests;
