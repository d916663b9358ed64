//! The settings of personal streams.

use std::time::Duration;

use bongsu_kernel::settings::Values;
use bongsu_limits::{Limit, Policy};
use bongsu_live::{RETRY_MS, StreamConfig};

bongsu_kernel::settings! { pub SETTINGS of "members":
    MEMBER_STREAM_LIFETIME_SECS = "1800", integer(1, 86_400):
        "Seconds after which a personal stream is closed (3001, up to a tenth earlier); its client reconnects.";
    MEMBER_STREAM_PING_SECS = "20", integer(1, 3_600):
        "Seconds without a message after which a personal stream sends the event ping.";
    MEMBER_MAX_CONNECTIONS = "3", integer(1, 100):
        "Maximum number of personal streams per person. A further one replaces the oldest, which closes for good (3500).";
}

#[derive(Clone, Debug)]
pub struct Options {
    pub lifetime: Duration,
    pub ping_interval: Duration,
    pub max_connections: usize,
}

impl Options {
    pub fn from_settings(values: &Values) -> Self {
        Self {
            lifetime: values.seconds(&MEMBER_STREAM_LIFETIME_SECS),
            ping_interval: values.seconds(&MEMBER_STREAM_PING_SECS),
            max_connections: values.size(&MEMBER_MAX_CONNECTIONS),
        }
    }

    /// The connection limit, which replaces the oldest connection. Other programs also read keys and messages of this
    /// name.
    pub(crate) fn limit(&self) -> Limit {
        Limit {
            name: "sse:notification",
            max: self.max_connections,
            policy: Policy::Replace,
            lifetime: Some(self.lifetime),
        }
    }

    pub(crate) fn stream_config(&self) -> StreamConfig {
        StreamConfig {
            keepalive: self.ping_interval,
            keepalive_frame: b"event: ping\ndata: {}\n\n",
            lifetime: Some(self.lifetime),
            // The general stream limit does not apply, because personal streams have their own limit.
            is_limited: false,
            retry_ms: RETRY_MS,
            has_initial_position: false,
        }
    }
}
