//! Domain events: the content of messages that applications exchange, as one JSON object with common fields.

use bongsu_kernel::clock::{parse_rfc3339, rfc3339};
use bongsu_kernel::json::Object;
use bongsu_kernel::{Id, Millis};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Something that happened in an application.
#[derive(Clone, Debug)]
pub struct DomainEvent {
    /// Identifies the event: a repeated one has no second effect.
    pub event_id: Id,
    pub event_type: String,
    pub occurred_at: Option<Millis>,
    pub actor_id: Option<Id>,
    pub target_id: Option<Id>,
    pub ref_id: Option<Id>,
    /// What the type of the event adds.
    pub payload: Option<Object>,
}

/// The JSON form of a domain event. Unknown fields are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEvent {
    event_id: Option<Box<RawValue>>,
    event_type: Option<Box<RawValue>>,
    occurred_at: Option<Box<RawValue>>,
    actor_id: Option<Box<RawValue>>,
    target_id: Option<Box<RawValue>>,
    ref_id: Option<Box<RawValue>>,
    payload: Option<Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenEvent<'a> {
    event_id: &'a Id,
    event_type: &'a str,
    occurred_at: Option<String>,
    actor_id: Option<&'a Id>,
    target_id: Option<&'a Id>,
    ref_id: Option<&'a Id>,
    payload: Option<&'a RawValue>,
}

impl DomainEvent {
    /// Parses a message. The error names the field that is missing or not allowed.
    pub fn parse(message: &[u8]) -> Result<Self, String> {
        let raw: RawEvent =
            serde_json::from_slice(message).map_err(|error| format!("not a JSON object: {error}"))?;
        let required = |name: &str| format!("{name}: required");
        let occurred_at = optional::<String>("occurredAt", raw.occurred_at)?;
        let parse_time = |text: String| {
            parse_rfc3339(&text).ok_or_else(|| "occurredAt: not a time in ISO 8601".to_owned())
        };
        let parse_object = |raw: Box<RawValue>| {
            Object::parse(&raw, "").map_err(|_| "payload: not a JSON object of up to 64 KiB".to_owned())
        };
        Ok(Self {
            event_id: optional("eventId", raw.event_id)?.ok_or_else(|| required("eventId"))?,
            event_type: optional("eventType", raw.event_type)?.ok_or_else(|| required("eventType"))?,
            occurred_at: occurred_at.map(parse_time).transpose()?,
            actor_id: optional("actorId", raw.actor_id)?,
            target_id: optional("targetId", raw.target_id)?,
            ref_id: optional("refId", raw.ref_id)?,
            payload: raw.payload.map(parse_object).transpose()?,
        })
    }

    pub fn to_json(&self) -> String {
        let written = WrittenEvent {
            event_id: &self.event_id,
            event_type: &self.event_type,
            occurred_at: self.occurred_at.map(rfc3339),
            actor_id: self.actor_id.as_ref(),
            target_id: self.target_id.as_ref(),
            ref_id: self.ref_id.as_ref(),
            payload: self.payload.as_ref().and_then(|payload| serde_json::from_str(payload.as_str()).ok()),
        };
        // Strings, ids and JSON can always be written.
        serde_json::to_string(&written).unwrap_or_default()
    }
}

/// Reads a field. None if it is missing or null.
fn optional<T: DeserializeOwned>(name: &str, raw: Option<Box<RawValue>>) -> Result<Option<T>, String> {
    let parse = |raw: Box<RawValue>| {
        serde_json::from_str(raw.get()).map_err(|error| {
            // Without the position, which is that within the field.
            let text = error.to_string();
            format!("{name}: {}", text.split(" at line ").next().unwrap_or(&text))
        })
    };
    raw.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let text = r#"{"eventId":"e-1","eventType":"POST_LIKE","occurredAt":"2026-02-16T10:30:00.000Z","actorId":2,
            "targetId":"u-7","refId":100,"payload":{"n":1.0,"big":12345678901234567890},"more":[]}"#;
        let event = DomainEvent::parse(text.as_bytes()).unwrap();
        let written = event.to_json();
        assert_eq!(
            written,
            r#"{"eventId":"e-1","eventType":"POST_LIKE","occurredAt":"2026-02-16T10:30:00.000Z","actorId":2,"targetId":"u-7","refId":100,"payload":{"n":1.0,"big":12345678901234567890}}"#
        );
        assert_eq!(DomainEvent::parse(written.as_bytes()).unwrap().to_json(), written);
        let minimal = DomainEvent::parse(br#"{"eventId":7,"eventType":"a","actorId":null}"#).unwrap();
        assert_eq!((minimal.event_id.as_str(), minimal.actor_id), ("7", None));
    }

    #[test]
    fn an_error_names_the_field() {
        for (text, named) in [
            ("[]", "not a JSON object"),
            ("{", "not a JSON object"),
            (r#"{"eventType":"a"}"#, "eventId: required"),
            (r#"{"eventId":"e"}"#, "eventType: required"),
            (r#"{"eventId":"a b","eventType":"a"}"#, "eventId: "),
            (r#"{"eventId":"e","eventType":1}"#, "eventType: "),
            (r#"{"eventId":"e","eventType":"a","occurredAt":"yesterday"}"#, "occurredAt: "),
            (r#"{"eventId":"e","eventType":"a","targetId":[1]}"#, "targetId: "),
            (r#"{"eventId":"e","eventType":"a","payload":[1]}"#, "payload: "),
        ] {
            let refused = DomainEvent::parse(text.as_bytes()).unwrap_err();
            assert!(refused.starts_with(named), "{text}: {refused}");
        }
        assert!(DomainEvent::parse(&[0xFF]).is_err());
    }
}
