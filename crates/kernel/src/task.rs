//! Supervised tasks: every loop has a name, says what its failure means, and is joined at shutdown.
//!
//! A task that repeats something, and one that empties a queue, are loops of the same kind.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What the end of a loop before shutdown means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnEnd {
    /// Start it again after a pause.
    Restart,
    /// The process cannot do its work without it: shut down.
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

    /// Resolves when shutdown was asked for. Loops select on it.
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Resolves when a task that the process depends on has ended.
    pub async fn failed(&self) {
        self.failed.cancelled().await;
    }

    /// Tells that something the process cannot do without has ended, from outside a supervised loop.
    pub fn fail(&self, name: &'static str) {
        if !self.stop.is_cancelled() {
            tracing::error!(task = name, "the task failed");
            self.failed.cancel();
        }
    }

    /// Runs a loop on the current runtime until shutdown.
    #[expect(clippy::disallowed_methods, reason = "the one place that spawns loops")]
    pub fn spawn<F>(&self, name: &'static str, on_end: OnEnd, mut make: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let this = self.clone();
        self.tracker.spawn(async move {
            while !this.stop.is_cancelled() {
                // A task of its own, so that a panic ends this turn and not the supervision.
                let ended = tokio::spawn(make()).await;
                if this.stop.is_cancelled() {
                    break;
                }
                match ended {
                    Ok(()) => tracing::error!(task = name, "the task ended unexpectedly"),
                    Err(error) => tracing::error!(task = name, %error, "the task failed"),
                }
                if on_end == OnEnd::Fatal {
                    this.failed.cancel();
                    break;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
    }

    /// Runs a loop that is dropped at shutdown, wherever it waits, and starts it again when it ends before.
    pub fn run<S, F>(&self, name: &'static str, state: &S, work: impl Fn(S) -> F + Send + 'static)
    where
        S: Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (state, stop) = (state.clone(), self.stop());
        self.spawn(name, OnEnd::Restart, move || {
            let (work, stop) = (work(state.clone()), stop.clone());
            async move {
                let _ = stop.run_until_cancelled(work).await;
            }
        });
    }

    /// Does something again and again, a pause before each turn, until shutdown.
    pub fn every<S, F>(
        &self,
        name: &'static str,
        pause: Duration,
        state: &S,
        turn: impl Fn(S) -> F + Send + Sync + 'static,
    ) where
        S: Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (turn, state, stop) = (Arc::new(turn), state.clone(), self.stop());
        self.spawn(name, OnEnd::Restart, move || {
            let (turn, state, stop) = (turn.clone(), state.clone(), stop.clone());
            async move {
                loop {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(pause) => turn(state.clone()).await,
                    }
                }
            }
        });
    }

    /// A queue for at most `most`, and a loop that empties it until shutdown, up to `at_once` in a turn. What a turn
    /// that fails has taken is gone.
    pub fn queue<T, F>(
        &self,
        name: &'static str,
        (most, at_once): (usize, usize),
        turn: impl Fn(Vec<T>) -> F + Send + Sync + 'static,
    ) -> mpsc::Sender<T>
    where
        T: Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (queue, waiting) = mpsc::channel(most);
        let state = (Arc::new(turn), Arc::new(Mutex::new(waiting)));
        self.run(name, &state, move |(turn, waiting)| async move {
            let mut waiting = waiting.lock().await;
            let mut some = Vec::new();
            while waiting.recv_many(&mut some, at_once).await > 0 {
                turn(std::mem::take(&mut some)).await;
            }
            // Nobody can put anything into it any more.
            std::future::pending::<()>().await;
        });
        queue
    }

    /// Asks every loop to end and waits for them, but not longer than `patience`. False when some were left.
    pub async fn shut_down(&self, patience: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(patience, self.tracker.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_is_started_again() {
        let supervisor = Supervisor::new();
        let turns = Arc::new(AtomicU32::new(0));
        let (counted, stop) = (turns.clone(), supervisor.stop());
        supervisor.spawn("test", OnEnd::Restart, move || {
            let (counted, stop) = (counted.clone(), stop.clone());
            async move {
                assert!(counted.fetch_add(1, Ordering::SeqCst) >= 2, "the first two turns fail");
                stop.cancelled().await;
            }
        });
        while turns.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(supervisor.shut_down(Duration::from_secs(5)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_goes_on_after_a_turn_that_panics() {
        let supervisor = Supervisor::new();
        let (told, mut heard) = mpsc::unbounded_channel();
        let queue = supervisor.queue("test", (4, 2), move |some: Vec<u32>| {
            let told = told.clone();
            async move {
                assert!(!some.contains(&1), "this turn fails");
                assert!(told.send(some).is_ok(), "somebody listens");
            }
        });
        for one in 1..=4 {
            assert!(queue.try_send(one).is_ok(), "there is room for {one}");
        }
        assert!(queue.try_send(5).is_err(), "it is full");
        assert_eq!(heard.recv().await, Some(vec![3, 4]));
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
