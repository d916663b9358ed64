//! Encodes Server-Sent Events. All SSE frames of the hub are built by this module.
//!
//! No value in a frame contains a line break: event types, stream ids and JSON objects are validated types without line
//! breaks, and the hub's own events have fixed names and serialized data.

use std::fmt::{Display, Write};

use serde::Serialize;

use crate::close::{Close, end_id};

/// The comment line that is sent on a stream after silence.
pub const KEEPALIVE: &[u8] = b":keepalive\n\n";

/// Builds a frame. A client dispatches no event for a frame without data, but keeps its id as `Last-Event-ID`.
pub fn frame(event: Option<&str>, id: Option<&dyn Display>, data: Option<&str>) -> String {
    let mut frame = String::with_capacity(event.map_or(0, str::len) + data.map_or(0, str::len) + 64);
    let mut line = |name: &str, value: &dyn Display| {
        // Writing to a String cannot fail.
        let _ = writeln!(frame, "{name}: {value}");
    };
    if let Some(event) = event {
        line("event", &event);
    }
    if let Some(id) = id {
        line("id", id);
    }
    if let Some(data) = data {
        line("data", &data);
    }
    frame.push('\n');
    frame
}

/// Builds the first frame of a stream: the delay in milliseconds before the client reconnects, and the position for a
/// client that did not send one. The frame has no data, so the client dispatches no event. A client that disconnects
/// before its first event resumes from that position.
pub fn greeting(retry_ms: u64, position: Option<impl Display>) -> String {
    let id = position.map(|position| format!("id: {position}\n")).unwrap_or_default();
    format!("{id}retry: {retry_ms}\n\n")
}

/// Builds the last frame of a stream: the close code, whether the client may reconnect, and after how long. `last` is
/// the stream's position.
pub fn close(close: Close, last: impl Display) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        code: u16,
        reason: &'static str,
        reconnect: bool,
        retry_ms: Option<u64>,
    }
    let retry_ms = close.retry_ms();
    let data =
        Data { code: close.code(), reason: close.reason(), reconnect: close.can_reconnect(), retry_ms };
    // Serialization cannot fail: the struct has no map and no fallible field.
    let data = serde_json::to_string(&data).unwrap_or_default();
    let id = (!close.can_reconnect()).then(|| end_id(close, last));
    let retry = retry_ms.map(|ms| format!("retry: {ms}\n")).unwrap_or_default();
    let replaced = if close == Close::Replaced { "event: replaced\ndata: {}\n\n" } else { "" };
    let id = id.as_ref().map(|id| id as &dyn Display);
    format!("{replaced}{retry}{}", frame(Some("system.close"), id, Some(&data)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::StreamId;

    #[test]
    fn frames_have_the_lines_that_are_given() {
        let id = StreamId::new(7, 1);
        assert_eq!(frame(Some("a.b"), Some(&id), Some("{}")), "event: a.b\nid: 7-1\ndata: {}\n\n");
        assert_eq!(frame(None, Some(&17), Some("{\"id\":17}")), "id: 17\ndata: {\"id\":17}\n\n");
        assert_eq!(frame(Some("ping"), None, Some("{}")), "event: ping\ndata: {}\n\n");
        assert_eq!(frame(None, Some(&17), None), "id: 17\n\n");
    }

    #[test]
    fn a_stream_begins_with_where_it_stands() {
        assert_eq!(greeting(2_000, None::<StreamId>), "retry: 2000\n\n");
        assert_eq!(greeting(2_000, Some(StreamId::new(7, 1))), "id: 7-1\nretry: 2000\n\n");
        assert_eq!(greeting(2_000, Some(StreamId::START.for_client())), "id: 0-1\nretry: 2000\n\n");
    }

    #[test]
    fn endings_say_whether_to_come_back() {
        let last = StreamId::new(7, 1);
        assert_eq!(
            close(Close::TokenExpired, last),
            "event: system.close\nid: end.3502.7-1\n\
             data: {\"code\":3502,\"reason\":\"token expired or revoked\",\"reconnect\":false,\"retryMs\":null}\n\n"
        );
        assert!(
            close(Close::Replaced, last).starts_with("event: replaced\ndata: {}\n\nevent: system.close\n")
        );
        let draining = close(Close::Draining, last);
        assert!(draining.starts_with("retry: "), "{draining}");
        assert!(draining.contains(
            "\nevent: system.close\ndata: {\"code\":3000,\"reason\":\"draining\",\"reconnect\":true,"
        ));
    }
}
