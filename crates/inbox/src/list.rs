//! Reads a person's entries and unread state from the records, with buffered read marks applied.

use bongsu_kernel::Id;
use bongsu_sql::{Result, Transaction};

use crate::cache::StateReading;
use crate::marks::{Marks, MarksError, effective_marks, numbers};
use crate::store;
use crate::{Inbox, InboxEntry};

/// Maximum number of reads of the records, if the buffered marks change during each of them.
const MAX_ATTEMPTS: u32 = 5;
/// Approximate bytes of payloads in one page; entries beyond it are left for the next page.
const MAX_PAGE_BYTES: usize = 256 << 10;

/// A person's last sequence number, unread count and the version of the count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreadState {
    pub last_seq: u64,
    pub unread: u64,
    pub version: u64,
}

/// A page of a person's entries, newest first.
#[derive(Clone, Debug)]
pub struct EntryPage {
    pub entries: Vec<InboxEntry>,
    /// Whether there are older entries.
    pub has_more: bool,
    pub state: UnreadState,
}

/// Which entries of a person to list.
#[derive(Clone, Debug)]
pub struct ListFilter {
    pub person: Id,
    /// Only entries with a lower sequence number.
    pub before: Option<u64>,
    pub limit: usize,
    pub is_unread_only: bool,
}

impl Inbox {
    pub async fn list(&self, filter: ListFilter) -> Result<EntryPage> {
        // The marks are read before the records: see `marks`.
        let (person, marks) = (filter.person.clone(), self.pending_marks(&filter.person).await);
        let page: EntryPage = self.0.records.read((filter, marks), list).await?;
        if let Some(cache) = self.cache() {
            cache.store_later(&person, page.state);
        }
        Ok(page)
    }

    /// The person's unread state. While the records are unavailable, the state that was cached last; while the buffered
    /// marks are, the state without them.
    pub async fn unread_state(&self, person: &Id) -> Result<UnreadState> {
        let (StateReading::Current(state) | StateReading::WithoutMarks(state) | StateReading::Cached(state)) =
            self.read_state(person).await?;
        Ok(state)
    }

    /// The unread state from the records, with the buffered marks applied if they can be read.
    pub(crate) async fn recorded_state(&self, person: &Id) -> Result<StateReading> {
        let read = |marks| self.0.records.read((person.clone(), marks), read_unread_state);
        match self.read_with_marks(person, read).await {
            Ok(state) => Ok(StateReading::Current(state)),
            Err(MarksError::Buffer(_)) => read(Marks::new()).await.map(StateReading::WithoutMarks),
            Err(MarksError::Records(error)) => Err(error),
        }
    }

    /// Reads the records together with a person's buffered marks, both as of one moment: otherwise two
    /// different counts could have the same version. While the marks change during a read, the records are
    /// read again, up to [`MAX_ATTEMPTS`] times in all.
    pub(crate) async fn read_with_marks<T, F>(
        &self,
        person: &Id,
        read: impl Fn(Marks) -> F,
    ) -> Result<T, MarksError>
    where
        F: Future<Output = Result<T>>,
    {
        let mut marks = self.try_pending_marks(person).await?;
        let mut attempts = 0;
        loop {
            let found = read(marks.clone()).await?;
            let marks_after = self.try_pending_marks(person).await?;
            attempts += 1;
            if marks_after == marks || attempts == MAX_ATTEMPTS {
                return Ok(found);
            }
            marks = marks_after;
        }
    }
}

async fn list((filter, marks): &(ListFilter, Marks), tx: &mut Transaction<'_>) -> Result<EntryPage> {
    let query = if filter.is_unread_only { &store::LIST_UNREAD } else { &store::LIST };
    let arguments = [
        ("person", (&filter.person).into()),
        ("before", filter.before.unwrap_or(u64::MAX).into()),
        // One entry beyond the limit shows whether more entries exist.
        ("limit", (filter.limit + 1).into()),
        ("bytes", MAX_PAGE_BYTES.into()),
        ("seqs", numbers(marks.keys())?.into()),
    ];
    let rows = tx.rows(query, &arguments).await?;
    let mut entries = rows.iter().map(InboxEntry::read).collect::<Result<Vec<_>, _>>()?;
    let mut bytes = 0;
    let fitting = entries.iter().take(filter.limit).take_while(|entry| {
        bytes += entry.notification.payload.as_str().len();
        bytes <= MAX_PAGE_BYTES
    });
    let count = fitting.count().max(1);
    let has_more = entries.len() > count;
    entries.truncate(count);
    for entry in &mut entries {
        // The earlier time, as the mark will be written.
        entry.read_at = entry.read_at.into_iter().chain(marks.get(&entry.seq).copied()).min();
    }
    let state = unread_state_with_marks(&filter.person, marks, tx).await?;
    Ok(EntryPage { entries, has_more, state })
}

async fn read_unread_state((person, marks): &(Id, Marks), tx: &mut Transaction<'_>) -> Result<UnreadState> {
    unread_state_with_marks(person, marks, tx).await
}

/// The unread state with buffered marks applied. Each mark on an unread entry adds one to the version, as the write of
/// the mark will.
pub(crate) async fn unread_state_with_marks(
    person: &Id,
    marks: &Marks,
    tx: &mut Transaction<'_>,
) -> Result<UnreadState> {
    let row = tx.row(&store::PERSON, &[("person", person.into())]).await?;
    let (last_seq, unread, version) = match row {
        Some(row) => (row.count(0)?, row.count(1)?, row.count(2)?),
        None => (0, 0, 0),
    };
    let read = effective_marks(person, marks, tx).await?.len() as u64;
    Ok(UnreadState { last_seq, unread: unread.saturating_sub(read), version: version + read })
}
