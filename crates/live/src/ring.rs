//! A subject's recent frames, and cursors into them.
//!
//! The ring is gapless from its floor to its end: a reader whose last id is at or above the floor misses nothing by
//! reading on from here, and one below it reads the log first. It is bounded in frames and, with all other rings,
//! in bytes.

use std::collections::VecDeque;
use std::time::Instant;

use bongsu_kernel::{Id, StreamId, sse};
use bytes::{Bytes, BytesMut};

use crate::budget::Budget;
use crate::control::{self, Removed};
use crate::log::{Entry, Place};
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
    pub(crate) fn of(entry: &Entry, accepted: Instant) -> Self {
        let removes = control::removed(entry);
        let bytes = if control::is_control(entry) {
            Bytes::new()
        } else {
            sse::event(&entry.event_type, entry.place.id, &entry.data, entry.at).into()
        };
        Self { place: entry.place, passing: false, removes, bytes, accepted }
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
        count: u64,
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
        cursor.next += count as u64;
        // A passing frame has the place of one that the reader may be ahead of.
        if place.id > cursor.place.id {
            cursor.place = place;
        }
        if bytes.is_empty() {
            // Records about others: there may be events behind them.
            return self.take(cursor, person, since);
        }
        Taken::Frames { bytes, count: count as u64, oldest }
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(n: u64) -> Place {
        Place { id: StreamId::new(n, 0), number: Some(n) }
    }

    fn frame(n: u64) -> Frame {
        Frame {
            place: place(n),
            passing: false,
            removes: None,
            bytes: Bytes::from(format!("{n};")),
            accepted: Instant::now(),
        }
    }

    fn ring(capacity: usize, limit: usize) -> Ring {
        Ring::new(capacity, Arc::new(Budget::new(limit)))
    }

    /// Where a reader stands that has had everything up to here, from the log.
    fn at(n: u64) -> Cursor {
        Cursor { next: 0, place: place(n), here_since: 0 }
    }

    fn read(ring: &mut Ring, cursor: &mut Cursor) -> Option<String> {
        match ring.take(cursor, &nobody(), StreamId::START) {
            Taken::Frames { bytes, .. } => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Taken::Level => Some(String::new()),
            Taken::Behind => None,
            Taken::Removed => Some("removed".to_owned()),
        }
    }

    fn nobody() -> Id {
        Id::new("nobody").unwrap_or_else(|_| unreachable!("an id"))
    }

    #[test]
    fn a_reader_gets_what_came_after_it_began() {
        let mut ring = ring(4, 1_000);
        ring.begin_at(place(5));
        let mut cursor = ring.end();
        assert_eq!(read(&mut ring, &mut cursor).unwrap(), "");
        ring.push(place(5).id, frame(6));
        ring.push(place(6).id, frame(7));
        assert_eq!(read(&mut ring, &mut cursor).unwrap(), "6;7;");
        assert_eq!(read(&mut ring, &mut cursor).unwrap(), "");
        for n in 8..14 {
            ring.push(place(n - 1).id, frame(n));
        }
        assert_eq!(read(&mut ring, &mut cursor), None, "the ring has moved on");
        assert!(ring.resume(cursor).is_none());
        let mut back = ring.resume(at(10)).unwrap();
        assert_eq!(read(&mut ring, &mut back).unwrap(), "11;12;13;");
    }

    #[test]
    fn what_the_log_showed_before_is_not_shown_again() {
        let mut ring = ring(4, 1_000);
        ring.begin_at(place(5));
        let mut cursor = ring.resume(at(7)).unwrap();
        for n in 6..9 {
            ring.push(place(n - 1).id, frame(n));
        }
        assert_eq!(read(&mut ring, &mut cursor).unwrap(), "8;");
    }

    #[test]
    fn only_places_that_exist_are_found() {
        let mut ring = ring(3, 1_000);
        for n in [2, 4, 6, 8] {
            ring.push(place(n - 2).id, frame(n));
        }
        assert!(ring.find(place(2).id).is_some(), "the floor");
        assert!(ring.find(place(6).id).is_some());
        for missing in [0, 3, 7, 9] {
            assert!(ring.find(place(missing).id).is_none(), "{missing}");
        }
    }

    #[test]
    fn a_gap_is_told_and_hides_nothing() {
        let mut ring = ring(8, 1_000);
        ring.begin_at(place(1));
        let mut cursor = ring.end();
        assert_eq!(ring.push(place(1).id, frame(2)), Pushed::Added);
        assert_eq!(ring.push(place(3).id, frame(4)), Pushed::Gap);
        assert_eq!(ring.push(place(1).id, frame(2)), Pushed::Known);
        assert_eq!(read(&mut ring, &mut cursor).unwrap(), "2;");
        assert_eq!(ring.push(place(2).id, frame(3)), Pushed::Added, "the log had it");
        assert_eq!(ring.push(place(3).id, frame(4)), Pushed::Added);
        assert_eq!(read(&mut ring, &mut cursor).unwrap(), "3;4;");
    }

    #[test]
    fn a_restart_sends_every_reader_to_the_log() {
        let mut ring = ring(8, 1_000);
        ring.begin_at(place(1));
        let mut behind = ring.end();
        ring.push(place(1).id, frame(2));
        let mut level = ring.end();
        ring.restart_at(place(7));
        ring.push(place(7).id, frame(8));
        assert_eq!(read(&mut ring, &mut behind), None);
        assert_eq!(read(&mut ring, &mut level), None, "also one that had everything until now");
        assert!(ring.resume(at(2)).is_none());
        let mut repaired = ring.resume(at(7)).unwrap();
        assert_eq!(read(&mut ring, &mut repaired).unwrap(), "8;");
    }

    #[test]
    fn passing_frames_are_for_those_who_are_here() {
        let mut ring = ring(8, 1_000);
        ring.begin_at(place(1));
        let pass = |ring: &mut Ring, text: &'static str| {
            ring.pass(Bytes::from_static(text.as_bytes()), Instant::now());
        };
        let mut here = ring.end();
        ring.push(place(1).id, frame(2));
        pass(&mut ring, "a;");
        let mut back = ring.find(place(2).id).unwrap();
        let mut late = ring.find(place(1).id).unwrap();
        ring.push(place(2).id, frame(3));
        pass(&mut ring, "b;");
        assert_eq!(read(&mut ring, &mut here).unwrap(), "2;a;3;b;");
        assert_eq!(read(&mut ring, &mut back).unwrap(), "3;b;", "it may have had the first before");
        let mut from_the_log = ring.resume(Cursor { place: place(3), ..late }).unwrap();
        assert_eq!(read(&mut ring, &mut late).unwrap(), "2;");
        assert_eq!(read(&mut ring, &mut late).unwrap(), "3;b;");
        assert_eq!(read(&mut ring, &mut from_the_log).unwrap(), "b;");
        assert_eq!(from_the_log.place, place(3));
        let mut again = ring.resume(here).unwrap();
        assert_eq!(read(&mut ring, &mut again).unwrap(), "", "it has had all of them");
    }

    #[test]
    fn a_record_ends_one_persons_reading_and_is_nothing_to_others() {
        let mut ring = ring(8, 1_000);
        ring.begin_at(place(1));
        let (anna, ben) = (Id::new("anna").unwrap(), Id::new("ben").unwrap());
        let removes = |person: &Id| serde_json::from_str(&format!("{{\"userId\":\"{person}\"}}")).ok();
        let (mut annas, mut bens) = (ring.end(), ring.end());
        ring.push(place(1).id, frame(2));
        ring.push(place(2).id, Frame { removes: removes(&anna), bytes: Bytes::new(), ..frame(3) });
        ring.push(place(3).id, frame(4));
        let mut take =
            |cursor: &mut Cursor, person: &Id, since: u64| match ring.take(cursor, person, place(since).id) {
                Taken::Frames { bytes, .. } => String::from_utf8_lossy(&bytes).into_owned(),
                Taken::Removed => "removed".to_owned(),
                Taken::Level => "level".to_owned(),
                Taken::Behind => "behind".to_owned(),
            };
        let mut came_back = annas;
        assert_eq!(take(&mut annas, &anna, 1), "2;");
        assert_eq!(take(&mut annas, &anna, 1), "removed");
        assert_eq!(take(&mut annas, &anna, 1), "removed", "for good");
        assert_eq!(take(&mut bens, &ben, 1), "2;4;");
        assert_eq!(take(&mut came_back, &anna, 3), "2;4;", "who was let in again after it may read");
    }

    #[test]
    fn memory_is_bounded_over_all_rings() {
        let budget = Arc::new(Budget::new(10));
        let mut rings: Vec<Ring> = (0..5).map(|_| Ring::new(100, budget.clone())).collect();
        for n in 1..100 {
            for ring in &mut rings {
                ring.push(place(n - 1).id, frame(n));
            }
        }
        assert!(!budget.is_exceeded());
        drop(rings);
        budget.take(10);
        assert!(!budget.is_exceeded(), "everything was given back");
    }

    proptest! {
        /// Whatever the order of pushes and reads, a reader that goes to the log when it is behind sees 1..=n.
        #[test]
        fn no_reader_misses_or_repeats(
            steps in prop::collection::vec((any::<bool>(), 0_usize..3), 1..200),
            capacity in 1_usize..6,
            limit in 4_usize..40,
        ) {
            let mut ring = ring(capacity, limit);
            ring.begin_at(Place::START);
            let mut cursors = [ring.end(); 3];
            let mut seen = vec![Vec::new(); 3];
            let mut written = 0;
            let read_on = |ring: &mut Ring, cursor: &mut Cursor, seen: &mut Vec<u64>, written: u64| loop {
                match ring.take(cursor, &nobody(), StreamId::START) {
                    Taken::Frames { bytes, .. } => {
                        let text = String::from_utf8(bytes.to_vec()).unwrap();
                        seen.extend(text.split_terminator(';').map(|n| n.parse::<u64>().unwrap()));
                    }
                    Taken::Level | Taken::Removed => return,
                    Taken::Behind => {
                        let id = cursor.place.id.ms + 1;
                        assert_ne!(id, written + 1, "behind although level");
                        seen.push(id);
                        cursor.place = place(id);
                        if let Some(resumed) = ring.resume(*cursor) {
                            *cursor = resumed;
                        }
                    }
                }
            };
            for (push, reader) in steps {
                if push {
                    written += 1;
                    ring.push(StreamId::new(written - 1, 0), frame(written));
                } else {
                    read_on(&mut ring, &mut cursors[reader], &mut seen[reader], written);
                }
            }
            for reader in 0..3 {
                read_on(&mut ring, &mut cursors[reader], &mut seen[reader], written);
                prop_assert_eq!(&seen[reader], &(1..=written).collect::<Vec<_>>());
            }
        }
    }
}
