//! Trace context (W3C Trace Context, `traceparent`). The hub takes it from a request, stores it with the records that
//! the request causes, and passes it on unchanged.
//!
//! Log lines that are written within the [`scope`] of a trace have the field `trace_id`. Code within a scope reads the
//! trace with [`current`], to store it with a record.

use std::fmt;
use std::future::Future;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tracing::{Instrument, Span};

/// The name of the HTTP header, of the SQL column and of the JSON field.
pub const TRACEPARENT: &str = "traceparent";

/// Characters of a `traceparent`: version (2), trace id (32), parent id (16) and flags (2), separated by hyphens.
const TRACEPARENT_LEN: usize = 55;

tokio::task_local! {
    static CURRENT: Option<TraceParent>;
}

/// A well-formed `traceparent` of version 00.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceParent([u8; TRACEPARENT_LEN]);

impl TraceParent {
    /// Parses the header. None for a malformed value, which the standard requires to be ignored. A value of a later
    /// version is treated as version 00.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.trim().as_bytes();
        let mut parent: [u8; TRACEPARENT_LEN] = bytes.get(..TRACEPARENT_LEN)?.try_into().ok()?;
        let is_later_version = &parent[..2] != b"00";
        let has_valid_end =
            bytes.len() == TRACEPARENT_LEN || (is_later_version && bytes[TRACEPARENT_LEN] == b'-');
        let has_valid_form = parent.iter().enumerate().all(|(at, byte)| match at {
            2 | 35 | 52 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
        let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
        let has_valid_ids = !is_zero(&parent[3..35]) && !is_zero(&parent[36..52]);
        if !has_valid_end || !has_valid_form || &parent[..2] == b"ff" || !has_valid_ids {
            return None;
        }
        parent[..2].copy_from_slice(b"00");
        Some(Self(parent))
    }

    pub fn as_str(&self) -> &str {
        // `parse` admits only ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The id that all spans of one trace share.
    pub fn trace_id(&self) -> &str {
        &self.as_str()[3..35]
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Deserializes the field of a stored record. A malformed value becomes None, so that the record stays readable.
pub fn deserialize_stored<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<TraceParent>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.as_deref().and_then(TraceParent::parse))
}

/// The trace of the enclosing [`scope`], if any.
pub fn current() -> Option<TraceParent> {
    CURRENT.try_with(|trace| *trace).ok().flatten()
}

/// Runs a future within the scope of a trace.
pub fn scope<F: Future>(trace: Option<TraceParent>, work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(trace, work.instrument(span(trace)))
}

/// Runs a function within the scope of a trace.
pub fn sync_scope<T>(trace: Option<TraceParent>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(trace, || span(trace).in_scope(work))
}

/// The tracing span of a trace. It has the level ERROR, so that no level filter removes `trace_id` from log lines.
pub fn span(trace: Option<TraceParent>) -> Span {
    trace.map_or_else(Span::none, |trace| tracing::error_span!("trace", trace_id = trace.trace_id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_well_formed_ones_are_taken() {
        let trace = TraceParent::parse(GOOD).unwrap();
        assert_eq!((trace.as_str(), trace.trace_id()), (GOOD, "4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(TraceParent::parse(&format!(" {GOOD}\t")), Some(trace));
        for later in [GOOD.replacen("00", "cc", 1), GOOD.replacen("00", "01", 1) + "-what-comes-later"] {
            assert_eq!(TraceParent::parse(&later), Some(trace), "{later}");
        }
        for bad in [
            "",
            "00",
            &GOOD[1..],
            &GOOD.replace("4bf", "4BF"),
            &GOOD.replace("4bf", "4bg"),
            &GOOD.replace('-', "_"),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &format!("{GOOD}-more"),
            &GOOD.replacen("00", "cc", 1).replace("-01", "-01x"),
            "00-4bf92f3577b34da6a3ce929d0e0e473\u{e9}-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
        let json = serde_json::to_string(&trace).unwrap();
        let read = |text: &str| deserialize_stored(&mut serde_json::Deserializer::from_str(text)).unwrap();
        assert_eq!([read(&json), read("null"), read("\"00-1\"")], [Some(trace), None, None]);
    }

    #[tokio::test]
    async fn what_runs_in_a_trace_knows_it() {
        assert_eq!(current(), None);
        let trace = TraceParent::parse(GOOD);
        assert_eq!(scope(trace, async { current() }).await, trace);
        assert_eq!(sync_scope(trace, current), trace);
        assert_eq!(scope(trace, scope(None, async { current() })).await, None);
    }
}
