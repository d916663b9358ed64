//! The settings of coordination.

use std::time::Duration;

use bongsu_kernel::settings::Values;

bongsu_kernel::settings! { pub SETTINGS of "coordination":
    LOCK_TTL_SECS = "10", integer(1, 3_600):
        "Seconds for which a lock (lock:event:<id>) is held without being renewed. When the instance that runs a fleet-wide loop dies, another instance takes the loop over after this time.";
}

/// An instance whose lease was not renewed for this long no longer counts as alive.
pub const INSTANCE_LEASE_TTL: Duration = Duration::from_secs(10);

/// How long a lock is held without being renewed.
pub fn lock_ttl(values: &Values) -> Duration {
    values.seconds(&LOCK_TTL_SECS)
}
