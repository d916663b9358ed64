//! Reading: a page after a position, from one moment; and where a subject ends.
//!
//! Other programs may append to `room:events:*` as well. Their entries have the same fields, with the time in RFC 3339 and
//! the payload as they wrote it; an entry that is not readable is left out.

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::{TRACEPARENT, TraceParent};
use bongsu_kernel::{EventType, Id, Millis, StreamId, clock};
use bongsu_redis::redis::{self, Value};
use bongsu_redis::{Redis, Repeat, Script};

use super::{stream_key, take};
use crate::SubjectName;
use crate::log::{Entry, LogError, Most, Page, Place, Start};

static READ: Script = Script::new("read", include_str!("../../../lua/read.lua"));
static HEAD: Script = Script::new("head", include_str!("../../../lua/head.lua"));

/// A subject's stream, and the last id of a deleted one.
fn keys(redis: &Redis, subject: &SubjectName) -> [String; 2] {
    let stream = stream_key(redis, subject);
    let gone = redis.beside(&stream, "gone");
    [stream, gone]
}

pub(super) async fn page(
    redis: &Redis,
    subject: &SubjectName,
    after: StreamId,
    most: Most,
) -> Result<Page, LogError> {
    let (mut page, mut last) = read(redis, subject, after, most).await?;
    while page.entries.is_empty() && page.more {
        // Nothing of it was ours. The caller would read the same again, for ever.
        let Some(after) = last else { break };
        let start = page.start;
        (page, last) = read(redis, subject, after, most).await?;
        if page.start == Start::Known {
            page.start = start;
        }
    }
    Ok(page)
}

/// A page, and the id of the last entry that was looked at for it.
async fn read(
    redis: &Redis,
    subject: &SubjectName,
    after: StreamId,
    most: Most,
) -> Result<(Page, Option<StreamId>), LogError> {
    let keys = keys(redis, subject);
    let (position, entries, bytes) = (after.to_string(), most.entries.to_string(), most.bytes.to_string());
    let arguments: [&[u8]; 3] = [position.as_bytes(), entries.as_bytes(), bytes.as_bytes()];
    let answer = redis.run(&READ, Repeat::Safe, &keys.each_ref().map(String::as_str), &arguments).await?;
    let (start, oldest, newest, gone, more, entries): (String, Value, Value, String, u8, Vec<Value>) =
        take(answer)?;
    let head = match newest {
        Value::Array(_) => place(&newest)?,
        _ => Place { id: gone.parse().unwrap_or(StreamId::START), number: gone.is_empty().then_some(0) },
    };
    let start = match start.as_str() {
        "known" => Start::Known,
        "trimmed" => Start::Trimmed { oldest: place(&oldest)? },
        _ => Start::Unknown,
    };
    let mut read = Vec::with_capacity(entries.len());
    for stored in &entries {
        match entry(stored) {
            Ok(entry) => read.push(entry),
            // Another program wrote it: it is not ours to deliver, and must not hold up what comes after.
            Err(error) => tracing::warn!(?subject, %error, "an entry of a room's log is not readable"),
        }
    }
    let last = entries.last().and_then(|stored| Some(place(stored).ok()?.id));
    Ok((Page { start, entries: read, more: more == 1, head }, last))
}

pub(super) async fn head(redis: &Redis, subject: &SubjectName) -> Result<Place, LogError> {
    let answer =
        redis.run(&HEAD, Repeat::Safe, &keys(redis, subject).each_ref().map(String::as_str), &[]).await?;
    let (id, number): (String, String) = take(answer)?;
    let id = id.parse().map_err(|_| unreadable("no id"))?;
    Ok(Place { id, number: number.parse().ok() })
}

/// One event, if it is still there and readable.
pub(super) async fn event(
    redis: &Redis,
    subject: &SubjectName,
    id: StreamId,
) -> Result<Option<Entry>, LogError> {
    let (stream, id) = (stream_key(redis, subject), id.to_string());
    let mut range = redis::cmd("XRANGE");
    range.arg(&stream).arg(&id).arg(&id);
    let found: Vec<Value> = take(redis.ask("xrange", &stream, &range, Repeat::Safe).await?)?;
    Ok(found.first().and_then(|stored| entry(stored).ok()))
}

fn unreadable(why: &str) -> LogError {
    LogError::Failed(format!("an entry in Redis is not readable: {why}"))
}

/// An entry's id and its fields, each name followed by its value. Other programs may have written any bytes.
fn fields(stored: &Value) -> Result<(StreamId, Vec<Vec<u8>>), LogError> {
    let (id, fields): (String, Vec<Vec<u8>>) =
        redis::from_redis_value_ref(stored).map_err(|_| unreadable("its shape"))?;
    Ok((id.parse().map_err(|_| unreadable("its id"))?, fields))
}

/// None when there is no such field, or its value is not UTF-8.
fn find<'a>(fields: &'a [Vec<u8>], name: &str) -> Option<&'a str> {
    let pair = fields.chunks_exact(2).find(|pair| pair[0] == name.as_bytes())?;
    std::str::from_utf8(&pair[1]).ok()
}

fn place(stored: &Value) -> Result<Place, LogError> {
    let (id, fields) = fields(stored)?;
    Ok(Place { id, number: find(&fields, "number").and_then(|number| number.parse().ok()) })
}

fn entry(stored: &Value) -> Result<Entry, LogError> {
    let (id, fields) = fields(stored)?;
    let field = |name: &'static str| find(&fields, name).ok_or_else(|| unreadable(name));
    let publisher = find(&fields, "publisher_id").filter(|publisher| !publisher.is_empty());
    let place = Place { id, number: find(&fields, "number").and_then(|number| number.parse().ok()) };
    let (at, payload) = time_and_payload(field("timestamp")?, field("payload")?, place.number.is_some())?;
    Ok(Entry {
        place,
        event_type: EventType::new(field("type")?).map_err(|_| unreadable("type"))?,
        data: payload,
        publisher: publisher.map(Id::new).transpose().map_err(|_| unreadable("publisher_id"))?,
        at,
        trace: find(&fields, TRACEPARENT).and_then(TraceParent::parse),
    })
}

/// A hub numbers its entries, and checks payloads before it stores them. Any other payload is checked here, as a publisher's
/// is.
fn time_and_payload(time: &str, payload: &str, is_own: bool) -> Result<(Millis, Object), LogError> {
    let own = time.parse().ok().zip(Object::stored(payload));
    if let Some(own) = own.filter(|_| is_own) {
        return Ok(own);
    }
    let at = time.parse().ok().or_else(|| clock::parse_rfc3339(time));
    let at = at.ok_or_else(|| unreadable("timestamp"))?;
    let payload = serde_json::from_str(payload).ok().and_then(|raw| Object::parse(raw, "timestamp").ok());
    Ok((at, payload.ok_or_else(|| unreadable("payload"))?))
}
