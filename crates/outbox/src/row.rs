//! An outbox row that has its position, and the message that streams receive for it.
//!
//! Any program writes rows, so some rows cannot be sent. Only the content of a row decides this, so that every process
//! leaves out the same rows.

use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{EventType, Id, Millis, StreamId};
use bongsu_live::{Data, Item, LogEntry, LogPosition, Message, MessageId};
use bongsu_sql::Error;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::NO_TARGET;

/// The type of the control record that replaces a row that cannot be sent, so that the row keeps its
/// position.
const CONTROL_RECORD_TYPE: &str = "system.record";
/// The only reserved type that programs may write; the triggers of the membership table write it, too.
const REMOVED_TYPE: &str = "system.removed";
/// The latest time, in milliseconds, that can be written with a four-digit year in every time zone.
const MAX_TIMESTAMP: Millis = 253_402_207_199_999;

/// An outbox row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    pub position: u64,
    pub id: i64,
    pub target: String,
    pub event_type: String,
    /// The text of the column, which should be JSON but may be anything. None when it is larger than an event may be
    /// (64 KiB).
    pub payload: Option<String>,
    pub created_at: Millis,
    /// The trace of the request that caused the row. Read only by workers and by `explain`; None on the way to streams.
    pub trace: Option<TraceParent>,
}

/// Why a row cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The target is missing, or no valid id.
    Target,
    /// The type is reserved for the hub, or malformed.
    Type,
    /// The payload is not JSON, is nested too deeply for readers, or names no person in a `system.removed` row.
    Payload,
    /// The payload is larger than 64 KiB.
    TooLarge,
}

impl Fault {
    /// The reason for operators, as stored with the failure.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Target => "target_event_id is not a valid event id",
            Self::Type => "event_type is reserved, or not of the form a.b or a.b.v1",
            Self::Payload => {
                "payload is not JSON, is nested too deeply, or has no userId in a system.removed row"
            }
            Self::TooLarge => "payload is larger than 64 KiB",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Type => "type",
            Self::Payload => "payload",
            Self::TooLarge => "too_large",
        }
    }
}

/// The log position of a row: its position in the order, and its id, the only part that clients receive.
pub(crate) fn log_position(position: u64, id: i64) -> LogPosition {
    LogPosition { id: StreamId::new(position, id.cast_unsigned()), number: None }
}

/// The id of the row at a log position. None before the first row.
pub(crate) fn row_id_at(position: StreamId) -> Option<i64> {
    (position.ms > 0).then(|| position.seq.cast_signed())
}

impl OutboxRow {
    pub(crate) fn read(row: &bongsu_sql::Row) -> Result<Self, Error> {
        Ok(Self {
            position: row.count(0)?,
            id: row.int(1)?,
            target: row.text(2)?.to_owned(),
            // A table that a program created may have NULL in these columns; such a row must not stop the others.
            event_type: row.maybe_text(3)?.unwrap_or_default().to_owned(),
            payload: row.maybe_text(4)?.map(str::to_owned),
            created_at: u64::try_from(row.maybe_int(5)?.unwrap_or_default()).unwrap_or_default(),
            trace: None,
        })
    }

    pub(crate) fn log_position(&self) -> LogPosition {
        log_position(self.position, self.id)
    }

    /// Why the row cannot be sent. None when it can.
    pub fn fault(&self) -> Option<Fault> {
        self.parse().err()
    }

    /// The row as a log entry. A row that cannot be sent becomes a control record, so that it keeps its place in the
    /// order.
    pub(crate) fn entry(&self) -> Option<LogEntry> {
        let (event_type, data) = match self.parse() {
            Ok(parsed) => parsed,
            Err(_) => (EventType::new(CONTROL_RECORD_TYPE).ok()?, Object::from_stored("{}")?),
        };
        Some(LogEntry {
            position: self.log_position(),
            event_type,
            data,
            publisher: None,
            at: self.created_at,
            trace: self.trace,
        })
    }

    /// The row as streams receive it: with its id and data, without an event name.
    pub(crate) fn item(&self) -> Option<Item> {
        let message = |entry: &LogEntry| Message {
            event: None,
            id: Some(MessageId::Number(self.id)),
            data: Data::Json(entry.data.as_str().into()),
        };
        Some(Item::of_entry(&self.entry()?, message))
    }

    fn parse(&self) -> Result<(EventType, Object), Fault> {
        if self.target == NO_TARGET || Id::new(&self.target).is_err() {
            return Err(Fault::Target);
        }
        let event_type = EventType::new(&self.event_type).map_err(|_| Fault::Type)?;
        let payload = self.payload.as_deref().ok_or(Fault::TooLarge)?;
        let payload = serde_json::from_str::<&RawValue>(payload).map_err(|_| Fault::Payload)?;
        if event_type.as_str() == REMOVED_TYPE {
            // Without an id the removal would apply to every person.
            let data = serde_json::from_str::<Value>(payload.get()).map_err(|_| Fault::Payload)?;
            // A trigger writes a numeric column as a JSON number. The number becomes text, because it may
            // exceed the range of numeric ids.
            let person = match &data["userId"] {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Err(Fault::Payload),
            };
            let data = Object::from_stored(&json!({ "userId": person }).to_string()).ok_or(Fault::Payload)?;
            return Ok((event_type, data));
        }
        if event_type.is_reserved() {
            return Err(Fault::Type);
        }
        self.stream_data(payload).map(|data| (event_type, data)).ok_or(Fault::Payload)
    }

    /// The data of the message: id, type, payload and time. None when it is nested too deeply.
    fn stream_data(&self, payload: &RawValue) -> Option<Object> {
        #[derive(Serialize)]
        struct StreamData<'a> {
            id: Id,
            event_type: &'a str,
            payload: &'a RawValue,
            created_at: String,
        }
        let id = Id::new(&self.id.to_string()).ok()?;
        let data = StreamData {
            id,
            event_type: &self.event_type,
            payload,
            created_at: rfc3339(self.created_at.min(MAX_TIMESTAMP)),
        };
        let written = serde_json::to_string(&data).ok()?;
        Object::parse(serde_json::from_str(&written).ok()?, "").ok()
    }
}

#[cfg(test)]
mod tests {
    use bongsu_live::control;

    use super::*;

    fn row(event_type: &str, payload: &str) -> OutboxRow {
        let (event_type, payload) = (event_type.to_owned(), Some(payload.to_owned()));
        OutboxRow {
            position: 7,
            id: 17,
            target: "42".to_owned(),
            event_type,
            payload,
            created_at: 1_771_237_800_000,
            trace: None,
        }
    }

    fn stream_data(payload: &str) -> String {
        row("proposal.created.v1", payload).entry().unwrap().data.as_str().to_owned()
    }

    #[test]
    fn a_row_is_told_with_its_payload_as_it_was_written() {
        assert_eq!(
            stream_data(
                "{\n  \"proposal_id\": 12345678901234567890.10,\n  \"proposal_type\": \"criteria\"\n}"
            ),
            "{\"id\":17,\"event_type\":\"proposal.created.v1\",\"payload\":{\"proposal_id\":12345678901234567890.10,\
             \"proposal_type\":\"criteria\"},\"created_at\":\"2026-02-16T10:30:00.000Z\"}"
        );
        for (payload, shown) in [("[1,\n2]", "[1,2]"), ("null", "null"), ("\"text\"", "\"text\"")] {
            assert!(
                stream_data(payload).contains(&format!("\"payload\":{shown},")),
                "{}",
                stream_data(payload)
            );
        }
    }

    #[test]
    fn what_nobody_can_be_told_of_is_for_the_hub_alone() {
        let deep = "[".repeat(100) + &"]".repeat(100);
        let good = || row("a.b", "{}");
        for (row, fault) in [
            (OutboxRow { target: "-".to_owned(), ..good() }, Fault::Target),
            (OutboxRow { target: "a b".to_owned(), ..good() }, Fault::Target),
            (row("ProposalCreated\n!", "{}"), Fault::Type),
            (row("system.anything", "{}"), Fault::Type),
            (row("presence.update", "{}"), Fault::Type),
            (row("a.b", "no json"), Fault::Payload),
            (row("a.b", ""), Fault::Payload),
            (row("a.b", &deep), Fault::Payload),
            (row(REMOVED_TYPE, "[]"), Fault::Payload),
            (row(REMOVED_TYPE, "{}"), Fault::Payload),
            (row(REMOVED_TYPE, r#"{"userId":null}"#), Fault::Payload),
            (OutboxRow { payload: None, ..good() }, Fault::TooLarge),
        ] {
            assert_eq!(row.fault(), Some(fault), "{row:?}");
            assert!(control::is_control(&row.entry().unwrap()), "{row:?}");
        }
        assert_eq!(good().fault(), None);
        let removed = row(REMOVED_TYPE, r#"{"userId":"7"}"#);
        assert_eq!(removed.fault(), None);
        assert_eq!(
            row(REMOVED_TYPE, r#"{"userId":"nobody's id"}"#).fault(),
            None,
            "no person has such an id, which does no harm"
        );
        assert_eq!(removed.entry().unwrap().event_type.as_str(), REMOVED_TYPE);
        for (payload, person) in
            [(r#"{"userId": 7}"#, "7"), (r#"{"userId":9007199254740993}"#, "9007199254740993")]
        {
            let removed = row(REMOVED_TYPE, payload).entry().unwrap();
            assert_eq!(
                removed.data.as_str(),
                format!("{{\"userId\":\"{person}\"}}"),
                "a number becomes an id as text"
            );
        }
    }

    #[test]
    fn any_time_is_told_as_one() {
        let row = OutboxRow { created_at: u64::MAX, ..row("a.b", "{}") };
        let data = row.entry().unwrap().data.as_str().to_owned();
        assert!(data.ends_with("\"created_at\":\"9999-12-30T21:59:59.999Z\"}"), "{data}");
    }

    #[test]
    fn a_large_id_travels_as_text() {
        let row = OutboxRow { id: i64::MAX, ..row("a.b", "{}") };
        assert!(row.entry().unwrap().data.as_str().starts_with("{\"id\":\"9223372036854775807\""));
        assert_eq!(row_id_at(row.log_position().id), Some(i64::MAX));
    }
}
