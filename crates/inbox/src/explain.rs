//! Reports on one notification: when it was accepted, how many persons have an entry, and the state of one person's
//! entry.
//!
//! The report reads the records only, so that an operator can run it while the hub is stopped. Which streams received
//! an entry is not recorded.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Error, Records, Result, Row, Transaction};
use serde::Serialize;

use crate::marks::Marks;
use crate::settings::{MuteReason, settings};
use crate::{EventId, Notification, store};

/// The notification to report on, and optionally one of its recipients.
#[derive(Clone, Debug)]
pub struct ExplainQuery {
    pub event: EventId,
    pub person: Option<Id>,
    /// The person's buffered read marks. The caller reads them before the records, because a mark that is
    /// written meanwhile is then found in the records.
    pub marks: Marks,
}

/// The answer to an [`ExplainQuery`].
#[derive(Clone, Debug)]
pub struct Explanation {
    pub notification: Notification,
    pub accepted_at: Millis,
    pub counts: EntryCounts,
    /// None when the query names no person.
    pub person: Option<RecipientReport>,
}

/// How many persons have an entry of the notification, and in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EntryCounts {
    pub people: u64,
    pub unread: u64,
    pub read: u64,
    pub deleted: u64,
}

/// The state of the notification for one person.
#[derive(Clone, Debug)]
pub struct RecipientReport {
    /// None when the person was not notified, or the entry was removed by retention.
    pub entry: Option<EntryState>,
    /// Why the person's current settings mute this notification; None when they do not.
    pub mute_reason: Option<MuteReason>,
}

/// One person's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryState {
    pub seq: u64,
    pub created_at: Millis,
    pub read_at: Option<Millis>,
    /// The entry was read, and the read mark is not written to the records yet.
    pub is_mark_pending: bool,
    pub deleted_at: Option<Millis>,
}

/// Reports on a notification. None when no notification with this event id is stored.
pub async fn explain(records: &Records, query: ExplainQuery) -> Result<Option<Explanation>> {
    records.read(query, read_explanation).await
}

async fn read_explanation(query: &ExplainQuery, tx: &mut Transaction<'_>) -> Result<Option<Explanation>> {
    let row = tx.row(&store::NOTICE, &[("event", query.event.as_str().into())]).await?;
    let Some(row) = row else { return Ok(None) };
    let (id, notification) = (row.int(0)?, Notification::read(&row, 1)?);
    let counts = tx.row(&store::NOTICE_COUNTS, &[("notice", id.into())]).await?;
    let counts = counts.ok_or_else(|| Error::Failed("counting the entries returned no row".to_owned()))?;
    let counts = EntryCounts {
        people: counts.count(0)?,
        unread: counts.count(1)?,
        read: counts.count(2)?,
        deleted: counts.count(3)?,
    };
    let person = match &query.person {
        None => None,
        Some(person) => {
            let arguments = [("notice", id.into()), ("person", person.into())];
            let entry = tx.row(&store::NOTICE_ENTRY, &arguments).await?;
            let entry = entry.map(|row| EntryState::read(&row, &query.marks)).transpose()?;
            let mute_reason = settings(person, tx).await?.mute_reason(&notification.kind);
            Some(RecipientReport { entry, mute_reason })
        }
    };
    Ok(Some(Explanation { notification, accepted_at: row.count(6)?, counts, person }))
}

impl EntryState {
    fn read(row: &Row, marks: &Marks) -> Result<Self> {
        let (seq, written) = (row.count(0)?, row.maybe_count(2)?);
        let mark = marks.get(&seq).copied().filter(|_| written.is_none());
        Ok(Self {
            seq,
            created_at: row.count(1)?,
            read_at: written.or(mark),
            is_mark_pending: mark.is_some(),
            deleted_at: row.maybe_count(3)?,
        })
    }
}
