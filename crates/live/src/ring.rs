//! The ring buffer of a subject: its recent messages, and cursors into them.
//!
//! The ring buffer has no gap between its floor and its end. A reader whose last position is at or above the
//! floor continues here without a gap; a reader below the floor reads the log first. A ring buffer is bounded
//! in entries, and all ring buffers together in bytes. An entry is encoded once per encoding, when the first
//! reader with that encoding takes it.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use bongsu_kernel::{Id, StreamId};
use bytes::{Bytes, BytesMut};

use crate::budget::Budget;
use crate::control::Removal;
use crate::encode::{Encoder, Encoding, Format, Frames};
use crate::log::LogPosition;
use crate::message::{Item, Message};
use crate::sync::Arc;

/// Bytes of one write, unless a single entry is larger.
const MAX_WRITE_BYTES: usize = 16 << 10;
/// Ephemeral messages that a ring buffer holds back; beyond this number the oldest are dropped.
const MAX_HELD_MESSAGES: usize = 64;

pub(crate) struct Ring {
    entries: VecDeque<RingEntry>,
    /// The sequence number of the next entry; the entries in the ring buffer have the numbers just below it, without a
    /// gap.
    next: u64,
    /// The position just before the first entry. None until the head of the log is known or an entry was pushed.
    floor: Option<LogPosition>,
    /// The position of the newest entry, or the floor.
    last: LogPosition,
    capacity: usize,
    budget: Arc<Budget>,
    /// The latest joined bytes of each encoding: readers at the same position share them.
    joined: Vec<JoinedFrames>,
    /// Ephemeral messages that must not be delivered yet.
    held: VecDeque<Message>,
}

/// The concatenated bytes of the entries from one sequence number up to another.
struct JoinedFrames {
    encoding: Encoding,
    range: (u64, u64),
    bytes: Bytes,
}

/// An entry of the ring buffer.
pub(crate) struct RingEntry {
    /// Of an ephemeral message: the position of the entry before it.
    position: LogPosition,
    /// No log holds the message; only current subscribers get it.
    is_ephemeral: bool,
    /// Set on a removal record.
    removal: Option<Removal>,
    /// None for control records and for positions without a message.
    message: Option<Message>,
    encoded: Vec<(Encoding, Bytes)>,
    accepted: Instant,
}

impl RingEntry {
    pub(crate) fn new(item: Item, accepted: Instant) -> Self {
        let Item { position, removal, message } = item;
        Self { position, is_ephemeral: false, removal, message, encoded: Vec::new(), accepted }
    }

    /// The bytes that the entry uses of the memory budget.
    fn size(&self) -> usize {
        let encoded: usize = self.encoded.iter().map(|(_, bytes)| bytes.len()).sum();
        self.message.as_ref().map_or(0, Message::size) + encoded
    }

    /// Whether the entry is an event in the log.
    fn is_stored_event(&self) -> bool {
        !self.is_ephemeral && self.message.is_some()
    }

    /// The message in the encoding of a reader. None for an entry without a message.
    fn encode(&mut self, encoder: &Encoder, budget: &Budget) -> Option<&Bytes> {
        let message = self.message.as_ref()?;
        let encoding = encoder.encoding_of(message);
        let at = self.encoded.iter().position(|(known, _)| *known == encoding).unwrap_or_else(|| {
            let bytes = encoder.encode(message);
            budget.reserve(bytes.len());
            self.encoded.push((encoding, bytes));
            self.encoded.len() - 1
        });
        Some(&self.encoded[at].1)
    }
}

/// The result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushOutcome {
    Added,
    /// The ring buffer already has the entry.
    AlreadyKnown,
    /// Entries before this one are missing; they are in the log.
    Gap,
}

/// The place of a reader: the sequence number of its next entry, and the position of the last entry it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    pub(crate) next: u64,
    pub(crate) position: LogPosition,
    /// Ephemeral entries with lower sequence numbers are skipped: the reader was not subscribed yet, or was sent them.
    pub(crate) ephemeral_from: u64,
}

/// The result of a read.
pub(crate) enum TakeOutcome {
    Frames {
        frames: Frames,
        /// How many of the frames are events in the log.
        events: u64,
        oldest: Instant,
    },
    /// The reader was sent every entry.
    UpToDate,
    /// The next entry ends the person's access.
    Removed,
    /// The next entry is no longer in the ring buffer; the reader has to read the log.
    Behind,
}

impl Ring {
    pub(crate) fn new(capacity: usize, budget: Arc<Budget>) -> Self {
        Self {
            entries: VecDeque::new(),
            next: 0,
            floor: None,
            last: LogPosition::START,
            capacity,
            budget,
            joined: Vec::new(),
            held: VecDeque::new(),
        }
    }

    /// Sets the position where the ring buffer begins, unless an entry was pushed before.
    pub(crate) fn initialize_at(&mut self, position: LogPosition) {
        if self.floor.is_none() {
            self.floor = Some(position);
            self.last = position;
        }
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.floor.is_some()
    }

    /// Adds an entry that follows `previous` in the log. An entry that the ring buffer already has changes nothing, and
    /// neither does one after a gap: the caller has to fill the gap first.
    pub(crate) fn push(&mut self, previous: StreamId, entry: RingEntry) -> PushOutcome {
        let before = LogPosition { id: previous, number: entry.position.number.map(|n| n.saturating_sub(1)) };
        self.initialize_at(before);
        if entry.position.id <= self.last.id {
            return PushOutcome::AlreadyKnown;
        }
        if previous != self.last.id {
            return PushOutcome::Gap;
        }
        if entry.removal.as_ref().is_some_and(Removal::applies_to_everyone) {
            // No reader may get the entries before this record any more. Current readers find the record in the log.
            self.restart_at(entry.position);
            return PushOutcome::Added;
        }
        self.last = entry.position;
        self.add(entry);
        PushOutcome::Added
    }

    /// Adds an ephemeral message for the current subscribers. If earlier ones are held back, the message is held back,
    /// too.
    pub(crate) fn push_ephemeral(&mut self, message: Message, accepted: Instant) {
        if !self.held.is_empty() {
            return self.hold(message);
        }
        let entry = RingEntry::new(Item::new(self.last, message), accepted);
        self.add(RingEntry { is_ephemeral: true, ..entry });
    }

    /// Holds an ephemeral message back until [`Ring::release_held`].
    pub(crate) fn hold(&mut self, message: Message) {
        if self.held.len() == MAX_HELD_MESSAGES {
            self.held.pop_front();
        }
        self.held.push_back(message);
    }

    /// Adds the messages that were held back. Returns false if no message was held back.
    pub(crate) fn release_held(&mut self) -> bool {
        let held = std::mem::take(&mut self.held);
        let has_released = !held.is_empty();
        held.into_iter().for_each(|message| self.push_ephemeral(message, Instant::now()));
        has_released
    }

    /// Restarts at a position, without entries. Every reader then reads the log, which determines how the reader
    /// continues.
    pub(crate) fn restart_at(&mut self, head: LogPosition) {
        self.clear();
        self.joined.clear();
        // Skips a sequence number, so that a reader that was up to date is behind now, too.
        self.next += 1;
        self.floor = Some(head);
        self.last = head;
    }

    pub(crate) fn has_events(&self) -> bool {
        self.entries.iter().any(|entry| !entry.is_ephemeral)
    }

    /// The position of the newest stored entry, or where the ring buffer began.
    pub(crate) fn last(&self) -> LogPosition {
        self.last
    }

    fn add(&mut self, entry: RingEntry) {
        self.budget.reserve(entry.size());
        self.entries.push_back(entry);
        self.next += 1;
        while self.entries.len() > self.capacity || (self.budget.is_exceeded() && !self.entries.is_empty()) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.budget.release(entry.size());
            self.floor = Some(entry.position);
        }
    }

    fn clear(&mut self) {
        while !self.entries.is_empty() {
            self.drop_oldest();
        }
    }

    /// A cursor for the entries that are pushed from now on.
    pub(crate) fn end(&self) -> Cursor {
        Cursor { next: self.next, position: self.last, ephemeral_from: self.next }
    }

    /// A cursor after exactly this position, if the ring buffer has it.
    pub(crate) fn find(&self, id: StreamId) -> Option<Cursor> {
        if self.floor.is_some_and(|floor| floor.id == id) {
            return self.floor.map(|position| self.cursor(0, position, self.next));
        }
        let at = self.entries.partition_point(|entry| entry.position.id < id);
        let found = self.entries.get(at).filter(|entry| entry.position.id == id)?;
        Some(self.cursor(at + 1, found.position, self.next))
    }

    /// A cursor for a reader that has read the log up to its position. None if the ring buffer lacks entries after it.
    pub(crate) fn resume(&self, cursor: Cursor) -> Option<Cursor> {
        let position = cursor.position;
        if self.floor.is_none_or(|floor| position.id < floor.id) {
            return None;
        }
        // An ephemeral entry that the reader was not sent may stand before the position of the reader: the
        // log may have held an entry that the bus delivers only after the ephemeral one. `take` skips every
        // entry that the reader was sent.
        let ephemeral_from = cursor.ephemeral_from.max(cursor.next);
        let at_position = self.entries.partition_point(|entry| entry.position.id < position.id);
        let at_ephemeral = usize::try_from(ephemeral_from.saturating_sub(self.first())).unwrap_or(usize::MAX);
        Some(self.cursor(at_position.min(at_ephemeral), position, ephemeral_from))
    }

    /// A cursor at the entry with this index, which may be one past the last.
    fn cursor(&self, index: usize, position: LogPosition, ephemeral_from: u64) -> Cursor {
        Cursor { next: self.first() + index as u64, position, ephemeral_from }
    }

    /// Takes the new messages for a reader, as many as fit into one write. Stops before a record that removes the
    /// person and whose position is after `access_checked_at`.
    pub(crate) fn take(
        &mut self,
        cursor: &mut Cursor,
        person: &Id,
        access_checked_at: StreamId,
        encoder: &Encoder,
    ) -> TakeOutcome {
        if cursor.next < self.first() {
            return TakeOutcome::Behind;
        }
        let mut start = usize::try_from(cursor.next - self.first()).unwrap_or(usize::MAX);
        while self.entries.get(start).is_some_and(|entry| cursor.skips(entry)) {
            start += 1;
            cursor.next += 1;
        }
        let Some(first) = self.entries.get(start) else { return TakeOutcome::UpToDate };
        let removes = |entry: &RingEntry| {
            entry.removal.as_ref().is_some_and(|removal| removal.applies_to(person))
                && entry.position.id > access_checked_at
        };
        if removes(first) {
            return TakeOutcome::Removed;
        }
        let (oldest, from) = (first.accepted, cursor.next);
        let (mut size, mut events, mut end) = (0, 0, start);
        while let Some(entry) = self.entries.get_mut(end) {
            if cursor.skips(entry) || removes(entry) {
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
        let position = self.entries[end - 1].position;
        // An ephemeral entry has the position of the stored entry before it, which the reader may have passed.
        if position.id > cursor.position.id {
            cursor.position = position;
        }
        if frames.is_empty() {
            // None of the entries taken so far has a message; events may follow them.
            return self.take(cursor, person, access_checked_at, encoder);
        }
        TakeOutcome::Frames { frames, events, oldest }
    }

    /// The bytes of encoded entries, of which the first has the sequence number `from`. The bytes of a single entry are
    /// shared as they are; those of several are concatenated once, for all readers at the same position.
    fn frames(&mut self, from: u64, range: Range<usize>, encoder: &Encoder) -> Frames {
        let (count, encoding) = (range.len() as u64, encoder.encoding);
        let budget = &self.budget;
        let mut entries = self.entries.range_mut(range);
        if encoding.format == Format::SsePart {
            let frame = |entry: &mut RingEntry| {
                let position = (!entry.is_ephemeral).then_some(entry.position.id);
                Some((position, entry.encode(encoder, budget)?.clone()))
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
        let joined = JoinedFrames { encoding, range, bytes: bytes.clone() };
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
    /// Whether the reader skips its next entry, for example because it has read the entry from the log.
    fn skips(&self, entry: &RingEntry) -> bool {
        if entry.is_ephemeral {
            self.next < self.ephemeral_from
        } else {
            entry.position.id <= self.position.id
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests;
