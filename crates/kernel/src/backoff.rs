//! The delay before a retry: doubled with each failure up to a maximum, with random jitter so that clients that failed
//! together do not retry together.

use std::time::Duration;

use crate::random;

/// An exponential backoff with jitter.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    /// The smallest and the largest delay, in percent of the delay that doubling gives.
    jitter: (u64, u64),
}

impl Backoff {
    pub const fn new(first: Duration, max: Duration, jitter: (u64, u64)) -> Self {
        Self { first, max, jitter }
    }

    /// The delay after this number of failures in a row; zero when there was no failure.
    pub fn delay(&self, failures: u64) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 2_u32.saturating_pow(u32::try_from(doublings).unwrap_or(u32::MAX));
        let unjittered = self.first.saturating_mul(factor).min(self.max);
        let ms = u64::try_from(unjittered.as_millis()).unwrap_or(u64::MAX);
        let percent = |percent: u64| ms.saturating_mul(percent) / 100;
        Duration::from_millis(random::between(percent(self.jitter.0), percent(self.jitter.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_their_bound_and_vary_within_their_range() {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5), (50, 125));
        assert_eq!(backoff.delay(0), Duration::ZERO);
        for (failures, unjittered) in
            [(1, 100), (2, 200), (3, 400), (6, 3_200), (7, 5_000), (u64::MAX, 5_000)]
        {
            let delays: Vec<u128> = (0..200).map(|_| backoff.delay(failures).as_millis()).collect();
            assert!(
                delays.iter().all(|delay| (unjittered / 2..=unjittered * 5 / 4).contains(delay)),
                "{failures}: {delays:?}"
            );
            assert!(delays.iter().any(|delay| *delay != delays[0]), "no jitter after {failures} failures");
        }
    }
}
