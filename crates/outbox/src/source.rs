//! The source of outbox streams: the rows of an event, in the order of their positions.
//!
//! A log position holds the position and the id of its row, so that a row of a restored database is not taken for the
//! row that had the same position before. Clients know ids only. A reader gets no row that the tail has not read yet,
//! because only the tail notices that the database was restored, and only by rows that it has read itself.

use std::collections::HashMap;
use std::time::Instant;

use bongsu_kernel::{Id, StreamId};
use bongsu_live::log::{BoxFuture, LogError, LogFuture, ReadLimits};
use bongsu_live::{Item, LogPosition, MessageId, Page, Source, StartPosition, SubjectName};
use bongsu_sql::{self as sql, Error, Result, Transaction};

use crate::membership::{TAIL_POLL_INTERVAL, TAIL_WAIT_TIMEOUT};
use crate::row::{log_position, row_id_at};
use crate::store::{self, list};
use crate::tail::{TailProgress, is_same_database};
use crate::{Outbox, OutboxRow};

/// The most rows of one page.
const MAX_PAGE_SIZE: usize = 100;

/// The source of the subject kind `outbox`.
pub struct OutboxSource(pub Outbox);

impl Source for OutboxSource {
    fn read(&self, subject: &SubjectName, after: StreamId, limits: ReadLimits) -> LogFuture<'_, Page<Item>> {
        let target = Id::new(subject.parts().1);
        Box::pin(async move {
            let target =
                target.map_err(|_| LogError::Failed("the subject has no valid event id".to_owned()))?;
            let reached = self.0.tail_progress().position;
            let page = self.0.records().read(PageRequest { target, after, limits, reached }, read_page).await;
            page.map_err(|error| LogError::from_records(&error))
        })
    }

    fn heads<'a>(&'a self, subjects: &'a [SubjectName]) -> BoxFuture<'a, Vec<Result<LogPosition, LogError>>> {
        Box::pin(async move {
            let targets: Vec<Id> = subjects.iter().filter_map(|name| Id::new(name.parts().1).ok()).collect();
            let input = (targets.clone(), self.0.tail_progress().position);
            let ends = self.0.records().read(input, read_target_ends).await;
            let ends = ends.map_err(|error| LogError::from_records(&error));
            if let Ok(ends) = &ends {
                for target in &targets {
                    let head = TargetEnd::of(ends, target.as_str()).head();
                    self.0.target_heads().insert_if_absent(target, head.id);
                }
            }
            let head = |name: &SubjectName| {
                let ends = ends.as_ref().map_err(Clone::clone)?;
                Ok(TargetEnd::of(ends, name.parts().1).head())
            };
            subjects.iter().map(head).collect()
        })
    }

    fn can_reuse_ids(&self) -> bool {
        // A database that was restored from a copy assigns ids a second time.
        true
    }

    fn message_id(&self, position: StreamId) -> MessageId {
        MessageId::Number(row_id_at(position).unwrap_or_default())
    }
}

/// The position of a client that names a row which does not exist: before all rows, with the id in the sequence number.
fn unknown_row_position(id: i64) -> StreamId {
    StreamId::new(0, id.cast_unsigned().saturating_add(1).max(2))
}

impl Outbox {
    /// The position of a client whose last row of the event has this id. Another instance may have sent more than the
    /// tail of this one has read, so this function waits until the tail has reached the position.
    pub(crate) async fn position_of(&self, event: &Id, id: i64) -> Result<StreamId> {
        if id == 0 {
            // The id that the hub sends as the head of an event without rows.
            return Ok(StreamId::EMPTY_SUBJECT);
        }
        let started = Instant::now();
        loop {
            let progress = self.tail_progress();
            let position = self.records().read((event.clone(), id, progress), find_position).await?;
            if position.ms <= progress.position {
                return Ok(position);
            }
            if started.elapsed() > TAIL_WAIT_TIMEOUT {
                return Err(Error::Unavailable(
                    "the tail of the outbox is behind the position of the client".to_owned(),
                ));
            }
            tokio::time::sleep(TAIL_POLL_INTERVAL).await;
        }
    }
}

async fn find_position(
    (event, id, progress): &(Id, i64, TailProgress),
    tx: &mut Transaction<'_>,
) -> Result<StreamId> {
    if !is_same_database(progress, tx).await? {
        // Until the restore is recorded, an id may name another row than the one that the client received.
        return Err(Error::Unavailable(
            "the database was restored from a copy; streams restart shortly".to_owned(),
        ));
    }
    let arguments = [("id", (*id).into()), ("target", event.into())];
    match tx.row(&store::POSITION_OF, &arguments).await? {
        Some(row) => Ok(log_position(row.count(0)?, *id).id),
        None => Ok(unknown_row_position(*id)),
    }
}

struct PageRequest {
    target: Id,
    after: StreamId,
    limits: ReadLimits,
    /// The position that the tail has read up to: later rows are left out.
    reached: u64,
}

/// The end of a target's rows: the newest row in the table, and the newest one that retention has removed.
#[derive(Clone, Copy, Debug, Default)]
struct TargetEnd {
    newest: Option<StreamId>,
    removed: Option<StreamId>,
}

impl TargetEnd {
    fn of(ends: &HashMap<String, Self>, target: &str) -> Self {
        ends.get(target).copied().unwrap_or_default()
    }

    fn head(&self) -> LogPosition {
        LogPosition { id: self.newest.max(self.removed).unwrap_or(StreamId::START), number: None }
    }
}

async fn read_target_ends(
    (targets, reached): &(Vec<Id>, u64),
    tx: &mut Transaction<'_>,
) -> Result<HashMap<String, TargetEnd>> {
    // Ids are passed as JSON strings, so that an id that looks like a number does not become one.
    let targets: Vec<&str> = targets.iter().map(Id::as_str).collect();
    let arguments = [("targets", list(&targets)?.into()), ("reached", (*reached).into())];
    let rows = tx.rows(&store::HEADS, &arguments).await?;
    let position = |row: &sql::Row, column: usize| {
        let found = row.maybe_int(column)?.zip(row.maybe_int(column + 1)?);
        Ok::<_, Error>(found.map(|(position, id)| log_position(position.unsigned_abs(), id).id))
    };
    let ends = rows.iter().map(|row| {
        Ok((row.text(0)?.to_owned(), TargetEnd { newest: position(row, 1)?, removed: position(row, 3)? }))
    });
    ends.collect()
}

async fn read_page(request: &PageRequest, tx: &mut Transaction<'_>) -> Result<Page<Item>> {
    let PageRequest { target, after, limits, reached } = request;
    let ends = read_target_ends(&(vec![target.clone()], *reached), tx).await?;
    let end = TargetEnd::of(&ends, target.as_str());
    let start = resolve_start(request, end, tx).await?;
    // A reader whose position is unknown gets all rows that are left.
    let from = if start == StartPosition::Unknown { 0 } else { after.ms };
    let limit = limits.entries.min(MAX_PAGE_SIZE);
    let arguments = [
        ("target", target.into()),
        ("after", from.into()),
        ("reached", (*reached).into()),
        ("most", limit.into()),
        ("bytes", limits.bytes.into()),
    ];
    let rows = tx.rows(&store::AFTER, &arguments).await?;
    let rows = rows.iter().map(OutboxRow::read).collect::<Result<Vec<_>, _>>()?;
    let unwritable = || Error::Failed("an outbox row cannot be written as a message".to_owned());
    let entries = rows.iter().map(|row| row.item().ok_or_else(unwritable));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let head = end.head();
    let start = match (start, entries.first()) {
        (StartPosition::Trimmed { .. }, Some(oldest)) => StartPosition::Trimmed { oldest: oldest.position },
        (start, _) => start,
    };
    let more = entries.last().is_some_and(|last| Some(last.position.id) < end.newest);
    Ok(Page { start, entries, more, head })
}

/// Whether the position of a reader is known, was trimmed, or is unknown.
async fn resolve_start(
    request: &PageRequest,
    end: TargetEnd,
    tx: &mut Transaction<'_>,
) -> Result<StartPosition> {
    let trimmed = StartPosition::Trimmed { oldest: end.head() };
    match (request.after, end.removed) {
        (StreamId::START, _) | (StreamId::EMPTY_SUBJECT, None) => Ok(StartPosition::Known),
        (StreamId::EMPTY_SUBJECT, Some(_)) => Ok(trimmed),
        // The position of an unknown row. Ids up to the last removed one may have been removed, too.
        (StreamId { ms: 0, seq }, removed) => {
            let is_removed =
                removed.and_then(row_id_at).is_some_and(|removed| unknown_row_position(removed).seq >= seq);
            Ok(if is_removed { trimmed } else { StartPosition::Unknown })
        }
        (after, Some(removed)) if after == removed => Ok(StartPosition::Known),
        (after, Some(removed)) if after.ms < removed.ms => Ok(trimmed),
        (after, _) => {
            let arguments = [("target", (&request.target).into()), ("position", after.ms.into())];
            let row = tx.row(&store::AT_POSITION, &arguments).await?;
            let id = row.map(|row| row.int(0)).transpose()?;
            Ok(if id == row_id_at(after) { StartPosition::Known } else { StartPosition::Unknown })
        }
    }
}
