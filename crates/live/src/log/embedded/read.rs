//! Reading: a page after a position, from one snapshot.

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{EventType, Id, StreamId};
use bongsu_sql::rusqlite::types::Type;
use bongsu_sql::rusqlite::{Connection, Error, OptionalExtension, Row, params};

use super::{signed, unsigned};
use crate::SubjectName;
use crate::log::{Entry, Most, Page, Place, Start};

pub(super) fn head(connection: &Connection, subject: &SubjectName) -> Result<Place, Error> {
    Ok(find(connection, subject)?.map_or(Place::START, |(_, head)| head))
}

pub(super) fn page(
    connection: &Connection,
    subject: &SubjectName,
    after: StreamId,
    most: Most,
) -> Result<Page, Error> {
    // Trimming between two of these queries would look like a hole.
    let snapshot = connection.unchecked_transaction()?;
    let Some((id, head)) = find(&snapshot, subject)? else {
        let start = if after <= StreamId::EMPTY { Start::Known } else { Start::Unknown };
        return Ok(Page { start, entries: Vec::new(), more: false, head: Place::START });
    };
    let start = locate(&snapshot, id, after)?;
    let mut page = Page { start, entries: Vec::new(), more: false, head };
    if start != Start::Unknown {
        read_on(&snapshot, id, after, most, &mut page)?;
    }
    Ok(page)
}

/// One event, if it is still there.
pub(super) fn event(
    connection: &Connection,
    subject: &SubjectName,
    id: StreamId,
) -> Result<Option<Entry>, Error> {
    let Some((subject, _)) = find(connection, subject)? else { return Ok(None) };
    connection
        .prepare_cached(
            "SELECT ms, seq, number, type, payload, publisher_id, timestamp, traceparent FROM entries
             WHERE subject_id = ?1 AND ms = ?2 AND seq = ?3",
        )?
        .query_row(params![subject, signed(id.ms), signed(id.seq)], entry)
        .optional()
}

fn find(connection: &Connection, subject: &SubjectName) -> Result<Option<(i64, Place)>, Error> {
    connection
        .prepare_cached("SELECT id, ms, seq, number FROM subjects WHERE subject = ?1")?
        .query_row([subject.as_str()], |row| Ok((row.get(0)?, place(row, 1)?)))
        .optional()
}

fn locate(connection: &Connection, subject: i64, position: StreamId) -> Result<Start, Error> {
    if position == StreamId::START {
        return Ok(Start::Known);
    }
    let exists = connection
        .prepare_cached("SELECT 1 FROM entries WHERE subject_id = ?1 AND ms = ?2 AND seq = ?3")?
        .exists(params![subject, signed(position.ms), signed(position.seq)])?;
    if exists {
        return Ok(Start::Known);
    }
    let oldest = connection
        .prepare_cached("SELECT ms, seq, number FROM entries WHERE subject_id = ?1 ORDER BY ms, seq LIMIT 1")?
        .query_row([subject], |row| place(row, 0))
        .optional()?;
    Ok(match oldest {
        // Nothing was ever trimmed: the beginning is still there.
        Some(Place { number: Some(1), .. }) if position == StreamId::EMPTY => Start::Known,
        Some(oldest) if position < oldest.id => Start::Trimmed { oldest },
        _ => Start::Unknown,
    })
}

fn read_on(
    connection: &Connection,
    subject: i64,
    after: StreamId,
    most: Most,
    page: &mut Page,
) -> Result<(), Error> {
    let mut statement = connection.prepare_cached(
        "SELECT ms, seq, number, type, payload, publisher_id, timestamp, traceparent FROM entries
         WHERE subject_id = ?1 AND (ms, seq) > (?2, ?3) ORDER BY ms, seq LIMIT ?4",
    )?;
    let limit = signed((most.entries as u64).saturating_add(1));
    let mut rows = statement.query(params![subject, signed(after.ms), signed(after.seq), limit])?;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        bytes += row.get_ref(4)?.as_str().map_or(0, str::len);
        if page.entries.len() == most.entries || (bytes > most.bytes && !page.entries.is_empty()) {
            page.more = true;
            break;
        }
        page.entries.push(entry(row)?);
    }
    Ok(())
}

fn entry(row: &Row<'_>) -> Result<Entry, Error> {
    let unreadable =
        |column: usize| Error::InvalidColumnType(column, "not what an append wrote".to_owned(), Type::Text);
    let publisher = row.get_ref(5)?.as_str_or_null()?.map(Id::new).transpose().map_err(|_| unreadable(5))?;
    Ok(Entry {
        place: place(row, 0)?,
        event_type: EventType::new(row.get_ref(3)?.as_str()?).map_err(|_| unreadable(3))?,
        data: Object::stored(row.get_ref(4)?.as_str()?).ok_or_else(|| unreadable(4))?,
        publisher,
        at: unsigned(row.get(6)?),
        trace: row.get_ref(7)?.as_str_or_null()?.and_then(TraceParent::parse),
    })
}

fn place(row: &Row<'_>, from: usize) -> Result<Place, Error> {
    let id = StreamId::new(unsigned(row.get(from)?), unsigned(row.get(from + 1)?));
    Ok(Place { id, number: Some(unsigned(row.get(from + 2)?)) })
}
