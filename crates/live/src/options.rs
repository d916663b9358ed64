//! The settings of live delivery.

use std::time::Duration;

use bongsu_kernel::settings::{Scope, Values};
use bongsu_kernel::sse;

bongsu_kernel::settings! { pub SETTINGS of "live":
    SSE_CHANNEL_CAPACITY = "256", scope(Scope::Instance), whole(1, 65_536):
        "Recent events per room that are kept in memory for its streams.";
    SSE_RING_BYTES = "268435456", scope(Scope::Instance), whole(0, u64::MAX):
        "Bytes that the recent events of all rooms together may take in memory. Past it, streams read from the log.";
    SSE_KEEPALIVE_SECS = "15", whole(1, 3_600):
        "After so much silence a stream says that it is alive.";
    SSE_STALL_SECS = "30", whole(1, 3_600):
        "A reader that takes nothing for so long is ended (3002).";
    SSE_LIFETIME_SECS = "3600", whole(0, 604_800):
        "A stream ends after so long (3001, up to a tenth earlier) and the client comes back; spreads clients anew. 0: never.";
    SSE_MAX_CONNECTIONS_PER_USER = "5", whole(0, 1_000_000):
        "Open streams per person; the next one is refused for now (3004). 0: no limit.";
    SSE_MAX_CONNECTIONS = "0", scope(Scope::Instance), whole(0, 10_000_000):
        "Open streams in all. 0: as many as the system allows.";
}

#[derive(Clone, Debug)]
pub struct Options {
    pub ring_frames: usize,
    pub ring_bytes: usize,
    pub keepalive: Duration,
    pub stall: Duration,
    pub lifetime: Option<Duration>,
    /// Streams that a person may have open; 0 for any number.
    pub per_person: usize,
    pub most: usize,
}

/// How a stream behaves where families of subjects differ.
#[derive(Clone, Debug)]
pub struct Manner {
    pub keepalive: Duration,
    /// What it says after so much silence.
    pub alive: &'static [u8],
    pub lifetime: Option<Duration>,
    /// Whether it counts among the streams that a person may have open (`Places`).
    pub is_limited: bool,
    /// Clients come back after a time between these.
    pub retry_ms: (u64, u64),
    /// Whether one without a position is told at once where it stands; otherwise that comes with its first event, or after it.
    pub is_placed: bool,
}

/// The usual times after which clients come back.
pub const RETRY_MS: (u64, u64) = (1_000, 3_000);

impl Options {
    /// How streams of rooms behave.
    pub fn manner(&self) -> Manner {
        Manner {
            keepalive: self.keepalive,
            alive: sse::KEEPALIVE,
            lifetime: self.lifetime,
            is_limited: true,
            retry_ms: RETRY_MS,
            is_placed: true,
        }
    }

    pub fn from_settings(values: &Values) -> Self {
        Self {
            ring_frames: values.size(&SSE_CHANNEL_CAPACITY),
            ring_bytes: values.size(&SSE_RING_BYTES),
            keepalive: values.seconds(&SSE_KEEPALIVE_SECS),
            stall: values.seconds(&SSE_STALL_SECS),
            lifetime: values.seconds_unless_zero(&SSE_LIFETIME_SECS),
            per_person: values.size(&SSE_MAX_CONNECTIONS_PER_USER),
            most: values.size(&SSE_MAX_CONNECTIONS),
        }
    }
}
