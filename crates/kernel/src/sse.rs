//! Server-Sent Events, written. The one place where frames are made.
//!
//! Nothing that reaches a frame can end a line early: event types, stream ids and objects are types without line
//! breaks, and the hub's own events have fixed names and serialised data.

use std::fmt::Display;

use serde::Serialize;

use crate::clock::{Millis, rfc3339};
use crate::close::{Close, end_id};
use crate::event::EventType;
use crate::id::Id;
use crate::json::Object;
use crate::position::StreamId;

/// What a silent stream says.
pub const KEEPALIVE: &[u8] = b":keepalive\n\n";

/// The frame of a stored event: its data is the published object plus `timestamp`.
pub fn event(event: &EventType, id: StreamId, data: &Object, at: Millis) -> Vec<u8> {
    format!("event: {event}\nid: {id}\ndata: {}\n\n", timed(data, at)).into_bytes()
}

/// The frame of an event with a name of the hub's own, its data as it is.
pub fn named(event: &'static str, id: StreamId, data: &Object) -> Vec<u8> {
    format!("event: {event}\nid: {id}\ndata: {}\n\n", data.as_str()).into_bytes()
}

/// The frame of an event that has no name but those in its data, with an id of its source's own, a number.
pub fn unnamed(id: i64, data: &Object) -> Vec<u8> {
    format!("id: {id}\ndata: {}\n\n", data.as_str()).into_bytes()
}

/// The frame of an event that no log holds: it has no id, so that nobody comes back to it.
pub fn passing(event: &EventType, data: &Object, at: Millis) -> Vec<u8> {
    format!("event: {event}\ndata: {}\n\n", timed(data, at)).into_bytes()
}

fn timed(data: &Object, at: Millis) -> String {
    let data = data.as_str();
    let members = &data[..data.len() - 1];
    let comma = if members.len() > 1 { "," } else { "" };
    format!("{members}{comma}\"timestamp\":\"{}\"}}", rfc3339(at))
}

/// The first words of a stream: how long to wait before reconnecting, and, for a client without a position, where it
/// stands. Without data nothing is dispatched, but a client that drops before its first event comes back to there.
pub fn greeting(retry_ms: u64, place: Option<impl Display>) -> Vec<u8> {
    let id = place.map(|place| format!("id: {place}\n")).unwrap_or_default();
    format!("{id}retry: {retry_ms}\n\n").into_bytes()
}

/// Where a stream stands, for a client that may drop before its next event. Without data nothing is dispatched.
pub fn place(place: impl Display) -> Vec<u8> {
    format!("id: {place}\n\n").into_bytes()
}

/// The log no longer holds what the client asked for. It carries no id: a client that drops right after this keeps its
/// old position, and is told again.
pub fn reset_trimmed(oldest: impl Display) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        reason: &'static str,
        oldest_id: String,
    }
    system("system.reset", None, &Data { reason: "trimmed", oldest_id: oldest.to_string() })
}

/// The client's position names nothing that the log knows. The id is where the stream goes on from, so that a client
/// that drops right after this comes back to there; none where all that is left follows: who drops is told again.
pub fn reset_unknown(now: Option<&str>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Data {
        reason: &'static str,
    }
    system("system.reset", now, &Data { reason: "unknown" })
}

/// More followed on the client's position than was told. The id is where the stream goes on from.
pub fn reset_cut(now: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Data {
        reason: &'static str,
    }
    system("system.reset", Some(now), &Data { reason: "trimmed" })
}

/// Events were trimmed before a slow reader took them.
pub fn lagged(missed: Option<u64>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Data {
        missed: Option<u64>,
    }
    system("system.lagged", None, &Data { missed })
}

/// The person may no longer read one of the rooms of a stream; the others go on. The id, where there is one for all
/// rooms together, leaves that room out.
pub fn removed(room: &Id, place: Option<impl Display>) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Data<'a> {
        room_id: &'a Id,
    }
    let place = place.map(|place| place.to_string());
    system("system.removed", place.as_deref(), &Data { room_id: room })
}

/// A frame of ours, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    pub event: &'a str,
    pub id: Option<&'a str>,
    /// A JSON object.
    pub data: &'a str,
}

/// Takes frames apart that were made here.
pub fn parts(frames: &[u8]) -> impl Iterator<Item = Parts<'_>> {
    let text = std::str::from_utf8(frames).unwrap_or_default();
    text.split_terminator("\n\n").filter_map(|frame| {
        let line = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
        Some(Parts { event: line("event: ")?, id: line("id: "), data: line("data: ")? })
    })
}

/// Writes a frame again with the room it is about (as JSON) in its data, and another id.
pub fn retell(frame: &Parts<'_>, room: &str, id: Option<&str>, out: &mut Vec<u8>) {
    let members = frame.data.strip_suffix('}').unwrap_or(frame.data);
    let comma = if members.len() > 1 { "," } else { "" };
    let Parts { event, .. } = frame;
    out.extend_from_slice(format!("event: {event}\n").as_bytes());
    if let Some(id) = id {
        out.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    out.extend_from_slice(format!("data: {members}{comma}\"roomId\":{room}}}\n\n").as_bytes());
}

/// The last frame of a stream: why it ends, and whether and when to come back.
pub fn close(close: Close, last: impl Display) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        code: u16,
        reason: &'static str,
        reconnect: bool,
        retry_ms: Option<u64>,
    }
    let retry_ms = close.retry_ms();
    let data = Data { code: close.code(), reason: close.reason(), reconnect: close.reconnect(), retry_ms };
    let id = (!close.reconnect()).then(|| end_id(close, last));
    let mut frame = retry_ms.map(|ms| format!("retry: {ms}\n").into_bytes()).unwrap_or_default();
    frame.extend(system("system.close", id.as_deref(), &data));
    frame
}

/// Only for the hub's own names and ids: neither has a line break, and serde_json writes none.
fn system(name: &'static str, id: Option<&str>, data: &impl Serialize) -> Vec<u8> {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    // These structures have no map and no fallible field.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(frame: Vec<u8>) -> String {
        String::from_utf8(frame).unwrap()
    }

    #[test]
    fn frames_look_as_the_contract_writes_them() {
        let object = |text: &str| Object::stored(text).unwrap();
        let kind = EventType::new("retrospect.submitted").unwrap();
        let id = StreamId::new(1_708_070_400_000, 0);
        assert_eq!(
            text(event(&kind, id, &object(r#"{"userId":1}"#), 1_771_237_800_000)),
            "event: retrospect.submitted\nid: 1708070400000-0\n\
             data: {\"userId\":1,\"timestamp\":\"2026-02-16T10:30:00.000Z\"}\n\n"
        );
        assert_eq!(
            text(event(&kind, id, &object("{}"), 0)),
            "event: retrospect.submitted\nid: 1708070400000-0\ndata: {\"timestamp\":\"1970-01-01T00:00:00.000Z\"}\n\n"
        );
        assert_eq!(
            text(reset_trimmed(id)),
            "event: system.reset\ndata: {\"reason\":\"trimmed\",\"oldestId\":\"1708070400000-0\"}\n\n"
        );
        assert_eq!(
            text(reset_unknown(Some(&id.to_string()))),
            "event: system.reset\nid: 1708070400000-0\ndata: {\"reason\":\"unknown\"}\n\n"
        );
        assert_eq!(text(reset_unknown(None)), "event: system.reset\ndata: {\"reason\":\"unknown\"}\n\n");
        assert_eq!(text(unnamed(17, &object(r#"{"id":17}"#))), "id: 17\ndata: {\"id\":17}\n\n");
        assert_eq!(text(lagged(Some(3))), "event: system.lagged\ndata: {\"missed\":3}\n\n");
        assert_eq!(text(lagged(None)), "event: system.lagged\ndata: {\"missed\":null}\n\n");
    }

    #[test]
    fn a_stream_begins_with_where_it_stands() {
        assert_eq!(text(greeting(2_000, None::<StreamId>)), "retry: 2000\n\n");
        assert_eq!(text(greeting(2_000, Some(StreamId::new(7, 1)))), "id: 7-1\nretry: 2000\n\n");
        assert_eq!(text(greeting(2_000, Some(StreamId::START.named()))), "id: 0-1\nretry: 2000\n\n");
    }

    #[test]
    fn frames_are_taken_apart_and_told_again_with_their_room() {
        let (kind, id) = (EventType::new("a.b").unwrap(), StreamId::new(7, 1));
        let object = |text: &str| Object::stored(text).unwrap();
        let mut frames = event(&kind, id, &object("{\"n\":1}"), 0);
        frames.extend(lagged(None));
        frames.extend(passing(&kind, &object("{}"), 0));
        let mut again = Vec::new();
        for frame in parts(&frames) {
            retell(&frame, "42", frame.id.map(|_| "m1.x"), &mut again);
        }
        assert_eq!(
            text(again),
            "event: a.b\nid: m1.x\ndata: {\"n\":1,\"timestamp\":\"1970-01-01T00:00:00.000Z\",\"roomId\":42}\n\n\
             event: system.lagged\ndata: {\"missed\":null,\"roomId\":42}\n\n\
             event: a.b\ndata: {\"timestamp\":\"1970-01-01T00:00:00.000Z\",\"roomId\":42}\n\n"
        );
    }

    #[test]
    fn endings_say_whether_to_come_back() {
        let last = StreamId::new(7, 1);
        assert_eq!(
            text(close(Close::TokenExpired, last)),
            "event: system.close\nid: end.3502.7-1\n\
             data: {\"code\":3502,\"reason\":\"token expired or revoked\",\"reconnect\":false,\"retryMs\":null}\n\n"
        );
        let draining = text(close(Close::Draining, last));
        assert!(draining.starts_with("retry: "), "{draining}");
        assert!(draining.contains(
            "\nevent: system.close\ndata: {\"code\":3000,\"reason\":\"draining\",\"reconnect\":true,"
        ));
    }
}
