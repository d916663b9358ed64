//! The settings of personal streams.

use std::time::Duration;

use bongsu_kernel::settings::{Setting, Values};
use bongsu_limits::{Limit, Policy};
use bongsu_live::{Manner, RETRY_MS};

const PART: &str = "members";
const MEMBER_STREAM_LIFETIME_SECS: Setting = Setting::text(
    PART,
    "MEMBER_STREAM_LIFETIME_SECS",
    "1800",
    "A personal stream ends after so long (3001, up to a tenth earlier) and the client comes back by itself.",
)
.whole(1, 86_400);
const MEMBER_STREAM_PING_SECS: Setting = Setting::text(
    PART,
    "MEMBER_STREAM_PING_SECS",
    "20",
    "After so much silence a personal stream sends the event ping.",
)
.whole(1, 3_600);
const MEMBER_MAX_CONNECTIONS: Setting = Setting::text(
    PART,
    "MEMBER_MAX_CONNECTIONS",
    "3",
    "Personal streams of one person. The next one is let in, and the oldest ends for good (3500).",
)
.whole(1, 100);
pub const SETTINGS: &[&Setting] =
    &[&MEMBER_STREAM_LIFETIME_SECS, &MEMBER_STREAM_PING_SECS, &MEMBER_MAX_CONNECTIONS];

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
