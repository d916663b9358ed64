//! The trace that something belongs to (W3C Trace Context, `traceparent`): taken from a request, carried along with what comes
//! of it, and passed on as it came.
//!
//! While something runs in the [`scope`] of a trace, its log lines carry `trace_id`, and whatever it records may ask for
//! [`current`].

use std::fmt;
use std::future::Future;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tracing::{Instrument, Span};

/// The name of the header, of the column and of the field.
pub const TRACEPARENT: &str = "traceparent";

/// Characters: version, trace id, parent id and flags, with a hyphen between.
const LENGTH: usize = 55;

tokio::task_local! {
    static CURRENT: Option<TraceParent>;
}

/// A well-formed `traceparent` of version 00.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceParent([u8; LENGTH]);

impl TraceParent {
    /// None for what is not well-formed: it is left out, as the standard wants it. A later version is taken for 00.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.trim().as_bytes();
        let mut parent: [u8; LENGTH] = bytes.get(..LENGTH)?.try_into().ok()?;
        let is_later = &parent[..2] != b"00";
        let ends = bytes.len() == LENGTH || (is_later && bytes[LENGTH] == b'-');
        let shaped = parent.iter().enumerate().all(|(at, byte)| match at {
            2 | 35 | 52 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
        let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
        if !ends || !shaped || &parent[..2] == b"ff" || is_zero(&parent[3..35]) || is_zero(&parent[36..52]) {
            return None;
        }
        parent[..2].copy_from_slice(b"00");
        Some(Self(parent))
    }

    pub fn as_str(&self) -> &str {
        // Only ASCII gets in.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// What all parts of one trace have in common.
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

/// Reads the field of a stored record. What is not well-formed is left out: it must not cost the record.
pub fn stored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TraceParent>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.as_deref().and_then(TraceParent::parse))
}

/// The trace of what runs now.
pub fn current() -> Option<TraceParent> {
    CURRENT.try_with(|trace| *trace).ok().flatten()
}

/// Runs something as a part of a trace.
pub fn scope<F: Future>(trace: Option<TraceParent>, work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(trace, work.instrument(span(trace)))
}

/// The same for what does not wait.
pub fn sync_scope<T>(trace: Option<TraceParent>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(trace, || span(trace).in_scope(work))
}

/// What log lines of a trace stand in. Of the highest level, so that no filter for levels leaves the trace out.
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
        let read = |text: &str| stored(&mut serde_json::Deserializer::from_str(text)).unwrap();
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
