//! Waits for a condition instead of a fixed time.
//!
//! The condition is checked immediately and then every 10 ms. A test that waits too long fails with the line that
//! waited.

use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep};

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `condition` holds; panics with the caller's line if it does not hold within `timeout`.
// The bounds are `FnMut` and `Future` instead of `AsyncFnMut`, with which the compiler cannot prove that the returned
// future is `Send`, which a spawned task needs.
#[track_caller]
pub fn until<F, C>(timeout: Duration, condition: F) -> impl Future<Output = ()>
where
    F: FnMut() -> C,
    C: Future<Output = bool>,
{
    let caller = Location::caller();
    async move {
        assert!(
            holds_within(timeout, condition).await,
            "the condition at {caller} did not hold within {timeout:?}"
        );
    }
}

/// Whether `condition` becomes true within `timeout`.
pub async fn holds_within<F, C>(timeout: Duration, mut condition: F) -> bool
where
    F: FnMut() -> C,
    C: Future<Output = bool>,
{
    value_within(timeout, || {
        let checked = condition();
        async move { checked.await.then_some(()) }
    })
    .await
    .is_some()
}

/// The first value that `value` returns within `timeout`; None if `value` returns only None in that time.
pub async fn value_within<F, V, T>(timeout: Duration, mut value: F) -> Option<T>
where
    F: FnMut() -> V,
    V: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = value().await {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn sees_a_condition_that_comes_true() {
        let checks = AtomicUsize::new(0);
        until(Duration::from_secs(5), || async { checks.fetch_add(1, Ordering::SeqCst) == 2 }).await;
        assert_eq!(checks.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn waits_inside_a_task_and_for_a_value() {
        let text = "found".to_owned();
        let waiting = tokio::spawn(async move {
            until(Duration::from_secs(5), async || !text.is_empty()).await;
            value_within(Duration::from_secs(5), || async { text.find('u') }).await
        });
        assert_eq!(waiting.await.unwrap(), Some(2));
        assert_eq!(value_within(Duration::ZERO, || async { None::<u8> }).await, None);
    }

    #[tokio::test]
    #[should_panic(expected = "wait.rs")]
    async fn a_timeout_names_the_waiting_line() {
        until(Duration::ZERO, async || false).await;
    }
}
