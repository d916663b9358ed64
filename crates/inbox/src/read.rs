//! Reading marks: one entry, all of them, or one taken away. The count changes with the rows, once, and whoever is
//! connected hears the new one.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Error, Row, Transaction};

use crate::cache::Known;
use crate::marks::{Buffer, numbers};
use crate::store;
use crate::{EventId, Inbox, Standing};

/// So many entries are marked in one transaction, so that no other change of the person's waits for long.
const AT_ONCE: usize = 500;

/// What an entry is named by: its number in the person's inbox, or the event that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryId {
    Seq(u64),
    /// An id that a service gave.
    Event(EventId),
    RoomEvent(EventId),
}

impl EntryId {
    /// A name that is a plain number is always taken for the entry's own.
    pub fn of(given: EventId) -> Self {
        match canonical(given.as_str()) {
            Some(seq) => Self::Seq(seq),
            None if given.of_room().is_some() => Self::RoomEvent(given),
            None => Self::Event(given),
        }
    }

    /// What else the name may stand for, where a person has no such entry: services may give ids that look like a room's.
    fn otherwise(&self) -> Option<Self> {
        match self {
            Self::RoomEvent(event) => Some(Self::Event(event.clone())),
            Self::Seq(_) | Self::Event(_) => None,
        }
    }
}

/// A number as it is written by ourselves, and not larger than records can have one.
pub(crate) fn canonical(text: &str) -> Option<u64> {
    let number = text.parse::<u64>().ok()?;
    (i64::try_from(number).is_ok() && number.to_string() == text).then_some(number)
}

/// What changed in a person's inbox, for their other devices. The count is the whole one, and the version says which of
/// two is newer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub seqs: Vec<u64>,
    pub unread: u64,
    pub version: u64,
}

/// An entry that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub seq: u64,
    pub read_at: Millis,
}

#[derive(Clone)]
struct Marking {
    person: Id,
    entry: EntryId,
    now: Millis,
}

impl Inbox {
    /// Marks an entry as read; nothing when the person has no such entry. Reading it again changes nothing. An event of a
    /// room may be marked by who saw it there, before its entry was derived.
    pub async fn mark_read(&self, person: &Id, entry: EntryId) -> Result<Option<Read>, Error> {
        let marking = Marking { person: person.clone(), entry, now: self.0.clock.now() };
        let mut read = self.try_mark(&marking).await?;
        if read.is_none() && self.derive_early(person, &marking.entry).await? {
            read = self.try_mark(&marking).await?;
        }
        match (read, marking.entry.otherwise()) {
            (None, Some(entry)) => self.try_mark(&Marking { entry, ..marking }).await,
            (read, _) => Ok(read),
        }
    }

    async fn try_mark(&self, marking: &Marking) -> Result<Option<Read>, Error> {
        if let Some(buffer) = self.buffer()
            && let Some(outcome) = self.take_down(buffer, marking).await
        {
            return outcome;
        }
        let Some((read, changed)) = self.0.records.write(marking.clone(), mark).await? else {
            return Ok(None);
        };
        self.tell_changed(&marking.person, changed).await;
        Ok(Some(read))
    }

    /// Takes a mark down, to be written later. Nothing when that cannot be done, and it has to be written at once.
    async fn take_down(&self, buffer: &dyn Buffer, marking: &Marking) -> Option<Result<Option<Read>, Error>> {
        let (person, now) = (&marking.person, marking.now);
        let seq = match self.0.records.read(marking.clone(), find).await {
            Ok(None) => return Some(Ok(None)),
            Ok(Some((seq, Some(read_at)))) => return Some(Ok(Some(Read { seq, read_at }))),
            Ok(Some((seq, None))) => seq,
            // Whether it was read before cannot be found out now; then it is left out when it is written. What may not be
            // there yet is not taken: it would be read before it came.
            Err(error) if error.may_pass() => match (&marking.entry, self.remembered(person).await) {
                (EntryId::Seq(seq), Some(Standing { last_seq, .. })) if *seq <= last_seq => *seq,
                _ => return Some(Err(error)),
            },
            Err(error) => return Some(Err(error)),
        };
        let before = buffer.put(person, seq, now).await.ok()?;
        if before.is_none() {
            self.tell_marked(person, seq).await;
        }
        Some(Ok(Some(Read { seq, read_at: before.unwrap_or(now) })))
    }

    async fn tell_marked(&self, person: &Id, seq: u64) {
        match (self.known(person).await, self.cache()) {
            (Ok(Known::Now(Standing { unread, version, .. })), _) => {
                self.0.live.changed(person, &Changed { seqs: vec![seq], unread, version });
            }
            // It is not in there yet. What devices are told has to be certain, and waits for the records.
            (Ok(Known::Then(_)), Some(cache)) => {
                let _ = cache.one_read(person).await;
                self.0.untold.put(person, seq);
            }
            _ => self.0.untold.put(person, seq),
        }
    }

    /// Tells what could not be told while the records were away.
    pub(crate) async fn tell_untold(&self) {
        while let Some((person, seqs)) = self.0.untold.take() {
            let Ok(Known::Now(Standing { unread, version, .. })) = self.known(&person).await else {
                return self.0.untold.put_back(person, seqs);
            };
            self.0.live.changed(&person, &Changed { seqs, unread, version });
        }
    }

    /// Marks all that is there now. Gives the count that is left, which newer entries may have raised.
    pub async fn mark_all_read(&self, person: &Id) -> Result<u64, Error> {
        // First what was read before, so that versions only grow.
        self.settle(person).await?;
        let last = self.standing(person).await?.last_seq;
        loop {
            let marking = MarkingAll { person: person.clone(), last, now: self.0.clock.now() };
            let (changed, more) = self.0.records.write(marking, mark_some).await?;
            let unread = changed.unread;
            self.tell_changed(person, Some(changed).filter(|changed| !changed.seqs.is_empty())).await;
            if !more {
                return Ok(unread);
            }
        }
    }

    /// Takes an entry away; false when the person has no such entry. An event of a room as with [`Inbox::mark_read`].
    pub async fn delete(&self, person: &Id, entry: EntryId) -> Result<bool, Error> {
        self.settle(person).await?;
        let marking = Marking { person: person.clone(), entry, now: self.0.clock.now() };
        let mut is_gone = self.try_delete(&marking).await?;
        if !is_gone && self.derive_early(person, &marking.entry).await? {
            is_gone = self.try_delete(&marking).await?;
        }
        match (is_gone, marking.entry.otherwise()) {
            (false, Some(entry)) => self.try_delete(&Marking { entry, ..marking }).await,
            (is_gone, _) => Ok(is_gone),
        }
    }

    async fn try_delete(&self, marking: &Marking) -> Result<bool, Error> {
        let Some(changed) = self.0.records.write(marking.clone(), delete).await? else { return Ok(false) };
        self.tell_changed(&marking.person, Some(changed)).await;
        Ok(true)
    }

    /// Tells a person's devices of a change that is durable.
    async fn tell_changed(&self, person: &Id, changed: Option<Changed>) {
        let Some(mut changed) = changed else { return };
        if self.buffer().is_some() {
            // The row does not count the marks that wait. One that cannot be told now is made up for by the next.
            let Ok(Known::Now(Standing { unread, version, .. })) = self.known(person).await else { return };
            changed = Changed { unread, version, ..changed };
        }
        self.0.live.changed(person, &changed);
    }
}

/// The entry's number, and since when it is read.
async fn find(marking: &Marking, tx: &mut Transaction<'_>) -> Result<Found, Error> {
    let person = ("person", (&marking.person).into());
    let (event, of_room) = match &marking.entry {
        EntryId::Seq(seq) => {
            let row = tx.row(&store::ENTRY, &[person, ("seq", (*seq).into())]).await?;
            return found(row);
        }
        EntryId::Event(event) => (event, 0_i64),
        EntryId::RoomEvent(event) => (event, 1),
    };
    let name = [person, ("event", event.as_str().into()), ("of_room", of_room.into())];
    found(tx.row(&store::ENTRY_OF_EVENT, &name).await?)
}

fn found(row: Option<Row>) -> Result<Found, Error> {
    row.map(|row| Ok((row.count(0)?, row.maybe_count(1)?))).transpose()
}

type Found = Option<(u64, Option<Millis>)>;

/// Holds the person's row and gives their count and version.
async fn hold(person: &Id, tx: &mut Transaction<'_>) -> Result<(u64, u64), Error> {
    let row = tx.row(&store::PERSON_HOLD, &[("person", person.into())]).await?;
    row.map_or(Ok((0, 0)), |row| Ok((row.count(1)?, row.count(2)?)))
}

/// Counts what was read. The version grows by as many changes as may have been told of it: every mark that waits is one.
/// Gives by how many.
pub(crate) async fn change(person: &Id, read: usize, tx: &mut Transaction<'_>) -> Result<u64, Error> {
    let told = read.max(1);
    let arguments = [("person", person.into()), ("read", read.into()), ("told", told.into())];
    tx.run(&store::PERSON_CHANGE, &arguments).await?;
    Ok(told as u64)
}

type Marked = Option<(Read, Option<Changed>)>;

async fn mark(marking: &Marking, tx: &mut Transaction<'_>) -> Result<Marked, Error> {
    let (unread, version) = hold(&marking.person, tx).await?;
    let Some((seq, read_at)) = find(marking, tx).await? else { return Ok(None) };
    if let Some(read_at) = read_at {
        return Ok(Some((Read { seq, read_at }, None)));
    }
    let arguments = [("person", (&marking.person).into()), ("seq", seq.into()), ("now", marking.now.into())];
    tx.run(&store::ENTRY_READ, &arguments).await?;
    let version = version + change(&marking.person, 1, tx).await?;
    let changed = Changed { seqs: vec![seq], unread: unread.saturating_sub(1), version };
    Ok(Some((Read { seq, read_at: marking.now }, Some(changed))))
}

struct MarkingAll {
    person: Id,
    last: u64,
    now: Millis,
}

async fn mark_some(all: &MarkingAll, tx: &mut Transaction<'_>) -> Result<(Changed, bool), Error> {
    let (unread, version) = hold(&all.person, tx).await?;
    let arguments = [("person", (&all.person).into()), ("last", all.last.into()), ("limit", AT_ONCE.into())];
    let rows = tx.rows(&store::UNREAD_UP_TO, &arguments).await?;
    let seqs = rows.iter().map(|row| row.count(0)).collect::<Result<Vec<_>, _>>()?;
    if seqs.is_empty() {
        return Ok((Changed { seqs, unread, version }, false));
    }
    let listed = numbers(seqs.iter())?;
    let arguments = [("person", (&all.person).into()), ("now", all.now.into()), ("seqs", listed.into())];
    tx.run(&store::ENTRIES_READ, &arguments).await?;
    let version = version + change(&all.person, seqs.len(), tx).await?;
    let (more, unread) = (seqs.len() == AT_ONCE, unread.saturating_sub(seqs.len() as u64));
    Ok((Changed { seqs, unread, version }, more))
}

async fn delete(marking: &Marking, tx: &mut Transaction<'_>) -> Result<Option<Changed>, Error> {
    let (unread, version) = hold(&marking.person, tx).await?;
    let Some((seq, read_at)) = find(marking, tx).await? else { return Ok(None) };
    let arguments = [("person", (&marking.person).into()), ("seq", seq.into()), ("now", marking.now.into())];
    tx.run(&store::ENTRY_DELETE, &arguments).await?;
    let counted = usize::from(read_at.is_none());
    let version = version + change(&marking.person, counted, tx).await?;
    let unread = unread.saturating_sub(counted as u64);
    Ok(Some(Changed { seqs: vec![seq], unread, version }))
}
