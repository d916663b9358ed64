//! Token buckets: so many things a second, and so many at once.
//!
//! The contract is written on [`Buckets`]; `tests/it/bucket_contract.rs` holds every adapter against it.

pub mod embedded;
pub mod redis;

use std::time::Duration;

use bongsu_kernel::Outage;

use crate::Boxed;

/// Buckets by name, each of which fills at its rate up to its burst.
///
/// - **Never more.** Over any time, no more is taken from a bucket than its burst and what flowed in meanwhile, over the
///   whole fleet. Looking and taking are one step.
/// - **Full at first.** A bucket that nobody has used is full; one that has filled up again is forgotten. Where memory is
///   short those that were not used for longest are forgotten earlier, and are full then.
/// - **Rates may change** from one call to the next: what was taken stays taken.
/// - **Errors.** After [`Refused::Away`] what was asked for may have been taken.
pub trait Buckets: Send + Sync {
    /// Takes `cost` out of the bucket, or nothing.
    fn take<'a>(&'a self, key: &'a str, rate: Rate, cost: u32) -> Boxed<'a, Result<(), Refused>>;
}

/// So little may be missing: fractions are not exact. It stays owed, so that it does not add up.
const ROUNDING: f64 = 0.000_001;

/// How a bucket fills.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    per_second: f64,
    burst: f64,
}

impl Rate {
    /// None when nothing would ever flow in, or nothing fit.
    pub fn new(per_second: f64, burst: u32) -> Option<Self> {
        (per_second.is_finite() && per_second > 0.0 && burst > 0)
            .then(|| Self { per_second, burst: f64::from(burst) })
    }

    /// How long it takes until so much has flowed in, rounded up so that it is there then.
    fn wait(self, missing: f64) -> Duration {
        let ms = ((missing - ROUNDING) / self.per_second * 1_000.0).ceil().max(1.0);
        // Saturates: nobody waits for longer than that.
        Duration::from_millis(ms as u64)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("too many; again in {} ms", .0.as_millis())]
    RetryAfter(Duration),
    /// More than the bucket holds: waiting does not help.
    #[error("more than is ever allowed at once")]
    Never,
    /// The engine cannot be asked now, or did not answer.
    #[error("limits cannot be checked: {0}")]
    Away(#[from] Outage),
}
