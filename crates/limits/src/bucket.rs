//! The rate limit: token buckets, each with a rate per second and a burst.
//!
//! The contract is documented on [`Buckets`]; `tests/it/bucket_contract.rs` tests every adapter against it.

pub mod embedded;
pub mod redis;

use std::time::Duration;

use bongsu_kernel::Outage;

use crate::BoxFuture;

/// Buckets by name, each of which fills at its rate up to its burst.
///
/// - **Upper bound.** Over any period, no more tokens are taken from a bucket than its burst plus those added during
///   the period, over the whole fleet. Check and take are one step.
/// - **Full at first.** An unused bucket is full; a bucket that has filled up again is forgotten. When memory is short,
///   the least recently used buckets are forgotten earlier, and are full again.
/// - **Rates may change** from one call to the next; tokens that were taken stay taken.
/// - **Errors.** After [`RateLimitError::Unavailable`] the tokens may have been taken.
pub trait Buckets: Send + Sync {
    /// Takes `cost` tokens out of the bucket, or none.
    fn take<'a>(&'a self, key: &'a str, rate: Rate, cost: u32) -> BoxFuture<'a, Result<(), RateLimitError>>;
}

/// A shortfall of this many tokens is tolerated, because fractions are rounded. The bucket's level becomes negative by
/// that much, so that tolerated shortfalls do not add up.
const SHORTFALL_TOLERANCE: f64 = 0.000_001;

/// How a bucket fills.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    per_second: f64,
    burst: f64,
}

impl Rate {
    /// None unless `per_second` is finite and positive, and `burst` is positive.
    pub fn new(per_second: f64, burst: u32) -> Option<Self> {
        (per_second.is_finite() && per_second > 0.0 && burst > 0)
            .then(|| Self { per_second, burst: f64::from(burst) })
    }

    /// The time until the missing tokens have been added, rounded up.
    fn wait(self, missing: f64) -> Duration {
        let ms = ((missing - SHORTFALL_TOLERANCE) / self.per_second * 1_000.0).ceil().max(1.0);
        // The cast saturates at `u64::MAX` ms, which is long enough.
        Duration::from_millis(ms as u64)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateLimitError {
    #[error("the rate limit is exceeded; retry in {} ms", .0.as_millis())]
    RetryAfter(Duration),
    /// The cost is larger than the burst: waiting does not help.
    #[error("the cost is larger than the burst")]
    ExceedsBurst,
    /// The engine is unreachable or did not answer.
    #[error("the rate limit cannot be checked: {0}")]
    Unavailable(#[from] Outage),
}
