//! Reading: heads, pages after a position, and single events.
//!
//! Other programs may append to `room:events:*` as well. Their entries have the same fields, with the time in RFC 3339
//! and the payload as they wrote it; malformed entries are skipped.

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::{TRACEPARENT, TraceParent};
use bongsu_kernel::{EventType, Id, Millis, StreamId, clock};
use bongsu_redis::redis::{self, Value};
use bongsu_redis::{Redis, Repeat, Script};

use super::{decode, stream_key};
use crate::SubjectName;
use crate::log::{LogEntry, LogError, LogPosition, Page, ReadLimits, StartPosition};

static READ: Script = Script::new("read", include_str!("../../../lua/read.lua"));
static HEAD: Script = Script::new("head", include_str!("../../../lua/head.lua"));

/// The keys of a subject's stream and of the last id of a deleted stream.
fn keys(redis: &Redis, subject: &SubjectName) -> [String; 2] {
    let stream = stream_key(redis, subject);
    let deleted_last = redis.sibling_key(&stream, "gone");
    [stream, deleted_last]
}

pub(super) async fn page(
    redis: &Redis,
    subject: &SubjectName,
    after: StreamId,
    limits: ReadLimits,
) -> Result<Page, LogError> {
    let (mut page, mut last) = read(redis, subject, after, limits).await?;
    while page.entries.is_empty() && page.more {
        // All entries of the page were malformed. After an empty page the caller would read from the same position.
        let Some(after) = last else { break };
        let start = page.start;
        (page, last) = read(redis, subject, after, limits).await?;
        if page.start == StartPosition::Known {
            page.start = start;
        }
    }
    Ok(page)
}

/// A page, and the id of its last entry, also if that entry was skipped.
async fn read(
    redis: &Redis,
    subject: &SubjectName,
    after: StreamId,
    limits: ReadLimits,
) -> Result<(Page, Option<StreamId>), LogError> {
    let keys = keys(redis, subject);
    let (position, entries, bytes) =
        (after.to_string(), limits.entries.to_string(), limits.bytes.to_string());
    let arguments: [&[u8]; 3] = [position.as_bytes(), entries.as_bytes(), bytes.as_bytes()];
    let answer = redis.run(&READ, Repeat::Safe, &keys.each_ref().map(String::as_str), &arguments).await?;
    let (start, oldest, newest, deleted_last, more, entries): (String, Value, Value, String, u8, Vec<Value>) =
        decode(answer)?;
    let head = match newest {
        Value::Array(_) => read_position(&newest)?,
        _ => LogPosition {
            id: deleted_last.parse().unwrap_or(StreamId::START),
            number: deleted_last.is_empty().then_some(0),
        },
    };
    let start = match start.as_str() {
        "known" => StartPosition::Known,
        "trimmed" => StartPosition::Trimmed { oldest: read_position(&oldest)? },
        _ => StartPosition::Unknown,
    };
    let mut read = Vec::with_capacity(entries.len());
    for stored in &entries {
        match entry(stored) {
            Ok(entry) => read.push(entry),
            // Another program wrote the entry. Skipping the entry lets readers reach the entries after it.
            Err(error) => tracing::warn!(?subject, %error, "failed to parse a log entry; skipping it"),
        }
    }
    let last = entries.last().and_then(|stored| Some(read_position(stored).ok()?.id));
    Ok((Page { start, entries: read, more: more == 1, head }, last))
}

pub(super) async fn head(redis: &Redis, subject: &SubjectName) -> Result<LogPosition, LogError> {
    let answer =
        redis.run(&HEAD, Repeat::Safe, &keys(redis, subject).each_ref().map(String::as_str), &[]).await?;
    let (id, number): (String, String) = decode(answer)?;
    let id = id.parse().map_err(|_| malformed("id"))?;
    Ok(LogPosition { id, number: number.parse().ok() })
}

/// One event. None if it is not stored, was trimmed or is malformed.
pub(super) async fn event(
    redis: &Redis,
    subject: &SubjectName,
    id: StreamId,
) -> Result<Option<LogEntry>, LogError> {
    let (stream, id) = (stream_key(redis, subject), id.to_string());
    let range = redis::cmd("XRANGE").arg(&stream).arg(&id).arg(&id).take();
    let found: Vec<Value> = decode(redis.query("xrange", &stream, &range, Repeat::Safe).await?)?;
    Ok(found.first().and_then(|stored| entry(stored).ok()))
}

fn malformed(field: &str) -> LogError {
    LogError::Failed(format!("malformed entry in Redis: invalid {field}"))
}

/// The id of an entry, and its fields, each name followed by its value. Values are bytes, because those of other
/// programs may not be UTF-8.
fn fields(stored: &Value) -> Result<(StreamId, Vec<Vec<u8>>), LogError> {
    let (id, fields): (String, Vec<Vec<u8>>) =
        redis::from_redis_value_ref(stored).map_err(|_| malformed("structure"))?;
    Ok((id.parse().map_err(|_| malformed("id"))?, fields))
}

/// The value of a field. None if there is no such field or the value is not UTF-8.
fn find<'a>(fields: &'a [Vec<u8>], name: &str) -> Option<&'a str> {
    let pair = fields.chunks_exact(2).find(|pair| pair[0] == name.as_bytes())?;
    std::str::from_utf8(&pair[1]).ok()
}

fn read_position(stored: &Value) -> Result<LogPosition, LogError> {
    let (id, fields) = fields(stored)?;
    Ok(LogPosition { id, number: find(&fields, "number").and_then(|number| number.parse().ok()) })
}

fn entry(stored: &Value) -> Result<LogEntry, LogError> {
    let (id, fields) = fields(stored)?;
    let field = |name: &'static str| find(&fields, name).ok_or_else(|| malformed(name));
    let publisher = find(&fields, "publisher_id").filter(|publisher| !publisher.is_empty());
    let position = LogPosition { id, number: find(&fields, "number").and_then(|number| number.parse().ok()) };
    let (at, payload) = time_and_payload(field("timestamp")?, field("payload")?, position.number.is_some())?;
    Ok(LogEntry {
        position,
        event_type: EventType::new(field("type")?).map_err(|_| malformed("type"))?,
        data: payload,
        publisher: publisher.map(Id::new).transpose().map_err(|_| malformed("publisher_id"))?,
        at,
        trace: find(&fields, TRACEPARENT).and_then(TraceParent::parse),
    })
}

/// Reads the time and the payload of an entry. An entry with a number was written by a hub, which has checked the
/// payload. The payload of another program is checked here like that of a publisher.
fn time_and_payload(time: &str, payload: &str, is_own: bool) -> Result<(Millis, Object), LogError> {
    let own = time.parse().ok().zip(Object::from_stored(payload));
    if let Some(own) = own.filter(|_| is_own) {
        return Ok(own);
    }
    let at = time.parse().ok().or_else(|| clock::parse_rfc3339(time));
    let at = at.ok_or_else(|| malformed("timestamp"))?;
    let payload = serde_json::from_str(payload).ok().and_then(|raw| Object::parse(raw, "timestamp").ok());
    Ok((at, payload.ok_or_else(|| malformed("payload"))?))
}
