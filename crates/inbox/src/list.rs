//! Looking: the list of a person's entries, their count, and what a stream begins with.

use bongsu_kernel::Id;
use bongsu_sql::{Error, Transaction};

use crate::cache::Known;
use crate::marks::{Marks, effective, numbers};
use crate::store;
use crate::{Entry, Inbox};

/// While marks come in all the time, their number and the row are looked at together so often.
const TRIES: u32 = 5;
/// Bytes of payloads in one list, about: older entries are left for the next one.
const LIST_BYTES: usize = 256 << 10;

/// Where a person's inbox stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub last_seq: u64,
    pub unread: u64,
    pub version: u64,
}

/// A part of the list, newest first.
#[derive(Clone, Debug)]
pub struct Listed {
    pub entries: Vec<Entry>,
    /// Whether there are older ones.
    pub more: bool,
    pub standing: Standing,
}

/// What to list: entries before a number, all or those that are unread.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub person: Id,
    pub before: Option<u64>,
    pub limit: usize,
    pub unread: bool,
}

impl Inbox {
    pub async fn list(&self, wanted: Wanted) -> Result<Listed, Error> {
        // Before the records: see `marks`.
        let (person, marks) = (wanted.person.clone(), self.marks(&wanted.person).await);
        let listed: Listed = self.0.records.read((wanted, marks), list).await?;
        if let Some(cache) = self.cache() {
            cache.remember(&person, listed.standing);
        }
        Ok(listed)
    }

    /// Where a person's inbox stands. While the records are away, where it stood when somebody looked last.
    pub async fn standing(&self, person: &Id) -> Result<Standing, Error> {
        let (Known::Now(standing) | Known::Then(standing)) = self.known(person).await?;
        Ok(standing)
    }

    /// By the records, and what waits to be written there.
    pub(crate) async fn recorded(&self, person: &Id) -> Result<Standing, Error> {
        let read = |marks| self.0.records.read((person.clone(), marks), standing);
        self.read_with_marks(person, read).await
    }

    /// Reads the records and a person's pending marks, both as they were at one moment: otherwise two different counts
    /// could have one version.
    pub(crate) async fn read_with_marks<T, F>(
        &self,
        person: &Id,
        read: impl Fn(Marks) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut marks = self.marks(person).await;
        let mut tries = 0;
        loop {
            let found = read(marks.clone()).await?;
            let after = self.marks(person).await;
            tries += 1;
            if after == marks || tries == TRIES {
                return Ok(found);
            }
            marks = after;
        }
    }
}

async fn list(given: &(Wanted, Marks), tx: &mut Transaction<'_>) -> Result<Listed, Error> {
    let (wanted, marks) = given;
    let query = if wanted.unread { &store::LIST_UNREAD } else { &store::LIST };
    let arguments = [
        ("person", (&wanted.person).into()),
        ("before", wanted.before.unwrap_or(u64::MAX).into()),
        // One more than asked for tells whether there are more.
        ("limit", (wanted.limit + 1).into()),
        ("bytes", LIST_BYTES.into()),
        ("seqs", numbers(marks.keys())?.into()),
    ];
    let rows = tx.rows(query, &arguments).await?;
    let mut entries = rows.iter().map(Entry::read).collect::<Result<Vec<_>, _>>()?;
    let mut bytes = 0;
    let listed = entries.iter().take(wanted.limit).take_while(|entry| {
        bytes += entry.notice.payload.as_str().len();
        bytes <= LIST_BYTES
    });
    let listed = listed.count().max(1);
    let more = entries.len() > listed;
    entries.truncate(listed);
    for entry in &mut entries {
        entry.read_at = entry.read_at.or_else(|| marks.get(&entry.seq).copied());
    }
    let standing = overlaid(&wanted.person, marks, tx).await?;
    Ok(Listed { entries, more, standing })
}

async fn standing((person, marks): &(Id, Marks), tx: &mut Transaction<'_>) -> Result<Standing, Error> {
    overlaid(person, marks, tx).await
}

/// With the marks that are not written yet: each counts as a change of its own, as it will when it is.
pub(crate) async fn overlaid(
    person: &Id,
    marks: &Marks,
    tx: &mut Transaction<'_>,
) -> Result<Standing, Error> {
    let row = tx.row(&store::PERSON, &[("person", person.into())]).await?;
    let (last_seq, unread, version) = match row {
        Some(row) => (row.count(0)?, row.count(1)?, row.count(2)?),
        None => (0, 0, 0),
    };
    let read = effective(person, marks, tx).await?.len() as u64;
    Ok(Standing { last_seq, unread: unread.saturating_sub(read), version: version + read })
}
