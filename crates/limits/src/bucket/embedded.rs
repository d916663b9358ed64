//! Buckets of one process, in memory.

use std::sync::{Mutex, PoisonError};

use bongsu_kernel::{Clock, Millis, Recent};

use super::{Buckets, ROUNDING, Rate, Refused};
use crate::Boxed;

/// So many buckets are remembered.
const MOST: usize = 100_000;

/// See the module.
pub struct EmbeddedBuckets {
    clock: Clock,
    buckets: Mutex<Recent<String, Bucket>>,
}

struct Bucket {
    level: f64,
    at: Millis,
}

impl EmbeddedBuckets {
    pub fn new(clock: Clock) -> Self {
        Self { clock, buckets: Mutex::new(Recent::new(MOST)) }
    }

    fn take_now(&self, key: &str, rate: Rate, cost: f64) -> Result<(), Refused> {
        if cost > rate.burst {
            return Err(Refused::Never);
        }
        let now = self.clock.now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let level = match buckets.get(key) {
            Some(bucket) => {
                // A clock that went back lets nothing flow in, and goes on from where it is.
                let seconds = now.saturating_sub(bucket.at) as f64 / 1_000.0;
                bucket.level = (bucket.level + seconds * rate.per_second).min(rate.burst);
                bucket.at = now;
                &mut bucket.level
            }
            None if cost == 0.0 => return Ok(()),
            None => {
                buckets.insert(key.to_owned(), Bucket { level: rate.burst - cost, at: now }, 1);
                return Ok(());
            }
        };
        let missing = cost - *level;
        if missing > ROUNDING {
            return Err(Refused::RetryAfter(rate.wait(missing)));
        }
        *level -= cost;
        Ok(())
    }
}

impl Buckets for EmbeddedBuckets {
    fn take<'a>(&'a self, key: &'a str, rate: Rate, cost: u32) -> Boxed<'a, Result<(), Refused>> {
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
        assert_eq!(buckets.take_now("a", rate, 1.0), Err(Refused::RetryAfter(Duration::from_millis(500))));
        clock.set(10_499);
        assert_eq!(buckets.take_now("a", rate, 1.0), Err(Refused::RetryAfter(Duration::from_millis(1))));
        clock.set(10_500);
        assert_eq!(buckets.take_now("a", rate, 1.0), Ok(()));
        clock.set(1_000);
        assert!(buckets.take_now("a", rate, 1.0).is_err(), "the clock went back");
        clock.set(1_500);
        assert_eq!(buckets.take_now("a", rate, 1.0), Ok(()), "and goes on from there");
        clock.set(100_000);
        assert_eq!(buckets.take_now("a", rate, 4.0), Ok(()));
        assert!(buckets.take_now("a", rate, 1.0).is_err(), "no more than the burst was there");
        assert_eq!(buckets.take_now("a", rate, 5.0), Err(Refused::Never));
        assert_eq!(buckets.take_now("b", rate, 0.0), Ok(()));
    }
}
