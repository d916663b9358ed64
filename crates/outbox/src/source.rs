//! What streams of an event read: its rows, in the order of their positions.
//!
//! A place is a position with the row that has it, so that a row of a database that was restored is not taken for the one
//! that had its position before. Clients know ids only. Nobody is told more here than the tail has seen: it alone notices
//! that a database was restored, and only from what it has seen itself.

use std::collections::HashMap;
use std::time::Instant;

use bongsu_kernel::{Id, StreamId};
use bongsu_live::log::{Boxed, LogError, Most};
use bongsu_live::{Item, MessageId, Page, Place, Source, Start, SubjectName};
use bongsu_sql::{self as sql, Error, Transaction};

use crate::right::{LOOK, PATIENCE};
use crate::row::{id_at, place};
use crate::store::{self, list};
use crate::tail::{Seen, is_sound};
use crate::{Outbox, Row};

/// So many rows are read at once.
const MOST: usize = 100;

/// See the module.
pub struct OutboxSource(pub Outbox);

impl Source for OutboxSource {
    fn read(
        &self,
        subject: &SubjectName,
        after: StreamId,
        most: Most,
    ) -> Boxed<'_, Result<Page<Item>, LogError>> {
        let target = Id::new(subject.parts().1);
        Box::pin(async move {
            let target = target.map_err(|_| LogError::Failed("no event".to_owned()))?;
            let reached = self.0.seen().position;
            let page = self.0.records().read(Asked { target, after, most, reached }, page).await;
            page.map_err(|error| LogError::from_records(&error))
        })
    }

    fn heads<'a>(&'a self, subjects: &'a [SubjectName]) -> Boxed<'a, Vec<Result<Place, LogError>>> {
        Box::pin(async move {
            let targets: Vec<Id> = subjects.iter().filter_map(|name| Id::new(name.parts().1).ok()).collect();
            let asked = (targets.clone(), self.0.seen().position);
            let known =
                self.0.records().read(asked, ends).await.map_err(|error| LogError::from_records(&error));
            if let Ok(known) = &known {
                for target in &targets {
                    self.0.ends().begin(target, Ended::of(known, target.as_str()).head().id);
                }
            }
            let head = |name: &SubjectName| {
                let known = known.as_ref().map_err(Clone::clone)?;
                Ok(Ended::of(known, name.parts().1).head())
            };
            subjects.iter().map(head).collect()
        })
    }

    fn reuses_names(&self) -> bool {
        // A database that was restored gives its ids again.
        true
    }

    fn name(&self, place: StreamId) -> MessageId {
        MessageId::Number(id_at(place).unwrap_or_default())
    }
}

/// Where a client stands that names a row which is not there: before everything, with the id that it named.
fn missing(id: i64) -> StreamId {
    StreamId::new(0, id.cast_unsigned().saturating_add(1).max(2))
}

impl Outbox {
    /// Where a client stands that had a row of an event last. Another hub may have told it more than this one knows of
    /// yet, so this returns when the tail has come there.
    pub(crate) async fn position_of(&self, event: &Id, id: i64) -> Result<StreamId, Error> {
        if id == 0 {
            // What the hub says of an event that had no rows.
            return Ok(StreamId::EMPTY);
        }
        let started = Instant::now();
        loop {
            let seen = self.seen();
            let place = self.records().read((event.clone(), id, seen), find).await?;
            if place.ms <= seen.position {
                return Ok(place);
            }
            if started.elapsed() > PATIENCE {
                return Err(Error::Away("streams are behind".to_owned()));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn find((event, id, seen): &(Id, i64, Seen), tx: &mut Transaction<'_>) -> Result<StreamId, Error> {
    if !is_sound(seen, tx).await? {
        // Until that is noted, ids may mean other rows than clients do.
        return Err(Error::Away("it was restored from a copy".to_owned()));
    }
    let wanted = [("id", (*id).into()), ("target", event.into())];
    match tx.row(&store::POSITION_OF, &wanted).await? {
        Some(row) => Ok(place(row.count(0)?, *id).id),
        None => Ok(missing(*id)),
    }
}

struct Asked {
    target: Id,
    after: StreamId,
    most: Most,
    reached: u64,
}

/// Where the rows of a target end: the newest that is there, and the newest of those that are gone.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    newest: Option<StreamId>,
    gone: Option<StreamId>,
}

impl Ended {
    fn of(known: &HashMap<String, Self>, target: &str) -> Self {
        known.get(target).copied().unwrap_or_default()
    }

    fn head(&self) -> Place {
        Place { id: self.newest.max(self.gone).unwrap_or(StreamId::START), number: None }
    }
}

async fn ends(
    (targets, reached): &(Vec<Id>, u64),
    tx: &mut Transaction<'_>,
) -> Result<HashMap<String, Ended>, Error> {
    // As text, always: an id that looks like a number is none.
    let targets: Vec<&str> = targets.iter().map(Id::as_str).collect();
    let wanted = [("targets", list(&targets)?.into()), ("reached", (*reached).into())];
    let rows = tx.rows(&store::HEADS, &wanted).await?;
    let at = |row: &sql::Row, column: usize| {
        let found = row.maybe_int(column)?.zip(row.maybe_int(column + 1)?);
        Ok::<_, Error>(found.map(|(position, id)| place(position.unsigned_abs(), id).id))
    };
    let known = rows
        .iter()
        .map(|row| Ok((row.text(0)?.to_owned(), Ended { newest: at(row, 1)?, gone: at(row, 3)? })));
    known.collect()
}

async fn page(asked: &Asked, tx: &mut Transaction<'_>) -> Result<Page<Item>, Error> {
    let Asked { target, after, most, reached } = asked;
    let known = ends(&(vec![target.clone()], *reached), tx).await?;
    let ended = Ended::of(&known, target.as_str());
    let start = start(asked, ended, tx).await?;
    // Who stands nowhere that is known gets all that is left.
    let from = if start == Start::Unknown { 0 } else { after.ms };
    let limit = most.entries.min(MOST);
    let wanted = [
        ("target", target.into()),
        ("after", from.into()),
        ("reached", (*reached).into()),
        ("most", limit.into()),
        ("bytes", most.bytes.into()),
    ];
    let rows = tx.rows(&store::AFTER, &wanted).await?;
    let rows = rows.iter().map(Row::read).collect::<Result<Vec<_>, _>>()?;
    let unwritable = || Error::Failed("a row cannot be told".to_owned());
    let entries = rows.iter().map(|row| row.item().ok_or_else(unwritable));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let head = ended.head();
    let start = match (start, entries.first()) {
        (Start::Trimmed { .. }, Some(oldest)) => Start::Trimmed { oldest: oldest.place },
        (start, _) => start,
    };
    let more = entries.last().is_some_and(|last| Some(last.place.id) < ended.newest);
    Ok(Page { start, entries, more, head })
}

/// What a place turns out to be.
async fn start(asked: &Asked, ended: Ended, tx: &mut Transaction<'_>) -> Result<Start, Error> {
    let trimmed = Start::Trimmed { oldest: ended.head() };
    match (asked.after, ended.gone) {
        (StreamId::START, _) | (StreamId::EMPTY, None) => Ok(Start::Known),
        (StreamId::EMPTY, Some(_)) => Ok(trimmed),
        (StreamId { ms: 0, seq }, gone) => {
            let is_gone = gone.and_then(id_at).is_some_and(|gone| missing(gone).seq >= seq);
            Ok(if is_gone { trimmed } else { Start::Unknown })
        }
        (after, Some(gone)) if after == gone => Ok(Start::Known),
        (after, Some(gone)) if after.ms < gone.ms => Ok(trimmed),
        (after, _) => {
            let wanted = [("target", (&asked.target).into()), ("position", after.ms.into())];
            let there = tx.row(&store::AT_POSITION, &wanted).await?;
            let there = there.map(|row| row.int(0)).transpose()?;
            Ok(if there == id_at(after) { Start::Known } else { Start::Unknown })
        }
    }
}
