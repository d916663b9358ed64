//! The settings of coordination.

use std::time::Duration;

use bongsu_kernel::settings::{Setting, Values};

const LOCK_TTL_SECS: Setting = Setting::text(
    "coordination",
    "LOCK_TTL_SECS",
    "10",
    "How long a lock (lock:event:<id>) holds without being renewed. A loop that runs on one instance only moves to another one after so long when its instance dies.",
)
.whole(1, 3_600);
pub const SETTINGS: &[&Setting] = &[&LOCK_TTL_SECS];

/// An instance that was not heard of for so long is gone.
pub const LEASE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub lock_ttl: Duration,
    /// How long an instance counts as alive after its last sign.
    pub lease: Duration,
}

impl Options {
    pub fn from_settings(values: &Values) -> Self {
        Self { lock_ttl: values.seconds(&LOCK_TTL_SECS), lease: LEASE }
    }
}
