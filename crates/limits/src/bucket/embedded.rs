//! Buckets of one process, in memory.

use std::sync::Mutex;

use bongsu_kernel::{Clock, Millis, RecentCache, lock};

use super::{Buckets, Rate, RateLimitError, SHORTFALL_TOLERANCE};
use crate::BoxFuture;

/// Maximum number of buckets kept in memory.
const MAX_BUCKETS: usize = 100_000;

/// Buckets in the memory of one process.
pub struct EmbeddedBuckets {
    clock: Clock,
    buckets: Mutex<RecentCache<String, Bucket>>,
}

struct Bucket {
    level: f64,
    updated_at: Millis,
}

impl EmbeddedBuckets {
    pub fn new(clock: Clock) -> Self {
        Self { clock, buckets: Mutex::new(RecentCache::new(MAX_BUCKETS)) }
    }

    fn take_now(&self, key: &str, rate: Rate, cost: f64) -> Result<(), RateLimitError> {
        if cost > rate.burst {
            return Err(RateLimitError::ExceedsBurst);
        }
        let now = self.clock.now();
        let mut buckets = lock(&self.buckets);
        let level = match buckets.get(key) {
            Some(bucket) => {
                // After the clock was set back, no tokens are added for the lost time; filling continues from the new
                // time.
                let seconds = now.saturating_sub(bucket.updated_at) as f64 / 1_000.0;
                bucket.level = (bucket.level + seconds * rate.per_second).min(rate.burst);
                bucket.updated_at = now;
                &mut bucket.level
            }
            None if cost == 0.0 => return Ok(()),
            None => {
                buckets.insert(key.to_owned(), Bucket { level: rate.burst - cost, updated_at: now }, 1);
                return Ok(());
            }
        };
        let missing = cost - *level;
        if missing > SHORTFALL_TOLERANCE {
            return Err(RateLimitError::RetryAfter(rate.wait(missing)));
        }
        *level -= cost;
        Ok(())
    }
}

impl Buckets for EmbeddedBuckets {
    fn take<'a>(&'a self, key: &'a str, rate: Rate, cost: u32) -> BoxFuture<'a, Result<(), RateLimitError>> {
        Box::pin(async move { self.take_now(key, rate, f64::from(cost)) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_fills_with_the_clock_and_not_past_its_burst() {
        let clock = Clock::manual(10_000);
        let buckets = EmbeddedBuckets::new(clock.clone());
        let rate = Rate::new(2.0, 4).unwrap();
        assert_eq!(buckets.take_now("a", rate, 4.0), Ok(()));
        assert_eq!(
            buckets.take_now("a", rate, 1.0),
            Err(RateLimitError::RetryAfter(Duration::from_millis(500)))
        );
        clock.set(10_499);
        assert_eq!(
            buckets.take_now("a", rate, 1.0),
            Err(RateLimitError::RetryAfter(Duration::from_millis(1)))
        );
        clock.set(10_500);
        assert_eq!(buckets.take_now("a", rate, 1.0), Ok(()));
        clock.set(1_000);
        assert!(buckets.take_now("a", rate, 1.0).is_err(), "nothing flows in when the clock goes back");
        clock.set(1_500);
        assert_eq!(buckets.take_now("a", rate, 1.0), Ok(()), "time counts on from the new clock");
        clock.set(100_000);
        assert_eq!(buckets.take_now("a", rate, 4.0), Ok(()));
        assert!(buckets.take_now("a", rate, 1.0).is_err(), "the bucket holds no more than its burst");
        assert_eq!(buckets.take_now("a", rate, 5.0), Err(RateLimitError::ExceedsBurst));
        assert_eq!(buckets.take_now("b", rate, 0.0), Ok(()));
    }
}
