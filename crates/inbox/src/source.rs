//! What a personal stream reads: a person's entries as the history of the subject `member:<id>`.
//!
//! A position is a number of the person's, so whatever is asked for is known as long as it was given out. Those who come
//! with a position get what was saved after it, up to a hundred; those who come without, the newest that are unread.

use std::collections::HashMap;

use bongsu_kernel::{Id, StreamId};
use bongsu_live::log::{Boxed, LogError, Most};
use bongsu_live::{Item, MessageId, Page, Place, Source, Start, SubjectName};
use bongsu_sql::{Error, Records, Transaction};

use crate::list::overlaid;
use crate::marks::{Marks, numbers};
use crate::notification::{Notification, WordedNotice, place};
use crate::settings::settings;
use crate::{Entry, Inbox, Standing, Templates, store};

/// So much is replayed to one who comes back; who missed more is told to look at the list.
const REPLAYED: usize = 100;
/// So much is shown to one who comes anew, of so many that are looked at: some may be switched off.
const SHOWN: usize = 10;
const LOOKED_AT: usize = 200;

/// The family of subjects that people are.
pub const FAMILY: &str = "member";

pub fn subject(person: &Id) -> SubjectName {
    SubjectName::new(FAMILY, person)
}

/// See the module.
pub struct InboxSource(pub Inbox);

impl InboxSource {
    fn records(&self) -> &Records {
        &self.0.0.records
    }

    async fn page<F>(&self, person: &Id, read: impl Fn(Marks) -> F) -> Result<Page<Item>, LogError>
    where
        F: Future<Output = Result<EntryPage, Error>>,
    {
        let page = self.0.read_with_marks(person, read).await;
        Ok(page.map_err(|error| LogError::from_records(&error))?.worded(self.0.templates()))
    }
}

impl Source for InboxSource {
    fn read(
        &self,
        subject: &SubjectName,
        after: StreamId,
        _: Most,
    ) -> Boxed<'_, Result<Page<Item>, LogError>> {
        let person = Id::new(subject.parts().1);
        Box::pin(async move {
            let person = person.map_err(|_| LogError::Failed("no person".to_owned()))?;
            let read = |marks| self.records().read((person.clone(), marks, after.ms), after_position);
            self.page(&person, read).await
        })
    }

    fn heads<'a>(&'a self, subjects: &'a [SubjectName]) -> Boxed<'a, Vec<Result<Place, LogError>>> {
        Box::pin(async move {
            let people: Vec<Id> = subjects.iter().filter_map(|name| Id::new(name.parts().1).ok()).collect();
            let known = self
                .records()
                .read(people, last_numbers)
                .await
                .map_err(|error| LogError::from_records(&error));
            let place = |name: &SubjectName| {
                let known = known.as_ref().map_err(Clone::clone)?;
                Ok(head(known.get(name.parts().1).copied().unwrap_or(0)))
            };
            subjects.iter().map(place).collect()
        })
    }

    fn begin(&self, subject: &SubjectName) -> Option<Boxed<'_, Result<Page<Item>, LogError>>> {
        let person = Id::new(subject.parts().1).ok()?;
        Some(Box::pin(async move {
            let read = |marks| self.records().read((person.clone(), marks), newest_unread);
            self.page(&person, read).await
        }))
    }

    fn name(&self, place: StreamId) -> MessageId {
        MessageId::Number(place.ms.cast_signed())
    }
}

/// Entries of a person, and the count of the moment at which they were read.
struct EntryPage {
    start: Start,
    entries: Vec<Entry>,
    standing: Standing,
}

impl EntryPage {
    fn worded(self, templates: &Templates) -> Page<Item> {
        let Standing { unread, version, last_seq, .. } = self.standing;
        let item = |Entry { seq, notice, created_at, .. }: Entry| {
            let worded = WordedNotice::new(&notice, created_at, templates);
            Notification { seq, unread: Some(unread), version: Some(version), worded }.into_item()
        };
        let entries = self.entries.into_iter().map(item).collect();
        Page { start: self.start, entries, more: false, head: head(last_seq) }
    }
}

fn head(last_seq: u64) -> Place {
    if last_seq == 0 { Place { number: None, ..Place::START } } else { place(last_seq) }
}

async fn after_position(given: &(Id, Marks, u64), tx: &mut Transaction<'_>) -> Result<EntryPage, Error> {
    let (person, marks, after) = given;
    let standing = overlaid(person, marks, tx).await?;
    let last = standing.last_seq;
    if *after > last {
        return Ok(EntryPage { start: Start::Unknown, entries: Vec::new(), standing });
    }
    let arguments = [("person", person.into()), ("after", (*after).into()), ("limit", (REPLAYED + 1).into())];
    let rows = tx.rows(&store::AFTER, &arguments).await?;
    let entries = rows.iter().map(Entry::read).collect::<Result<Vec<_>, _>>()?;
    // Numbers have no holes but those that time has made.
    let first = tx.row(&store::FIRST_AFTER, &[("person", person.into()), ("after", (*after).into())]).await?;
    let first = first.map(|row| row.maybe_count(0)).transpose()?.flatten();
    let whole = *after == last || first.is_some_and(|first| first == after + 1);
    let start = if whole && entries.len() <= REPLAYED { Start::Known } else { Start::Cut };
    let settings = settings(person, tx).await?;
    let wanted = entries.into_iter().take(REPLAYED).filter(|entry| settings.wants(&entry.notice.kind));
    Ok(EntryPage { start, entries: wanted.collect(), standing })
}

async fn newest_unread(given: &(Id, Marks), tx: &mut Transaction<'_>) -> Result<EntryPage, Error> {
    let (person, marks) = given;
    let standing = overlaid(person, marks, tx).await?;
    let settings = settings(person, tx).await?;
    let arguments =
        [("person", person.into()), ("limit", LOOKED_AT.into()), ("seqs", numbers(marks.keys())?.into())];
    let rows = tx.rows(&store::NEWEST_UNREAD, &arguments).await?;
    let mut entries = rows.iter().map(Entry::read).collect::<Result<Vec<_>, _>>()?;
    entries.retain(|entry| settings.wants(&entry.notice.kind));
    entries.truncate(SHOWN);
    entries.reverse();
    Ok(EntryPage { start: Start::Known, entries, standing })
}

async fn last_numbers(people: &Vec<Id>, tx: &mut Transaction<'_>) -> Result<HashMap<String, u64>, Error> {
    let rows = tx.rows(&store::PEOPLE, &[("people", store::list(people).into())]).await?;
    let known = rows.iter().map(|row| Ok((row.id(0)?.as_str().to_owned(), row.count(1)?)));
    known.collect()
}
