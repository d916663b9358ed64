//! A runtime on a thread of its own, for a test that needs several instances of something that is no process: one
//! can be killed, and can stand still, while the others go on.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::sync::oneshot;

/// Ends with this value, as [`Island::kill`] does it.
pub struct Island {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Island {
    pub fn start() -> Self {
        let (end, ending) = oneshot::channel();
        let (started, starting) = mpsc::channel();
        let thread = std::thread::Builder::new().name("island".to_owned()).spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            started.send(runtime.handle().clone()).expect("somebody who waits for it");
            // Who is told to end, or forgotten, ends.
            let _ = runtime.block_on(ending);
        });
        let handle = starting.recv().expect("the thread runs");
        Self { handle, end: Some(end), thread: Some(thread.expect("a thread")) }
    }

    /// While the guard lives, what is spawned by this thread is spawned there. Not to be held while waiting.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Lets something run there, and waits for it.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.handle.spawn(work).await.expect("it ends in order")
    }

    /// Everything that runs there stops where it waits. Nothing is finished, and nobody is told.
    pub fn kill(mut self) {
        self.end();
    }

    /// Lets everything there stand still for so long, as a stopped process does. Returns when it stands.
    pub fn pause(&self, time: Duration) {
        let (stands, standing) = mpsc::channel();
        self.handle.spawn(async move {
            let _ = stands.send(());
            std::thread::sleep(time);
        });
        standing.recv().expect("it runs");
    }

    fn end(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::wait;

    #[tokio::test]
    async fn one_stands_still_and_is_killed_while_the_other_goes_on() {
        let islands = [Island::start(), Island::start()];
        let turns = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        for (island, turns) in islands.iter().zip(&turns) {
            let turns = turns.clone();
            let _there = island.enter();
            tokio::spawn(async move {
                loop {
                    turns.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        let now = |which: usize| turns[which].load(Ordering::SeqCst);
        let goes_on = |which: usize| {
            let before = now(which);
            wait::until(Duration::from_secs(30), move || async move { now(which) > before + 3 })
        };
        goes_on(0).await;
        islands[0].pause(Duration::from_secs(2));
        let stands = now(0);
        goes_on(1).await;
        assert_eq!(now(0), stands);
        goes_on(0).await;
        let [first, _second] = islands;
        assert_eq!(first.run(async { 7 }).await, 7);
        first.kill();
        let killed = now(0);
        goes_on(1).await;
        assert_eq!(now(0), killed);
        assert_eq!(Arc::strong_count(&turns[0]), 1, "its task is gone");
    }
}
