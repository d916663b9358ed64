//! A subject's recent entries, and cursors into them.
//!
//! The ring is gapless from its floor to its end: a reader whose last id is at or above the floor misses nothing by
//! reading on from here, and one below it reads the log first. It is bounded in entries and, with all other rings,
//! in bytes. An entry is encoded when the first reader takes it in an encoding, once for all who read it so.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use bongsu_kernel::{Id, StreamId};
use bytes::{Bytes, BytesMut};

use crate::budget::Budget;
use crate::control::Removed;
use crate::encode::{Encoder, Encoding, Format, Frames};
use crate::log::Place;
use crate::message::{Item, Message};
use crate::sync::Arc;

/// Bytes of one write at most, but at least one entry.
const MAX_WRITE_BYTES: usize = 16 << 10;
/// Messages that a ring holds back at most; past that the oldest go.
const MAX_HELD: usize = 64;

pub(crate) struct Ring {
    entries: VecDeque<RingEntry>,
    /// The number that the next entry gets; those in the ring are numbered without a hole up to it.
    next: u64,
    /// The place just before the first entry. Unknown until the log was asked, or the first entry told it.
    floor: Option<Place>,
    /// The place of the newest entry, or the floor.
    last: Place,
    capacity: usize,
    budget: Arc<Budget>,
    /// The last entries that were joined in each encoding: readers that are level with each other share the bytes.
    joined: Vec<Joined>,
    /// Messages that no log holds and that nobody may get yet.
    held: VecDeque<Message>,
}

/// The bytes of entries from one number up to another.
struct Joined {
    encoding: Encoding,
    range: (u64, u64),
    bytes: Bytes,
}

/// An entry that readers of the subject get.
pub(crate) struct RingEntry {
    /// Of one that no log holds: the place of the one before it.
    place: Place,
    /// No log holds it: who is not here now does not get it.
    passing: bool,
    /// Whose right it ends.
    removes: Option<Removed>,
    /// None for records and places that nobody is told of.
    message: Option<Message>,
    encoded: Vec<(Encoding, Bytes)>,
    accepted: Instant,
}

impl RingEntry {
    pub(crate) fn new(item: Item, accepted: Instant) -> Self {
        let Item { place, removes, message } = item;
        Self { place, passing: false, removes, message, encoded: Vec::new(), accepted }
    }

    /// The bytes that the entry takes of the budget.
    fn size(&self) -> usize {
        let encoded: usize = self.encoded.iter().map(|(_, bytes)| bytes.len()).sum();
        self.message.as_ref().map_or(0, Message::size) + encoded
    }

    /// Whether it is an event that the log holds.
    fn is_stored_event(&self) -> bool {
        !self.passing && self.message.is_some()
    }

    /// The message in the encoding of a reader; None for what nobody is told of.
    fn encode(&mut self, encoder: &Encoder, budget: &Budget) -> Option<&Bytes> {
        let message = self.message.as_ref()?;
        let encoding = encoder.encoding_of(message);
        let at = self.encoded.iter().position(|(known, _)| *known == encoding).unwrap_or_else(|| {
            let bytes = encoder.encode(message);
            budget.take(bytes.len());
            self.encoded.push((encoding, bytes));
            self.encoded.len() - 1
        });
        Some(&self.encoded[at].1)
    }
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Added,
    /// It was here already.
    Known,
    /// Entries before it are missing: the log has them.
    Gap,
}

/// Where a reader stands: the number of the next entry it wants, and the place of the last one it had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    pub(crate) next: u64,
    pub(crate) place: Place,
    /// Passing entries with lower numbers are not for this reader: it was not here, or has had them.
    pub(crate) here_since: u64,
}

/// What a reader gets.
pub(crate) enum Taken {
    Frames {
        frames: Frames,
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
            entries: VecDeque::new(),
            next: 0,
            floor: None,
            last: Place::START,
            capacity,
            budget,
            joined: Vec::new(),
            held: VecDeque::new(),
        }
    }

    /// Says where the log ended when this ring began, unless an entry has told it already.
    pub(crate) fn begin_at(&mut self, place: Place) {
        if self.floor.is_none() {
            self.floor = Some(place);
            self.last = place;
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.floor.is_some()
    }

    /// Adds an entry that follows `previous` in the log. One that is here already changes nothing, and neither does one
    /// that does not follow on: whoever pushes has to fill the gap first.
    pub(crate) fn push(&mut self, previous: StreamId, entry: RingEntry) -> Pushed {
        let before = Place { id: previous, number: entry.place.number.map(|n| n.saturating_sub(1)) };
        self.begin_at(before);
        if entry.place.id <= self.last.id {
            return Pushed::Known;
        }
        if previous != self.last.id {
            return Pushed::Gap;
        }
        if entry.removes.as_ref().is_some_and(Removed::concerns_everybody) {
            // What came before is nobody's any more. Those who are here find the record in the log.
            self.restart_at(entry.place);
            return Pushed::Added;
        }
        self.last = entry.place;
        self.add(entry);
        Pushed::Added
    }

    /// Adds a message that no log holds, for those who are here now. While others are held back it waits behind them.
    pub(crate) fn pass(&mut self, message: Message, accepted: Instant) {
        if !self.held.is_empty() {
            return self.hold(message);
        }
        let entry = RingEntry::new(Item::new(self.last, message), accepted);
        self.add(RingEntry { passing: true, ..entry });
    }

    /// Holds a message back that no log holds, until [`Ring::pass_held`].
    pub(crate) fn hold(&mut self, message: Message) {
        if self.held.len() == MAX_HELD {
            self.held.pop_front();
        }
        self.held.push_back(message);
    }

    /// Passes on the messages that were held back, if there are any.
    pub(crate) fn pass_held(&mut self) -> bool {
        let held = std::mem::take(&mut self.held);
        let any = !held.is_empty();
        held.into_iter().for_each(|message| self.pass(message, Instant::now()));
        any
    }

    /// Begins anew at the log's end, because what is between cannot be filled in. Every reader goes through the log,
    /// which tells it what became of its own place.
    pub(crate) fn restart_at(&mut self, head: Place) {
        self.clear();
        self.joined.clear();
        // A number that no entry has, so that also a reader that was level is behind now.
        self.next += 1;
        self.floor = Some(head);
        self.last = head;
    }

    pub(crate) fn has_events(&self) -> bool {
        self.entries.iter().any(|entry| !entry.passing)
    }

    /// The place of the newest entry that the log holds, or where the ring began.
    pub(crate) fn last(&self) -> Place {
        self.last
    }

    fn add(&mut self, entry: RingEntry) {
        self.budget.take(entry.size());
        self.entries.push_back(entry);
        self.next += 1;
        while self.entries.len() > self.capacity || (self.budget.is_exceeded() && !self.entries.is_empty()) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.budget.give_back(entry.size());
            self.floor = Some(entry.place);
        }
    }

    fn clear(&mut self) {
        while !self.entries.is_empty() {
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
        let at = self.entries.partition_point(|entry| entry.place.id < id);
        let found = self.entries.get(at).filter(|entry| entry.place.id == id)?;
        Some(self.cursor(at + 1, found.place, self.next))
    }

    /// Where a reader goes on that has had everything up to its place from the log, if nothing between is missing
    /// here.
    pub(crate) fn resume(&self, cursor: Cursor) -> Option<Cursor> {
        let place = cursor.place;
        if self.floor.is_none_or(|floor| place.id < floor.id) {
            return None;
        }
        // Passing entries after its place may be for it: `take` knows which it has had.
        let at = self.entries.partition_point(|entry| entry.place.id < place.id);
        Some(self.cursor(at, place, cursor.here_since.max(cursor.next)))
    }

    /// At the entry with this index, which may be one past the last.
    fn cursor(&self, index: usize, place: Place, here_since: u64) -> Cursor {
        Cursor { next: self.first() + index as u64, place, here_since }
    }

    /// Takes what is new for a reader, as much as fits into one write, up to a record after `since` that ends the
    /// person's right.
    pub(crate) fn take(
        &mut self,
        cursor: &mut Cursor,
        person: &Id,
        since: StreamId,
        encoder: &Encoder,
    ) -> Taken {
        if cursor.next < self.first() {
            return Taken::Behind;
        }
        let mut start = usize::try_from(cursor.next - self.first()).unwrap_or(usize::MAX);
        while self.entries.get(start).is_some_and(|entry| cursor.passes_over(entry)) {
            start += 1;
            cursor.next += 1;
        }
        let Some(first) = self.entries.get(start) else { return Taken::Level };
        let removes = |entry: &RingEntry| {
            entry.removes.as_ref().is_some_and(|removed| removed.concerns(person)) && entry.place.id > since
        };
        if removes(first) {
            return Taken::Removed;
        }
        let (oldest, from) = (first.accepted, cursor.next);
        let (mut size, mut events, mut end) = (0, 0, start);
        while let Some(entry) = self.entries.get_mut(end) {
            if cursor.passes_over(entry) || removes(entry) {
                break;
            }
            let len = entry.encode(encoder, &self.budget).map_or(0, Bytes::len);
            if size > 0 && size + len > MAX_WRITE_BYTES {
                break;
            }
            size += len;
            events += u64::from(entry.is_stored_event());
            end += 1;
            cursor.next += 1;
        }
        let frames = self.frames(from, start..end, encoder);
        let place = self.entries[end - 1].place;
        // A passing entry has the place of one that the reader may be ahead of.
        if place.id > cursor.place.id {
            cursor.place = place;
        }
        if frames.is_empty() {
            // Records about others: there may be events behind them.
            return self.take(cursor, person, since, encoder);
        }
        Taken::Frames { frames, events, oldest }
    }

    /// The bytes of encoded entries, the first of which has the number `from`. One is shared as it is; several are copied
    /// together once, for all readers that stand at the same place.
    fn frames(&mut self, from: u64, range: Range<usize>, encoder: &Encoder) -> Frames {
        let (count, encoding) = (range.len() as u64, encoder.encoding);
        let budget = &self.budget;
        let mut entries = self.entries.range_mut(range);
        if encoding.format == Format::SsePart {
            let frame = |entry: &mut RingEntry| {
                let place = (!entry.passing).then_some(entry.place.id);
                Some((place, entry.encode(encoder, budget)?.clone()))
            };
            return Frames::Separate(entries.filter_map(frame).collect());
        }
        if count == 1 {
            let only = entries.next().and_then(|entry| entry.encode(encoder, budget)).cloned();
            return Frames::Joined(only.unwrap_or_default());
        }
        let range = (from, from + count);
        let known = self.joined.iter_mut().find(|joined| joined.encoding == encoding);
        if let Some(joined) = &known
            && joined.range == range
        {
            return Frames::Joined(joined.bytes.clone());
        }
        let mut bytes = BytesMut::new();
        for entry in entries {
            bytes.extend_from_slice(entry.encode(encoder, budget).map_or(&[], |bytes| &bytes[..]));
        }
        let bytes = bytes.freeze();
        let joined = Joined { encoding, range, bytes: bytes.clone() };
        match known {
            Some(known) => *known = joined,
            None => self.joined.push(joined),
        }
        Frames::Joined(bytes)
    }

    fn first(&self) -> u64 {
        self.next - self.entries.len() as u64
    }
}

impl Cursor {
    /// Whether the entry that is next is none for this reader: the log may have shown it before it came here.
    fn passes_over(&self, entry: &RingEntry) -> bool {
        if entry.passing { self.next < self.here_since } else { entry.place.id <= self.place.id }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests;
