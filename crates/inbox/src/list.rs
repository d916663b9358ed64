//! Looking: the list of a person's entries, their count, and what a stream begins with.

use bongsu_kernel::Id;
use bongsu_sql::{Boxed, Error, Transaction};

use crate::store;
use crate::{Entry, Inbox};

/// A page of the list has so many at most.
pub const MOST_LISTED: usize = 100;

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
        self.records().read(wanted, list).await
    }

    /// Where a person's inbox stands; nothing when they were never told of anything.
    pub async fn standing(&self, person: &Id) -> Result<Option<Standing>, Error> {
        self.records().read(person.clone(), standing).await
    }
}

fn list<'t>(wanted: &'t Wanted, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<Listed, Error>> {
    Box::pin(async move {
        let query = if wanted.unread { &store::LIST_UNREAD } else { &store::LIST };
        let arguments = [
            ("person", (&wanted.person).into()),
            ("before", wanted.before.unwrap_or(u64::MAX).into()),
            // One more than asked for tells whether there are more.
            ("limit", (wanted.limit + 1).into()),
        ];
        let rows = tx.rows(query, &arguments).await?;
        let more = rows.len() > wanted.limit;
        let entries = rows.iter().take(wanted.limit).map(Entry::read).collect::<Result<_, _>>()?;
        let standing = standing(&wanted.person, tx).await?.unwrap_or_default();
        Ok(Listed { entries, more, standing })
    })
}

pub(crate) fn standing<'t>(
    person: &'t Id,
    tx: &'t mut Transaction<'_>,
) -> Boxed<'t, Result<Option<Standing>, Error>> {
    Box::pin(async move {
        let row = tx.row(&store::PERSON, &[("person", person.into())]).await?;
        row.map(|row| Ok(Standing { last_seq: row.count(0)?, unread: row.count(1)?, version: row.count(2)? }))
            .transpose()
    })
}
