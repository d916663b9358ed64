//! Supervised tasks. Every loop of the process has a name and a policy for its unexpected end, and is joined at
//! shutdown.
//!
//! Three forms exist: a loop with its own future ([`Supervisor::spawn`], [`Supervisor::run`]), a function that is
//! called periodically ([`Supervisor::every`]), and a consumer of a queue ([`Supervisor::queue`]).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time between the end of a loop and its restart.
const RESTART_DELAY: Duration = Duration::from_millis(500);

/// The reaction of the supervisor when a loop ends before shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnEnd {
    /// The supervisor restarts the loop after a delay.
    Restart,
    /// The process shuts down, because it cannot work without the loop.
    Fatal,
}

/// Starts, restarts and joins named tasks. Cheap to clone.
#[derive(Clone, Default)]
pub struct Supervisor {
    tracker: TaskTracker,
    stop: CancellationToken,
    failed: CancellationToken,
}

impl Supervisor {
    pub fn new() -> Self {
        Self::default()
    }

    /// The token that is cancelled when shutdown begins. Loops select on it.
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Resolves when a task that the process depends on has failed.
    pub async fn failed(&self) {
        self.failed.cancelled().await;
    }

    /// Reports the failure of a component that the process depends on and that is not a supervised loop.
    pub fn fail(&self, name: &'static str) {
        if !self.stop.is_cancelled() {
            tracing::error!(task = name, "a vital component failed; shutting down");
            self.failed.cancel();
        }
    }

    /// Runs a loop on the current runtime until shutdown. `make` creates its future, again for each restart.
    #[expect(clippy::disallowed_methods, reason = "the only place that spawns loops")]
    pub fn spawn<F>(&self, name: &'static str, on_end: OnEnd, mut make: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let this = self.clone();
        self.tracker.spawn(async move {
            while !this.stop.is_cancelled() {
                // The future runs in a separate task, so that a panic in it does not end the supervision.
                let ended = tokio::spawn(make()).await;
                if this.stop.is_cancelled() {
                    break;
                }
                match ended {
                    Ok(()) => tracing::error!(task = name, ?on_end, "a task ended unexpectedly; restarting it, or shutting down if on_end is Fatal"),
                    Err(error) => tracing::error!(task = name, ?on_end, %error, "a task failed; restarting it, or shutting down if on_end is Fatal"),
                }
                if on_end == OnEnd::Fatal {
                    this.failed.cancel();
                    break;
                }
                tokio::time::sleep(RESTART_DELAY).await;
            }
        });
    }

    /// Runs a loop that is dropped at shutdown, at whichever await point it is, and restarted when it ends earlier.
    pub fn run<S, F>(&self, name: &'static str, state: &S, work: impl Fn(S) -> F + Send + 'static)
    where
        S: Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.run_until_stop(name, state, work, |_| std::future::ready(()));
    }

    /// As [`Self::run`], but calls `at_stop` once when the shutdown has cancelled the work.
    pub fn run_until_stop<S, F, G>(
        &self,
        name: &'static str,
        state: &S,
        work: impl Fn(S) -> F + Send + 'static,
        at_stop: impl Fn(S) -> G + Send + 'static,
    ) where
        S: Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
        G: Future<Output = ()> + Send + 'static,
    {
        let (state, stop) = (state.clone(), self.stop());
        self.spawn(name, OnEnd::Restart, move || {
            let (work, at_stop, stop) = (work(state.clone()), at_stop(state.clone()), stop.clone());
            async move {
                if stop.run_until_cancelled(work).await.is_none() {
                    at_stop.await;
                }
            }
        });
    }

    /// Calls `work` repeatedly until shutdown, with a pause of `interval` before each call.
    pub fn every<S, F>(
        &self,
        name: &'static str,
        interval: Duration,
        state: &S,
        work: impl Fn(S) -> F + Send + Sync + 'static,
    ) where
        S: Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (work, state, stop) = (Arc::new(work), state.clone(), self.stop());
        self.spawn(name, OnEnd::Restart, move || {
            let (work, state, stop) = (work.clone(), state.clone(), stop.clone());
            async move {
                loop {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(interval) => work(state.clone()).await,
                    }
                }
            }
        });
    }

    /// Creates a queue of `capacity` items, and a loop that consumes it until shutdown: it calls `consume` with up to
    /// `max_batch` items at a time. The items of a call that panics are lost.
    pub fn queue<T, F>(
        &self,
        name: &'static str,
        (capacity, max_batch): (usize, usize),
        consume: impl Fn(Vec<T>) -> F + Send + Sync + 'static,
    ) -> mpsc::Sender<T>
    where
        T: Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(capacity);
        let state = (Arc::new(consume), Arc::new(Mutex::new(receiver)));
        self.run(name, &state, move |(consume, receiver)| async move {
            let mut receiver = receiver.lock().await;
            let mut batch = Vec::new();
            while receiver.recv_many(&mut batch, max_batch).await > 0 {
                consume(std::mem::take(&mut batch)).await;
            }
            // All senders are dropped. The loop waits for shutdown, because an end would count as a failure.
            std::future::pending::<()>().await;
        });
        sender
    }

    /// Asks all loops to end and waits for them up to `timeout`. Returns false when some loops are still running.
    pub async fn shut_down(&self, timeout: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(timeout, self.tracker.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_is_started_again() {
        let supervisor = Supervisor::new();
        let runs = Arc::new(AtomicU32::new(0));
        let (counter, stop) = (runs.clone(), supervisor.stop());
        supervisor.spawn("test", OnEnd::Restart, move || {
            let (counter, stop) = (counter.clone(), stop.clone());
            async move {
                assert!(counter.fetch_add(1, Ordering::SeqCst) >= 2, "the first two runs fail");
                stop.cancelled().await;
            }
        });
        while runs.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(supervisor.shut_down(Duration::from_secs(5)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_goes_on_after_a_turn_that_panics() {
        let supervisor = Supervisor::new();
        let (consumed, mut batches) = mpsc::unbounded_channel();
        let queue = supervisor.queue("test", (4, 2), move |batch: Vec<u32>| {
            let consumed = consumed.clone();
            async move {
                assert!(!batch.contains(&1), "this call fails");
                assert!(consumed.send(batch).is_ok(), "the test still receives");
            }
        });
        for item in 1..=4 {
            assert!(queue.try_send(item).is_ok(), "the queue has room for {item}");
        }
        assert!(queue.try_send(5).is_err(), "the queue is full");
        assert_eq!(batches.recv().await, Some(vec![3, 4]));
        drop(queue);
        assert!(supervisor.shut_down(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn the_end_of_a_vital_task_is_told() {
        let supervisor = Supervisor::new();
        supervisor.spawn("vital", OnEnd::Fatal, || async {});
        supervisor.failed().await;
    }
}
