//! Reading: heads, pages after a position, and single events, each from one snapshot.

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{EventType, Id, StreamId};
use bongsu_sql::rusqlite::types::Type;
use bongsu_sql::rusqlite::{Connection, Error, OptionalExtension, Row, params};

use super::{from_sql, to_sql};
use crate::SubjectName;
use crate::log::{LogEntry, LogPosition, Page, ReadLimits, StartPosition};

pub(super) fn head(connection: &Connection, subject: &SubjectName) -> Result<LogPosition, Error> {
    Ok(find(connection, subject)?.map_or(LogPosition::START, |(_, head)| head))
}

pub(super) fn page(
    connection: &Connection,
    subject: &SubjectName,
    after: StreamId,
    limits: ReadLimits,
) -> Result<Page, Error> {
    // One snapshot, because trimming between two of these queries would look like a gap.
    let snapshot = connection.unchecked_transaction()?;
    let Some((id, head)) = find(&snapshot, subject)? else {
        let start =
            if after <= StreamId::EMPTY_SUBJECT { StartPosition::Known } else { StartPosition::Unknown };
        return Ok(Page { start, entries: Vec::new(), more: false, head: LogPosition::START });
    };
    let start = locate(&snapshot, id, after)?;
    let mut page = Page { start, entries: Vec::new(), more: false, head };
    if start != StartPosition::Unknown {
        read_entries(&snapshot, id, after, limits, &mut page)?;
    }
    Ok(page)
}

/// One event; None if it is not stored or was trimmed.
pub(super) fn event(
    connection: &Connection,
    subject: &SubjectName,
    id: StreamId,
) -> Result<Option<LogEntry>, Error> {
    let Some((subject, _)) = find(connection, subject)? else { return Ok(None) };
    connection
        .prepare_cached(
            "SELECT ms, seq, number, type, payload, publisher_id, timestamp, traceparent FROM entries
             WHERE subject_id = ?1 AND ms = ?2 AND seq = ?3",
        )?
        .query_row(params![subject, to_sql(id.ms), to_sql(id.seq)], entry)
        .optional()
}

fn find(connection: &Connection, subject: &SubjectName) -> Result<Option<(i64, LogPosition)>, Error> {
    connection
        .prepare_cached("SELECT id, ms, seq, number FROM subjects WHERE subject = ?1")?
        .query_row([subject.as_str()], |row| Ok((row.get(0)?, read_position(row, 1)?)))
        .optional()
}

fn locate(connection: &Connection, subject: i64, position: StreamId) -> Result<StartPosition, Error> {
    if position == StreamId::START {
        return Ok(StartPosition::Known);
    }
    let exists = connection
        .prepare_cached("SELECT 1 FROM entries WHERE subject_id = ?1 AND ms = ?2 AND seq = ?3")?
        .exists(params![subject, to_sql(position.ms), to_sql(position.seq)])?;
    if exists {
        return Ok(StartPosition::Known);
    }
    let oldest = connection
        .prepare_cached("SELECT ms, seq, number FROM entries WHERE subject_id = ?1 ORDER BY ms, seq LIMIT 1")?
        .query_row([subject], |row| read_position(row, 0))
        .optional()?;
    Ok(match oldest {
        // No entry was trimmed yet, so the beginning is known.
        Some(LogPosition { number: Some(1), .. }) if position == StreamId::EMPTY_SUBJECT => {
            StartPosition::Known
        }
        Some(oldest) if position < oldest.id => StartPosition::Trimmed { oldest },
        _ => StartPosition::Unknown,
    })
}

fn read_entries(
    connection: &Connection,
    subject: i64,
    after: StreamId,
    limits: ReadLimits,
    page: &mut Page,
) -> Result<(), Error> {
    let mut statement = connection.prepare_cached(
        "SELECT ms, seq, number, type, payload, publisher_id, timestamp, traceparent FROM entries
         WHERE subject_id = ?1 AND (ms, seq) > (?2, ?3) ORDER BY ms, seq LIMIT ?4",
    )?;
    let limit = to_sql((limits.entries as u64).saturating_add(1));
    let mut rows = statement.query(params![subject, to_sql(after.ms), to_sql(after.seq), limit])?;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        bytes += row.get_ref(4)?.as_str().map_or(0, str::len);
        if page.entries.len() == limits.entries || (bytes > limits.bytes && !page.entries.is_empty()) {
            page.more = true;
            break;
        }
        page.entries.push(entry(row)?);
    }
    Ok(())
}

fn entry(row: &Row<'_>) -> Result<LogEntry, Error> {
    let unreadable = |column: usize| {
        Error::InvalidColumnType(column, "invalid value in a stored entry".to_owned(), Type::Text)
    };
    let publisher = row.get_ref(5)?.as_str_or_null()?.map(Id::new).transpose().map_err(|_| unreadable(5))?;
    Ok(LogEntry {
        position: read_position(row, 0)?,
        event_type: EventType::new(row.get_ref(3)?.as_str()?).map_err(|_| unreadable(3))?,
        data: Object::from_stored(row.get_ref(4)?.as_str()?).ok_or_else(|| unreadable(4))?,
        publisher,
        at: from_sql(row.get(6)?),
        trace: row.get_ref(7)?.as_str_or_null()?.and_then(TraceParent::parse),
    })
}

fn read_position(row: &Row<'_>, from: usize) -> Result<LogPosition, Error> {
    let id = StreamId::new(from_sql(row.get(from)?), from_sql(row.get(from + 1)?));
    Ok(LogPosition { id, number: Some(from_sql(row.get(from + 2)?)) })
}
