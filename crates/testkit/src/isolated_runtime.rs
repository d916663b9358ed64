//! A tokio runtime on its own thread, for a test that needs several instances of something that is not a process: one
//! instance can be killed or paused while the others continue.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::sync::oneshot;

/// A runtime on its own thread. Dropping it kills the runtime, as [`IsolatedRuntime::kill`] does.
pub struct IsolatedRuntime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl IsolatedRuntime {
    pub fn start() -> Self {
        let (stop, stopped) = oneshot::channel();
        let (started, starting) = mpsc::channel();
        let thread = std::thread::Builder::new().name("isolated-runtime".to_owned()).spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("cannot build a runtime");
            started.send(runtime.handle().clone()).expect("the starting thread has ended");
            // Returns on a message and when the sender is dropped.
            let _ = runtime.block_on(stopped);
        });
        let handle = starting.recv().expect("the thread of the runtime has ended");
        Self { handle, stop: Some(stop), thread: Some(thread.expect("cannot start a thread")) }
    }

    /// While the guard lives, tasks that this thread spawns run on the isolated runtime. Do not hold the guard across
    /// an await.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Runs a future on the isolated runtime and waits for its output.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.handle.spawn(work).await.expect("the task panicked or was cancelled")
    }

    /// Drops every task at its current await point: no task finishes its work or announces its end.
    pub fn kill(mut self) {
        self.stop_and_join();
    }

    /// Blocks the runtime's thread for `time`, as SIGSTOP does to a process. Returns as soon as the thread is blocked.
    pub fn pause(&self, time: Duration) {
        let (blocked, is_blocked) = mpsc::channel();
        self.handle.spawn(async move {
            let _ = blocked.send(());
            std::thread::sleep(time);
        });
        is_blocked.recv().expect("the runtime has ended");
    }

    fn stop_and_join(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for IsolatedRuntime {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::wait;

    #[tokio::test]
    async fn a_paused_or_killed_runtime_does_not_stop_another() {
        let runtimes = [IsolatedRuntime::start(), IsolatedRuntime::start()];
        let counters = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        for (runtime, counter) in runtimes.iter().zip(&counters) {
            let counter = counter.clone();
            let _guard = runtime.enter();
            tokio::spawn(async move {
                loop {
                    counter.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        let count = |index: usize| counters[index].load(Ordering::SeqCst);
        let wait_for_progress = |index: usize| {
            let before = count(index);
            wait::until(Duration::from_secs(30), move || async move { count(index) > before + 3 })
        };
        wait_for_progress(0).await;
        runtimes[0].pause(Duration::from_secs(2));
        let when_paused = count(0);
        wait_for_progress(1).await;
        assert_eq!(count(0), when_paused);
        wait_for_progress(0).await;
        let [first, _second] = runtimes;
        assert_eq!(first.run(async { 7 }).await, 7);
        first.kill();
        let when_killed = count(0);
        wait_for_progress(1).await;
        assert_eq!(count(0), when_killed);
        assert_eq!(Arc::strong_count(&counters[0]), 1, "the task on the killed runtime still exists");
    }
}
