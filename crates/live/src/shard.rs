//! Delivery on a shard: the queue of subjects that have new messages, and the driver of the timer wheel.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bongsu_kernel::Millis;

use crate::connection_state::{ConnectionState, Tick};
use crate::subject::Subject;
use crate::sync::{Arc, Mutex, lock};
use crate::wheel::{STEP_MS, Wheel};

/// Subjects with new messages for a shard. Pushes wake the shard once until it has taken the subjects.
#[derive(Default)]
pub(crate) struct WakeQueue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    subjects: Vec<Arc<Subject>>,
    waker: Option<Waker>,
}

impl WakeQueue {
    pub(crate) fn push(&self, subject: Arc<Subject>) {
        let mut queue = lock(&self.0);
        queue.subjects.push(subject);
        // Takes the waker: a shard that was woken and has not polled yet need not be woken again.
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Vec<Arc<Subject>>> {
        let mut queue = lock(&self.0);
        if queue.subjects.is_empty() {
            queue.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut queue.subjects))
    }
}

/// The timer wheel of a shard, and a signal for when the wheel gets its first connection.
pub(crate) struct TimerDriver {
    wheel: Mutex<Wheel>,
    first_added: tokio::sync::Notify,
}

impl TimerDriver {
    pub(crate) fn new(now: Tick) -> Self {
        Self { wheel: Mutex::new(Wheel::new(now)), first_added: tokio::sync::Notify::new() }
    }

    pub(crate) fn schedule(&self, connection: Arc<ConnectionState>, due: Tick) {
        let mut wheel = lock(&self.wheel);
        let was_empty = wheel.is_empty();
        wheel.add(connection, due);
        drop(wheel);
        if was_empty {
            self.first_added.notify_one();
        }
    }

    /// Advances the wheel as long as it has connections.
    pub(crate) async fn run(&self, now: impl Fn() -> (Tick, Millis)) {
        loop {
            if lock(&self.wheel).is_empty() {
                self.first_added.notified().await;
            }
            tokio::time::sleep(Duration::from_millis(STEP_MS)).await;
            let (tick, wall) = now();
            lock(&self.wheel).advance(tick, wall);
        }
    }
}

/// Wakes the streams of a shard whose subjects have new messages, in an endless loop.
pub(crate) async fn dispatch(wake_queue: &WakeQueue, shard: usize) {
    loop {
        for subject in poll_fn(|cx| wake_queue.poll_take(cx)).await {
            subject.wake(shard);
        }
        // Yield, so that a shard that is always behind still serves its connections.
        tokio::task::yield_now().await;
    }
}
