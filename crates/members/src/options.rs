//! The settings of personal streams.

use std::time::Duration;

use bongsu_kernel::settings::Values;
use bongsu_limits::{Limit, Policy};
use bongsu_live::{Manner, RETRY_MS};

bongsu_kernel::settings! { pub SETTINGS of "members":
    MEMBER_STREAM_LIFETIME_SECS = "1800", whole(1, 86_400):
        "A personal stream ends after so long (3001, up to a tenth earlier) and the client comes back by itself.";
    MEMBER_STREAM_PING_SECS = "20", whole(1, 3_600):
        "After so much silence a personal stream sends the event ping.";
    MEMBER_MAX_CONNECTIONS = "3", whole(1, 100):
        "Personal streams of one person. The next one is let in, and the oldest ends for good (3500).";
}

#[derive(Clone, Debug)]
pub struct Options {
    pub lifetime: Duration,
    pub ping: Duration,
    pub most: usize,
}

impl Options {
    pub fn from_settings(values: &Values) -> Self {
        Self {
            lifetime: values.seconds(&MEMBER_STREAM_LIFETIME_SECS),
            ping: values.seconds(&MEMBER_STREAM_PING_SECS),
            most: values.size(&MEMBER_MAX_CONNECTIONS),
        }
    }

    /// The newest connections stay. Keys and messages of this name are also read by other programs.
    pub(crate) fn limit(&self) -> Limit {
        Limit {
            name: "sse:notification",
            max: self.most,
            policy: Policy::Replace,
            lifetime: Some(self.lifetime),
        }
    }

    pub(crate) fn manner(&self) -> Manner {
        Manner {
            keepalive: self.ping,
            alive: b"event: ping\ndata: {}\n\n",
            lifetime: Some(self.lifetime),
            // It has a limit of its own.
            is_limited: false,
            retry_ms: RETRY_MS,
            is_placed: false,
        }
    }
}
