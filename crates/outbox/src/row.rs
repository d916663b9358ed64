//! A row that has its position, and what streams are told of it.
//!
//! Any program writes rows, so any of them may be something that nobody can be told of. Which those are is decided here,
//! by the row alone, so that every process leaves out the same ones.

use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{EventType, Id, Millis, StreamId};
use bongsu_live::{Data, Entry, Item, Message, MessageId, Place};
use bongsu_sql::Error;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::NOBODY;

/// What is in the order for the hub alone.
const RECORD: &str = "system.record";
/// The one type of the hub's own that programs write, by the triggers that come with the tables.
const REMOVED: &str = "system.removed";
/// What is later cannot be written as a time in every zone.
const LAST: Millis = 253_402_207_199_999;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub position: u64,
    pub id: i64,
    pub target: String,
    pub event_type: String,
    /// JSON, if whoever wrote it kept to that; nothing when it is larger than events may be (64 KiB).
    pub payload: Option<String>,
    pub created_at: Millis,
    /// The trace that it belongs to, where whoever reads it does something about it.
    pub trace: Option<TraceParent>,
}

/// Why nobody is told of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is about no event, or about something that cannot be one.
    Target,
    /// Its type is the hub's own, or none.
    Type,
    /// Its payload is no JSON, or nested deeper than readers take, or does not say whose right ends.
    Payload,
    TooLarge,
}

impl Fault {
    /// For people who look for the reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Target => "target_event_id is no id of an event",
            Self::Type => "event_type is reserved, or not of the form a.b or a.b.v1",
            Self::Payload => "payload is no JSON, is nested too deeply, or names nobody in a system.removed",
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

/// Where a row stands: by its position, with its id, by which clients know it.
pub(crate) fn place(position: u64, id: i64) -> Place {
    Place { id: StreamId::new(position, id.cast_unsigned()), number: None }
}

/// The id of the row at a place; none before the first.
pub(crate) fn id_at(place: StreamId) -> Option<i64> {
    (place.ms > 0).then(|| place.seq.cast_signed())
}

impl Row {
    pub(crate) fn read(row: &bongsu_sql::Row) -> Result<Self, Error> {
        Ok(Self {
            position: row.count(0)?,
            id: row.int(1)?,
            target: row.text(2)?.to_owned(),
            // A table that a program made may have rows without these; nobody is to wait for them.
            event_type: row.maybe_text(3)?.unwrap_or_default().to_owned(),
            payload: row.maybe_text(4)?.map(str::to_owned),
            created_at: u64::try_from(row.maybe_int(5)?.unwrap_or_default()).unwrap_or_default(),
            trace: None,
        })
    }

    pub(crate) fn place(&self) -> Place {
        place(self.position, self.id)
    }

    /// What is wrong with it, if nobody can be told of it.
    pub fn fault(&self) -> Option<Fault> {
        self.told().err()
    }

    /// As the hub takes it: what nobody can be told of keeps its place, for the hub alone.
    pub(crate) fn entry(&self) -> Option<Entry> {
        let (event_type, data) = match self.told() {
            Ok(told) => told,
            Err(_) => (EventType::new(RECORD).ok()?, Object::stored("{}")?),
        };
        Some(Entry {
            place: self.place(),
            event_type,
            data,
            publisher: None,
            at: self.created_at,
            trace: self.trace,
        })
    }

    /// As streams are given it. Its data alone says what happened.
    pub(crate) fn item(&self) -> Option<Item> {
        let message = |entry: &Entry| Message {
            event: None,
            id: Some(MessageId::Number(self.id)),
            data: Data::Json(entry.data.as_str().into()),
        };
        Some(Item::of_entry(&self.entry()?, message))
    }

    fn told(&self) -> Result<(EventType, Object), Fault> {
        if self.target == NOBODY || Id::new(&self.target).is_err() {
            return Err(Fault::Target);
        }
        let event_type = EventType::new(&self.event_type).map_err(|_| Fault::Type)?;
        let payload = self.payload.as_deref().ok_or(Fault::TooLarge)?;
        let payload = serde_json::from_str::<&RawValue>(payload).map_err(|_| Fault::Payload)?;
        if event_type.as_str() == REMOVED {
            // Without a name it would be everybody's right that ends.
            let data = serde_json::from_str::<Value>(payload.get()).map_err(|_| Fault::Payload)?;
            // As text: a trigger writes a numeric column as a number, also past what an id may be as a number.
            let named = match &data["userId"] {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Err(Fault::Payload),
            };
            let data = Object::stored(&json!({ "userId": named }).to_string()).ok_or(Fault::Payload)?;
            return Ok((event_type, data));
        }
        if event_type.is_reserved() {
            return Err(Fault::Type);
        }
        self.told_with(payload).map(|data| (event_type, data)).ok_or(Fault::Payload)
    }

    fn told_with(&self, payload: &RawValue) -> Option<Object> {
        #[derive(Serialize)]
        struct Told<'a> {
            id: Id,
            event_type: &'a str,
            payload: &'a RawValue,
            created_at: String,
        }
        let id = Id::new(&self.id.to_string()).ok()?;
        let told = Told {
            id,
            event_type: &self.event_type,
            payload,
            created_at: rfc3339(self.created_at.min(LAST)),
        };
        let written = serde_json::to_string(&told).ok()?;
        Object::parse(serde_json::from_str(&written).ok()?, "").ok()
    }
}

#[cfg(test)]
mod tests {
    use bongsu_live::control;

    use super::*;

    fn row(event_type: &str, payload: &str) -> Row {
        let (event_type, payload) = (event_type.to_owned(), Some(payload.to_owned()));
        Row {
            position: 7,
            id: 17,
            target: "42".to_owned(),
            event_type,
            payload,
            created_at: 1_771_237_800_000,
            trace: None,
        }
    }

    fn told(payload: &str) -> String {
        row("proposal.created.v1", payload).entry().unwrap().data.as_str().to_owned()
    }

    #[test]
    fn a_row_is_told_with_its_payload_as_it_was_written() {
        assert_eq!(
            told("{\n  \"proposal_id\": 12345678901234567890.10,\n  \"proposal_type\": \"criteria\"\n}"),
            "{\"id\":17,\"event_type\":\"proposal.created.v1\",\"payload\":{\"proposal_id\":12345678901234567890.10,\
             \"proposal_type\":\"criteria\"},\"created_at\":\"2026-02-16T10:30:00.000Z\"}"
        );
        for (payload, shown) in [("[1,\n2]", "[1,2]"), ("null", "null"), ("\"text\"", "\"text\"")] {
            assert!(told(payload).contains(&format!("\"payload\":{shown},")), "{}", told(payload));
        }
    }

    #[test]
    fn what_nobody_can_be_told_of_is_for_the_hub_alone() {
        let deep = "[".repeat(100) + &"]".repeat(100);
        let good = || row("a.b", "{}");
        for (row, fault) in [
            (Row { target: "-".to_owned(), ..good() }, Fault::Target),
            (Row { target: "a b".to_owned(), ..good() }, Fault::Target),
            (row("ProposalCreated\n!", "{}"), Fault::Type),
            (row("system.anything", "{}"), Fault::Type),
            (row("presence.update", "{}"), Fault::Type),
            (row("a.b", "no json"), Fault::Payload),
            (row("a.b", ""), Fault::Payload),
            (row("a.b", &deep), Fault::Payload),
            (row(REMOVED, "[]"), Fault::Payload),
            (row(REMOVED, "{}"), Fault::Payload),
            (row(REMOVED, r#"{"userId":null}"#), Fault::Payload),
            (Row { payload: None, ..good() }, Fault::TooLarge),
        ] {
            assert_eq!(row.fault(), Some(fault), "{row:?}");
            assert!(control::is_control(&row.entry().unwrap()), "{row:?}");
        }
        assert_eq!(good().fault(), None);
        let removed = row(REMOVED, r#"{"userId":"7"}"#);
        assert_eq!(removed.fault(), None);
        assert_eq!(row(REMOVED, r#"{"userId":"nobody's id"}"#).fault(), None, "it concerns nobody");
        assert_eq!(removed.entry().unwrap().event_type.as_str(), REMOVED);
        for (payload, named) in
            [(r#"{"userId": 7}"#, "7"), (r#"{"userId":9007199254740993}"#, "9007199254740993")]
        {
            let removed = row(REMOVED, payload).entry().unwrap();
            assert_eq!(
                removed.data.as_str(),
                format!("{{\"userId\":\"{named}\"}}"),
                "its number is an id as text"
            );
        }
    }

    #[test]
    fn any_time_is_told_as_one() {
        let row = Row { created_at: u64::MAX, ..row("a.b", "{}") };
        let told = row.entry().unwrap().data.as_str().to_owned();
        assert!(told.ends_with("\"created_at\":\"9999-12-30T21:59:59.999Z\"}"), "{told}");
    }

    #[test]
    fn a_large_id_travels_as_text() {
        let row = Row { id: i64::MAX, ..row("a.b", "{}") };
        assert!(row.entry().unwrap().data.as_str().starts_with("{\"id\":\"9223372036854775807\""));
        assert_eq!(id_at(row.place().id), Some(i64::MAX));
    }
}
