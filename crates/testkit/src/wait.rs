//! Waiting for a condition instead of for a time.
//!
//! A condition is looked at every few milliseconds, at once the first time; a test that waits too long fails
//! at the line that waited.

use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(10);

/// Waits until `condition` holds; panics, naming the caller's line, when it does not within `timeout`.
// Futures and not `AsyncFnMut`: with that one the compiler cannot show that a spawned task may wait.
#[track_caller]
pub fn until<F, C>(timeout: Duration, condition: F) -> impl Future<Output = ()>
where
    F: FnMut() -> C,
    C: Future<Output = bool>,
{
    let caller = Location::caller();
    async move {
        assert!(holds_within(timeout, condition).await, "waited {timeout:?} in vain at {caller}");
    }
}

/// Whether `condition` comes to hold within `timeout`.
pub async fn holds_within<F, C>(timeout: Duration, mut condition: F) -> bool
where
    F: FnMut() -> C,
    C: Future<Output = bool>,
{
    value_within(timeout, || {
        let look = condition();
        async move { look.await.then_some(()) }
    })
    .await
    .is_some()
}

/// The value, once there is one within `timeout`.
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
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn sees_a_condition_that_comes_true() {
        let looks = AtomicUsize::new(0);
        until(Duration::from_secs(5), || async { looks.fetch_add(1, Ordering::SeqCst) == 2 }).await;
        assert_eq!(looks.load(Ordering::SeqCst), 3);
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
    async fn names_the_line_that_waited_in_vain() {
        until(Duration::ZERO, async || false).await;
    }
}
