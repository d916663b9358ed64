//! A shard's side of delivery: an inbox of subjects with news, and the wheel that looks after its streams.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bongsu_kernel::Millis;

use crate::seat::{Seat, Tick};
use crate::subject::Subject;
use crate::sync::{Arc, Mutex, lock};
use crate::wheel::{STEP, Wheel};

/// Subjects with news. Putting something in wakes the shard once, until it has looked.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    subjects: Vec<Arc<Subject>>,
    waker: Option<Waker>,
}

impl Inbox {
    pub(crate) fn put(&self, subject: Arc<Subject>) {
        let mut waiting = lock(&self.0);
        waiting.subjects.push(subject);
        // Taken, not borrowed: a shard that was woken and has not looked yet need not be woken again.
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Vec<Arc<Subject>>> {
        let mut waiting = lock(&self.0);
        if waiting.subjects.is_empty() {
            waiting.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut waiting.subjects))
    }
}

/// The wheel, and a bell for when it was empty.
pub(crate) struct Keeper {
    wheel: Mutex<Wheel>,
    filled: tokio::sync::Notify,
}

impl Keeper {
    pub(crate) fn new(now: Tick) -> Self {
        Self { wheel: Mutex::new(Wheel::new(now)), filled: tokio::sync::Notify::new() }
    }

    pub(crate) fn look_after(&self, seat: Arc<Seat>, due: Tick) {
        let mut wheel = lock(&self.wheel);
        let was_empty = wheel.is_empty();
        wheel.add(seat, due);
        drop(wheel);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Turns the wheel while there is anybody on it.
    pub(crate) async fn run(&self, now: impl Fn() -> (Tick, Millis)) {
        loop {
            if lock(&self.wheel).is_empty() {
                self.filled.notified().await;
            }
            tokio::time::sleep(Duration::from_millis(STEP)).await;
            let (tick, wall) = now();
            lock(&self.wheel).turn(tick, wall);
        }
    }
}

/// Passes news on to the streams of a shard, for ever.
pub(crate) async fn dispatch(inbox: &Inbox, shard: usize) {
    loop {
        for subject in poll_fn(|cx| inbox.poll_take(cx)).await {
            subject.wake(shard);
        }
        // A shard that is always behind must still serve its connections.
        tokio::task::yield_now().await;
    }
}
