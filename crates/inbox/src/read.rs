//! Marks one entry or all entries as read, and deletes entries.
//!
//! The unread count changes in the transaction that changes the rows; the person's open streams are then sent the new
//! count. With Redis, the mark of a single entry is buffered first ([`marks`](crate::marks)).

use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Result, Row, Transaction};

use crate::cache::StateReading;
use crate::marks::{MarkBuffer, numbers};
use crate::store;
use crate::{EventId, Inbox, UnreadState};

/// Entries marked in one transaction by "mark all as read": other changes of the person wait for that transaction.
const BATCH_SIZE: usize = 500;

/// Names an entry of one person: by its sequence number, or by the event id of its notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryId {
    Seq(u64),
    /// An id that a service chose.
    Event(EventId),
    RoomEvent(EventId),
}

impl EntryId {
    /// Interprets an id from a request. A plain number is always a sequence number; an id in the form of a room event's
    /// id is first taken for one.
    pub fn from_request(id: EventId) -> Self {
        match canonical(id.as_str()) {
            Some(seq) => Self::Seq(seq),
            None if id.of_room().is_some() => Self::RoomEvent(id),
            None => Self::Event(id),
        }
    }

    /// The second interpretation, tried when the person has no entry by the first: a service may choose an id that has
    /// the form of a room event's id.
    fn fallback(&self) -> Option<Self> {
        match self {
            Self::RoomEvent(event) => Some(Self::Event(event.clone())),
            Self::Seq(_) | Self::Event(_) => None,
        }
    }
}

/// Parses a sequence number or a time: None unless it is in canonical form and fits a BIGINT column.
pub(crate) fn canonical(text: &str) -> Option<u64> {
    let number = text.parse::<u64>().ok()?;
    (i64::try_from(number).is_ok() && number.to_string() == text).then_some(number)
}

/// Entries of a person that were read or deleted, for the person's other devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxChange {
    pub seqs: Vec<u64>,
    /// The unread count of the whole inbox after the change.
    pub unread: u64,
    /// The version of the count: of two counts, the one with the higher version is newer.
    pub version: u64,
}

/// The read mark of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMark {
    pub seq: u64,
    pub read_at: Millis,
}

/// A request to mark or delete one entry.
#[derive(Clone)]
struct EntryRequest {
    person: Id,
    entry: EntryId,
    now: Millis,
}

impl Inbox {
    /// Marks an entry as read; None when the person has no such entry. Marking it again changes nothing. A person who
    /// saw an event in its room may mark the event's entry before the entry is made.
    pub async fn mark_read(&self, person: &Id, entry: EntryId) -> Result<Option<ReadMark>> {
        let request = EntryRequest { person: person.clone(), entry, now: self.0.clock.now() };
        let mut read = self.try_mark(&request).await?;
        if read.is_none() && self.materialize_early(person, &request.entry).await? {
            read = self.try_mark(&request).await?;
        }
        match (read, request.entry.fallback()) {
            (None, Some(entry)) => self.try_mark(&EntryRequest { entry, ..request }).await,
            (read, _) => Ok(read),
        }
    }

    async fn try_mark(&self, request: &EntryRequest) -> Result<Option<ReadMark>> {
        if let Some(buffer) = self.buffer()
            && let Some(outcome) = self.buffer_mark(buffer, request).await
        {
            return outcome;
        }
        let Some((read, change)) = self.0.records.write(request.clone(), mark).await? else {
            return Ok(None);
        };
        self.announce_change(&request.person, change).await;
        Ok(Some(read))
    }

    /// Stores a read mark in the buffer. None when the buffer fails: the caller then writes the mark to the records.
    async fn buffer_mark(
        &self,
        buffer: &dyn MarkBuffer,
        request: &EntryRequest,
    ) -> Option<Result<Option<ReadMark>>> {
        let (person, now) = (&request.person, request.now);
        let seq = match self.0.records.read(request.clone(), find).await {
            Ok(None) => return Some(Ok(None)),
            Ok(Some((seq, Some(read_at)))) => return Some(Ok(Some(ReadMark { seq, read_at }))),
            Ok(Some((seq, None))) => seq,
            // The records are unavailable, so the entry may have been read already; then the write to the
            // records skips the mark. A sequence number above the cached last one is refused: its mark would
            // make a later entry read before it is delivered.
            Err(error) if error.is_transient() => match (&request.entry, self.cached_state(person).await) {
                (EntryId::Seq(seq), Some(UnreadState { last_seq, .. })) if *seq <= last_seq => *seq,
                _ => return Some(Err(error)),
            },
            Err(error) => return Some(Err(error)),
        };
        let before = buffer.put(person, seq, now).await.ok()?;
        if before.is_none() {
            self.announce_buffered_mark(person, seq).await;
        }
        Some(Ok(Some(ReadMark { seq, read_at: before.unwrap_or(now) })))
    }

    /// Sends the person's devices a buffered mark, as soon as the unread count can be read from the records.
    async fn announce_buffered_mark(&self, person: &Id, seq: u64) {
        match (self.read_state(person).await, self.cache()) {
            (Ok(StateReading::Current(UnreadState { unread, version, .. })), _) => {
                self.0.live.deliver_change(person, &InboxChange { seqs: vec![seq], unread, version });
            }
            // The cached count does not include the mark. Devices are sent a count only from the records, so the
            // message waits.
            (Ok(StateReading::Cached(_)), Some(cache)) => {
                let _ = cache.subtract_one_unread(person).await;
                self.0.pending_pushes.put(person, &[seq]);
            }
            _ => self.0.pending_pushes.put(person, &[seq]),
        }
    }

    /// Sends the waiting messages about buffered marks. Stops while the records are unavailable.
    pub(crate) async fn send_pending_pushes(&self) {
        while let Some((person, seqs)) = self.0.pending_pushes.take() {
            let Ok(StateReading::Current(UnreadState { unread, version, .. })) =
                self.read_state(&person).await
            else {
                return self.0.pending_pushes.put_back(person, seqs);
            };
            self.0.live.deliver_change(&person, &InboxChange { seqs, unread, version });
        }
    }

    /// Marks all entries that exist at the time of the call. Returns the unread count afterwards, which newer entries
    /// may have raised.
    pub async fn mark_all_read(&self, person: &Id) -> Result<u64> {
        // Buffered marks are written first, so that versions only grow.
        self.write_pending_marks(person).await?;
        let last = self.unread_state(person).await?.last_seq;
        loop {
            let request = MarkAllRequest { person: person.clone(), last, now: self.0.clock.now() };
            let (change, has_more) = self.0.records.write(request, mark_batch).await?;
            let unread = change.unread;
            self.announce_change(person, Some(change).filter(|change| !change.seqs.is_empty())).await;
            if !has_more {
                return Ok(unread);
            }
        }
    }

    /// Deletes an entry; false when the person has no such entry. The entry of a room event is found as by
    /// [`Inbox::mark_read`].
    pub async fn delete(&self, person: &Id, entry: EntryId) -> Result<bool> {
        self.write_pending_marks(person).await?;
        let request = EntryRequest { person: person.clone(), entry, now: self.0.clock.now() };
        let mut is_deleted = self.try_delete(&request).await?;
        if !is_deleted && self.materialize_early(person, &request.entry).await? {
            is_deleted = self.try_delete(&request).await?;
        }
        match (is_deleted, request.entry.fallback()) {
            (false, Some(entry)) => self.try_delete(&EntryRequest { entry, ..request }).await,
            (is_deleted, _) => Ok(is_deleted),
        }
    }

    async fn try_delete(&self, request: &EntryRequest) -> Result<bool> {
        let Some(change) = self.0.records.write(request.clone(), delete).await? else { return Ok(false) };
        self.announce_change(&request.person, Some(change)).await;
        Ok(true)
    }

    /// Sends the person's devices a change that is durable in the records.
    async fn announce_change(&self, person: &Id, change: Option<InboxChange>) {
        let Some(mut change) = change else { return };
        if self.buffer().is_some() {
            // The person's row does not count buffered marks. When the count cannot be read now, the message waits.
            let Ok(StateReading::Current(UnreadState { unread, version, .. })) =
                self.read_state(person).await
            else {
                return self.0.pending_pushes.put(person, &change.seqs);
            };
            change = InboxChange { unread, version, ..change };
        }
        self.0.live.deliver_change(person, &change);
    }
}

/// The sequence number of the entry and its read time.
async fn find(request: &EntryRequest, tx: &mut Transaction<'_>) -> Result<FoundEntry> {
    let person = ("person", (&request.person).into());
    let (event, of_room) = match &request.entry {
        EntryId::Seq(seq) => {
            let row = tx.row(&store::ENTRY, &[person, ("seq", (*seq).into())]).await?;
            return read_found(row);
        }
        EntryId::Event(event) => (event, 0_i64),
        EntryId::RoomEvent(event) => (event, 1),
    };
    let name = [person, ("event", event.as_str().into()), ("of_room", of_room.into())];
    read_found(tx.row(&store::ENTRY_OF_EVENT, &name).await?)
}

fn read_found(row: Option<Row>) -> Result<FoundEntry> {
    row.map(|row| Ok((row.count(0)?, row.maybe_count(1)?))).transpose()
}

type FoundEntry = Option<(u64, Option<Millis>)>;

/// Locks the person's row and returns the unread count and its version.
async fn lock_person(person: &Id, tx: &mut Transaction<'_>) -> Result<(u64, u64)> {
    let row = tx.row(&store::PERSON_LOCK, &[("person", person.into())]).await?;
    row.map_or(Ok((0, 0)), |row| Ok((row.count(1)?, row.count(2)?)))
}

/// Subtracts entries that were read from the person's unread count and returns by how much the version grew. The
/// version grows by one per entry, and by at least one: a buffered mark on each entry may already have been sent to
/// devices as one version.
pub(crate) async fn subtract_read(person: &Id, read: usize, tx: &mut Transaction<'_>) -> Result<u64> {
    let versions = read.max(1);
    let arguments = [("person", person.into()), ("read", read.into()), ("versions", versions.into())];
    tx.run(&store::PERSON_CHANGE, &arguments).await?;
    Ok(versions as u64)
}

/// The read mark of the entry, and the change if the entry was unread. None when the person has no such entry.
type MarkOutcome = Option<(ReadMark, Option<InboxChange>)>;

async fn mark(request: &EntryRequest, tx: &mut Transaction<'_>) -> Result<MarkOutcome> {
    let (unread, version) = lock_person(&request.person, tx).await?;
    let Some((seq, read_at)) = find(request, tx).await? else { return Ok(None) };
    if let Some(read_at) = read_at {
        return Ok(Some((ReadMark { seq, read_at }, None)));
    }
    let arguments = [("person", (&request.person).into()), ("seq", seq.into()), ("now", request.now.into())];
    tx.run(&store::ENTRY_READ, &arguments).await?;
    let version = version + subtract_read(&request.person, 1, tx).await?;
    let change = InboxChange { seqs: vec![seq], unread: unread.saturating_sub(1), version };
    Ok(Some((ReadMark { seq, read_at: request.now }, Some(change))))
}

struct MarkAllRequest {
    person: Id,
    last: u64,
    now: Millis,
}

/// Marks up to [`BATCH_SIZE`] entries; the bool says whether more may be left.
async fn mark_batch(all: &MarkAllRequest, tx: &mut Transaction<'_>) -> Result<(InboxChange, bool)> {
    let (unread, version) = lock_person(&all.person, tx).await?;
    let arguments =
        [("person", (&all.person).into()), ("last", all.last.into()), ("limit", BATCH_SIZE.into())];
    let rows = tx.rows(&store::UNREAD_UP_TO, &arguments).await?;
    let seqs = rows.iter().map(|row| row.count(0)).collect::<Result<Vec<_>, _>>()?;
    if seqs.is_empty() {
        return Ok((InboxChange { seqs, unread, version }, false));
    }
    let listed = numbers(seqs.iter())?;
    let arguments = [("person", (&all.person).into()), ("now", all.now.into()), ("seqs", listed.into())];
    tx.run(&store::ENTRIES_READ, &arguments).await?;
    let version = version + subtract_read(&all.person, seqs.len(), tx).await?;
    let (has_more, unread) = (seqs.len() == BATCH_SIZE, unread.saturating_sub(seqs.len() as u64));
    Ok((InboxChange { seqs, unread, version }, has_more))
}

async fn delete(request: &EntryRequest, tx: &mut Transaction<'_>) -> Result<Option<InboxChange>> {
    let (unread, version) = lock_person(&request.person, tx).await?;
    let Some((seq, read_at)) = find(request, tx).await? else { return Ok(None) };
    let arguments = [("person", (&request.person).into()), ("seq", seq.into()), ("now", request.now.into())];
    tx.run(&store::ENTRY_DELETE, &arguments).await?;
    let counted = usize::from(read_at.is_none());
    let version = version + subtract_read(&request.person, counted, tx).await?;
    let unread = unread.saturating_sub(counted as u64);
    Ok(Some(InboxChange { seqs: vec![seq], unread, version }))
}
