//! The settings of coordination.

use std::time::Duration;

use bongsu_kernel::settings::Values;

bongsu_kernel::settings! { pub SETTINGS of "coordination":
    LOCK_TTL_SECS = "10", whole(1, 3_600):
        "How long a lock (lock:event:<id>) holds without being renewed. A loop that runs on one instance only moves to another one after so long when its instance dies.";
}

/// An instance that was not heard of for so long is gone.
pub const LEASE: Duration = Duration::from_secs(10);

/// How long a lock holds without being renewed.
pub fn lock_ttl(values: &Values) -> Duration {
    values.seconds(&LOCK_TTL_SECS)
}
