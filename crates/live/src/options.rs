//! The settings of live delivery.

use std::time::Duration;

use bongsu_kernel::settings::{Scope, Values};
use bongsu_kernel::sse;

bongsu_kernel::settings! { pub SETTINGS of "live":
    SSE_CHANNEL_CAPACITY = "256", scope(Scope::Instance), integer(1, 65_536):
        "Recent events per room that are kept in memory for its streams.";
    SSE_RING_BYTES = "268435456", scope(Scope::Instance), integer(0, u64::MAX):
        "Bytes of memory for the recent events of all rooms together. Above this limit, streams read events from the log.";
    SSE_KEEPALIVE_SECS = "15", integer(1, 3_600):
        "Seconds without data after which a stream sends a keepalive.";
    SSE_STALL_SECS = "30", integer(1, 3_600):
        "Seconds after which a stream whose client takes no bytes is closed (3002).";
    SSE_LIFETIME_SECS = "3600", integer(0, 604_800):
        "Seconds after which a stream is closed (3001, up to a tenth earlier); its client reconnects, which spreads clients over the instances again. 0: never.";
    SSE_MAX_CONNECTIONS_PER_USER = "5", integer(0, 1_000_000):
        "Maximum number of open streams per person; further ones are refused until one is closed (3004). 0: no limit.";
    SSE_MAX_CONNECTIONS = "0", scope(Scope::Instance), integer(0, 10_000_000):
        "Maximum number of open streams of an instance. 0: as many as the system allows.";
}

#[derive(Clone, Debug)]
pub struct Options {
    pub ring_frames: usize,
    pub ring_bytes: usize,
    pub keepalive: Duration,
    pub stall: Duration,
    pub lifetime: Option<Duration>,
    /// Open streams per person; 0 for any number.
    pub max_streams_per_person: usize,
    pub max_streams: usize,
}

/// How streams of a subject kind behave.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    pub keepalive: Duration,
    /// The bytes that the stream sends after `keepalive` without data.
    pub keepalive_frame: &'static [u8],
    pub lifetime: Option<Duration>,
    /// Whether the stream counts towards the person's connection limit (`ConnectionQuota`).
    pub is_limited: bool,
    /// Clients reconnect after a random time between these, in milliseconds.
    pub retry_ms: (u64, u64),
    /// Whether a stream that was opened without a position sends its position at once. If not, the client gets a
    /// position with the first event or after it.
    pub has_initial_position: bool,
}

/// Default bounds of the time after which clients reconnect, in milliseconds.
pub const RETRY_MS: (u64, u64) = (1_000, 3_000);

impl Options {
    /// The configuration of streams of rooms.
    pub fn stream_config(&self) -> StreamConfig {
        StreamConfig {
            keepalive: self.keepalive,
            keepalive_frame: sse::KEEPALIVE,
            lifetime: self.lifetime,
            is_limited: true,
            retry_ms: RETRY_MS,
            has_initial_position: true,
        }
    }

    pub fn from_settings(values: &Values) -> Self {
        Self {
            ring_frames: values.size(&SSE_CHANNEL_CAPACITY),
            ring_bytes: values.size(&SSE_RING_BYTES),
            keepalive: values.seconds(&SSE_KEEPALIVE_SECS),
            stall: values.seconds(&SSE_STALL_SECS),
            lifetime: values.seconds_unless_zero(&SSE_LIFETIME_SECS),
            max_streams_per_person: values.size(&SSE_MAX_CONNECTIONS_PER_USER),
            max_streams: values.size(&SSE_MAX_CONNECTIONS),
        }
    }
}
