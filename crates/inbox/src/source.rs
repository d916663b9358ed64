//! The source of personal streams: a person's inbox entries as the history of the subject `member:<id>`.
//!
//! The position of an entry is its sequence number. A stream with a position begins with the entries after it, at most
//! 100; a stream without one begins with the newest unread entries.

use std::collections::HashMap;

use bongsu_kernel::{Id, StreamId};
use bongsu_live::log::{BoxFuture, LogError, LogFuture, ReadLimits};
use bongsu_live::{Item, LogPosition, MessageId, Page, Source, StartPosition, SubjectName};
use bongsu_sql::{Records, Result, Transaction};

use crate::entry_message::{EntryMessage, LocalizedNotification, log_position};
use crate::list::unread_state_with_marks;
use crate::marks::{Marks, MarksError, numbers};
use crate::settings::settings;
use crate::{Inbox, InboxEntry, Templates, UnreadState, store};

/// Entries that a resumed stream reads. A stream that missed more then receives `system.reset`.
const MAX_REPLAYED_ENTRIES: usize = 100;
/// Entries with which a stream without a position begins.
const MAX_INITIAL_ENTRIES: usize = 10;
/// Unread entries that are read to find the initial ones, because the person may have muted some.
const INITIAL_SCAN_SIZE: usize = 200;

/// The subject kind of personal streams.
pub const SUBJECT_KIND: &str = "member";

pub fn subject(person: &Id) -> SubjectName {
    SubjectName::new(SUBJECT_KIND, person)
}

/// The [`Source`] of personal streams.
pub struct InboxSource(pub Inbox);

impl InboxSource {
    fn records(&self) -> &Records {
        &self.0.0.records
    }

    async fn page<F>(&self, person: &Id, read: impl Fn(Marks) -> F) -> Result<Page<Item>, LogError>
    where
        F: Future<Output = Result<StreamPage>>,
    {
        // Without the marks the page waits until Redis is back, because its unread count would be wrong.
        let page = self.0.read_with_marks(person, read).await.map_err(|error| match error {
            MarksError::Buffer(outage) => LogError::Unavailable(outage.0),
            MarksError::Records(error) => LogError::from_records(&error),
        })?;
        Ok(page.localized(self.0.templates()))
    }
}

impl Source for InboxSource {
    fn read(&self, subject: &SubjectName, after: StreamId, _: ReadLimits) -> LogFuture<'_, Page<Item>> {
        let person = Id::new(subject.parts().1);
        Box::pin(async move {
            let person =
                person.map_err(|_| LogError::Failed("the subject has no valid person id".to_owned()))?;
            let read = |marks| self.records().read((person.clone(), marks, after.ms), read_after);
            self.page(&person, read).await
        })
    }

    fn heads<'a>(&'a self, subjects: &'a [SubjectName]) -> BoxFuture<'a, Vec<Result<LogPosition, LogError>>> {
        Box::pin(async move {
            let people: Vec<Id> = subjects.iter().filter_map(|name| Id::new(name.parts().1).ok()).collect();
            let last_seqs = self
                .records()
                .read(people, read_last_seqs)
                .await
                .map_err(|error| LogError::from_records(&error));
            let head_of = |name: &SubjectName| {
                let last_seqs = last_seqs.as_ref().map_err(Clone::clone)?;
                Ok(head(last_seqs.get(name.parts().1).copied().unwrap_or(0)))
            };
            subjects.iter().map(head_of).collect()
        })
    }

    fn initial_page(&self, subject: &SubjectName) -> Option<LogFuture<'_, Page<Item>>> {
        let person = Id::new(subject.parts().1).ok()?;
        Some(Box::pin(async move {
            let read = |marks| self.records().read((person.clone(), marks), read_newest_unread);
            self.page(&person, read).await
        }))
    }

    fn message_id(&self, position: StreamId) -> MessageId {
        MessageId::Number(position.ms.cast_signed())
    }
}

/// Entries of a person, and the unread state at the time when they were read.
struct StreamPage {
    start: StartPosition,
    entries: Vec<InboxEntry>,
    state: UnreadState,
}

impl StreamPage {
    fn localized(self, templates: &Templates) -> Page<Item> {
        let UnreadState { unread, version, last_seq, .. } = self.state;
        let item = |InboxEntry { seq, notification, created_at, .. }: InboxEntry| {
            let localized = LocalizedNotification::new(&notification, created_at, templates);
            EntryMessage { seq, unread: Some(unread), version: Some(version), localized }.into_item()
        };
        let entries = self.entries.into_iter().map(item).collect();
        Page { start: self.start, entries, more: false, head: head(last_seq) }
    }
}

/// The head of a personal stream, whose last entry has the sequence number `last_seq`; 0 without entries.
fn head(last_seq: u64) -> LogPosition {
    if last_seq == 0 { LogPosition { number: None, ..LogPosition::START } } else { log_position(last_seq) }
}

async fn read_after(
    (person, marks, after): &(Id, Marks, u64),
    tx: &mut Transaction<'_>,
) -> Result<StreamPage> {
    let state = unread_state_with_marks(person, marks, tx).await?;
    let last = state.last_seq;
    if *after > last {
        return Ok(StreamPage { start: StartPosition::Unknown, entries: Vec::new(), state });
    }
    // One entry beyond the limit shows whether more entries exist.
    let limit = MAX_REPLAYED_ENTRIES + 1;
    let arguments = [("person", person.into()), ("after", (*after).into()), ("limit", limit.into())];
    let rows = tx.rows(&store::ENTRIES_AFTER, &arguments).await?;
    let entries = rows.iter().map(InboxEntry::read).collect::<Result<Vec<_>, _>>()?;
    // Sequence numbers have no gaps except those made by retention.
    let first =
        tx.row(&store::FIRST_SEQ_AFTER, &[("person", person.into()), ("after", (*after).into())]).await?;
    let first = first.map(|row| row.maybe_count(0)).transpose()?.flatten();
    let has_gap = *after != last && first.is_none_or(|first| first != after + 1);
    let start = if has_gap || entries.len() > MAX_REPLAYED_ENTRIES {
        StartPosition::TooFarBehind
    } else {
        StartPosition::Known
    };
    let settings = settings(person, tx).await?;
    let replayed = entries.into_iter().take(MAX_REPLAYED_ENTRIES);
    let entries = replayed.filter(|entry| settings.allows(&entry.notification.kind)).collect();
    Ok(StreamPage { start, entries, state })
}

async fn read_newest_unread((person, marks): &(Id, Marks), tx: &mut Transaction<'_>) -> Result<StreamPage> {
    let state = unread_state_with_marks(person, marks, tx).await?;
    let settings = settings(person, tx).await?;
    let arguments = [
        ("person", person.into()),
        ("limit", INITIAL_SCAN_SIZE.into()),
        ("seqs", numbers(marks.keys())?.into()),
    ];
    let rows = tx.rows(&store::NEWEST_UNREAD, &arguments).await?;
    let mut entries = rows.iter().map(InboxEntry::read).collect::<Result<Vec<_>, _>>()?;
    entries.retain(|entry| settings.allows(&entry.notification.kind));
    entries.truncate(MAX_INITIAL_ENTRIES);
    entries.reverse();
    Ok(StreamPage { start: StartPosition::Known, entries, state })
}

/// The last sequence number of each person who has a row.
async fn read_last_seqs(people: &Vec<Id>, tx: &mut Transaction<'_>) -> Result<HashMap<String, u64>> {
    let rows = tx.rows(&store::PEOPLE, &[("people", store::list(people).into())]).await?;
    rows.iter().map(|row| Ok((row.id(0)?.as_str().to_owned(), row.count(1)?))).collect()
}
