//! What became of something that people are told of: when it was accepted, how many have it, and what one person did with it.
//!
//! Needs the records and nothing else, so that an operator can ask while the hub runs and while it does not. Who was connected
//! is not written down anywhere.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Error, Records, Row, Transaction};
use serde::Serialize;

use crate::marks::Marks;
use crate::settings::{Silence, settings};
use crate::{EventId, Notice, store};

/// What to explain.
#[derive(Clone, Debug)]
pub struct Question {
    pub event: EventId,
    pub person: Option<Id>,
    /// Those of the person that are not written yet, looked at before: see `marks`.
    pub marks: Marks,
}

#[derive(Clone, Debug)]
pub struct Explained {
    pub notice: Notice,
    pub accepted_at: Millis,
    pub spread: Spread,
    /// Of the person that was asked for.
    pub person: Option<OnePerson>,
}

/// How many people have an entry, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub people: u64,
    pub unread: u64,
    pub read: u64,
    pub deleted: u64,
}

#[derive(Clone, Debug)]
pub struct OnePerson {
    /// Nothing when they were not told, or it was forgotten.
    pub held: Option<Held>,
    /// What they have switched off, as their settings are now.
    pub silence: Option<Silence>,
}

/// A person's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub seq: u64,
    pub created_at: Millis,
    pub read_at: Option<Millis>,
    /// It was read, and that is not written to the records yet.
    pub mark_waits: bool,
    pub deleted_at: Option<Millis>,
}

/// Nothing when no such event is known.
pub async fn explain(records: &Records, question: Question) -> Result<Option<Explained>, Error> {
    records.read(question, look).await
}

async fn look(question: &Question, tx: &mut Transaction<'_>) -> Result<Option<Explained>, Error> {
    let found = tx.row(&store::NOTICE, &[("event", question.event.as_str().into())]).await?;
    let Some(found) = found else { return Ok(None) };
    let (number, notice) = (found.int(0)?, Notice::read(&found, 1)?);
    let counted = tx.row(&store::NOTICE_SPREAD, &[("notice", number.into())]).await?;
    let counted = counted.ok_or_else(|| Error::Failed("nothing was counted".to_owned()))?;
    let spread = Spread {
        people: counted.count(0)?,
        unread: counted.count(1)?,
        read: counted.count(2)?,
        deleted: counted.count(3)?,
    };
    let person = match &question.person {
        None => None,
        Some(person) => {
            let arguments = [("notice", number.into()), ("person", person.into())];
            let held = tx.row(&store::NOTICE_ENTRY, &arguments).await?;
            let held = held.map(|row| Held::read(&row, &question.marks)).transpose()?;
            Some(OnePerson { held, silence: settings(person, tx).await?.silence(&notice.kind) })
        }
    };
    Ok(Some(Explained { notice, accepted_at: found.count(6)?, spread, person }))
}

impl Held {
    fn read(row: &Row, marks: &Marks) -> Result<Self, Error> {
        let (seq, written) = (row.count(0)?, row.maybe_count(2)?);
        let mark = marks.get(&seq).copied().filter(|_| written.is_none());
        Ok(Self {
            seq,
            created_at: row.count(1)?,
            read_at: written.or(mark),
            mark_waits: mark.is_some(),
            deleted_at: row.maybe_count(3)?,
        })
    }
}
