//! A row that has its position, and what streams are told of it.

use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, Millis, StreamId};
use bongsu_live::{Entry, Place};
use bongsu_sql::Error;
use serde::Serialize;
use serde_json::value::RawValue;

/// What every row is to the hub but for those that are about rights: its own type is in its data, and may be any text.
const KIND: &str = "outbox.row";
/// Rows of such types are told to the hub alone, as everywhere.
const RECORD: &str = "system.record";

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub position: u64,
    pub id: i64,
    pub target: String,
    pub event_type: String,
    /// JSON, if whoever wrote it kept to that.
    pub payload: String,
    pub created_at: Millis,
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
            payload: row.maybe_text(4)?.unwrap_or("null").to_owned(),
            created_at: u64::try_from(row.maybe_int(5)?.unwrap_or_default()).unwrap_or_default(),
        })
    }

    pub(crate) fn place(&self) -> Place {
        place(self.position, self.id)
    }

    /// As the hub takes it. Nothing only if that cannot be written at all, which no row brings about.
    pub(crate) fn entry(&self) -> Option<Entry> {
        let own = EventType::new(&self.event_type).ok().filter(EventType::is_reserved);
        let is_reserved = EventType::RESERVED.iter().any(|prefix| self.event_type.starts_with(prefix));
        let (event_type, data) = match own {
            Some(own) => match self.object() {
                Some(data) => (own, data),
                None => (EventType::new(RECORD).ok()?, Object::stored("{}")?),
            },
            None if is_reserved => (EventType::new(RECORD).ok()?, Object::stored("{}")?),
            None => (EventType::new(KIND).ok()?, self.told()?),
        };
        Some(Entry { place: self.place(), event_type, data, publisher: None, at: self.created_at })
    }

    fn object(&self) -> Option<Object> {
        Object::parse(serde_json::from_str(&self.payload).ok()?, "").ok()
    }

    /// What clients are told. A payload that is no JSON, or none that every reader takes, is told as text: leaving it out
    /// would be a loss that nobody notices.
    fn told(&self) -> Option<Object> {
        let as_it_is = serde_json::from_str::<&RawValue>(&self.payload).ok();
        as_it_is.and_then(|payload| self.told_with(payload)).or_else(|| self.told_with(&self.payload))
    }

    fn told_with(&self, payload: impl Serialize) -> Option<Object> {
        #[derive(Serialize)]
        struct Told<'a, P> {
            id: Id,
            event_type: &'a str,
            payload: P,
            created_at: String,
        }
        let id = Id::new(&self.id.to_string()).ok()?;
        let told = Told { id, event_type: &self.event_type, payload, created_at: rfc3339(self.created_at) };
        let written = serde_json::to_string(&told).ok()?;
        Object::parse(serde_json::from_str(&written).ok()?, "").ok()
    }
}

#[cfg(test)]
mod tests {
    use bongsu_live::control;

    use super::*;

    fn row(event_type: &str, payload: &str) -> Row {
        let (event_type, payload) = (event_type.to_owned(), payload.to_owned());
        Row {
            position: 7,
            id: 17,
            target: "42".to_owned(),
            event_type,
            payload,
            created_at: 1_771_237_800_000,
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
        for (payload, shown) in [("[1,\n2]", "[1,2]"), ("null", "null"), ("no\njson", r#""no\njson""#)] {
            assert!(told(payload).contains(&format!("\"payload\":{shown},")), "{}", told(payload));
        }
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert!(
            told(&deep).contains(&format!("\"payload\":\"{deep}\"")),
            "deeper than readers take: as text"
        );
    }

    #[test]
    fn a_type_may_be_any_text_and_reserved_ones_are_for_the_hub_alone() {
        let entry = row("ProposalCreated\n!", "{}").entry().unwrap();
        assert!(entry.data.as_str().contains(r#""event_type":"ProposalCreated\n!""#));
        assert!(!control::is_control(&entry));
        for reserved in ["system.removed", "system.Anything", "presence.update", "system."] {
            assert!(control::is_control(&row(reserved, "no json").entry().unwrap()), "{reserved}");
        }
    }

    #[test]
    fn a_large_id_travels_as_text() {
        let row = Row { id: i64::MAX, ..row("a.b", "{}") };
        assert!(row.entry().unwrap().data.as_str().starts_with("{\"id\":\"9223372036854775807\""));
        assert_eq!(id_at(row.place().id), Some(i64::MAX));
    }
}
