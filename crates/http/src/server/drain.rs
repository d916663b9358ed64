//! The word that the server drains, heard by every connection at the price of one load a turn.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio_util::sync::CancellationToken;

/// Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Drain {
    begun: Arc<AtomicBool>,
    bell: CancellationToken,
}

impl Drain {
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.bell.cancel();
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub(super) async fn wait(&self) {
        self.bell.cancelled().await;
    }

    /// Runs a connection to its end, or until it has something to give, and asks it once to end when the server
    /// drains.
    pub(super) async fn end<C: Future, G>(
        &self,
        connection: &mut Pin<Box<C>>,
        ask: fn(Pin<&mut C>),
        gives: impl Fn() -> Option<G>,
    ) -> Option<G> {
        let (mut bell, mut look) = (pin!(self.bell.cancelled()), pin!(tokio::task::yield_now()));
        let (mut listening, mut asked) = (false, false);
        poll_fn(|cx| {
            // Once is enough: the bell keeps this task's waker, and what it rings for is the flag.
            if !listening {
                listening = true;
                let _ = bell.as_mut().poll(cx);
            }
            // How it ended is the peer's affair: it went away, sent garbage, was too slow.
            let ended = connection.as_mut().poll(cx).is_ready();
            let given = gives();
            if ended || given.is_some() {
                return Poll::Ready(given);
            }
            // Not before the system was asked what has arrived meanwhile: a request that has is under way, and a
            // connection that idles ends at once.
            if asked || !self.has_begun() || look.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            asked = true;
            ask(connection.as_mut());
            let ended = connection.as_mut().poll(cx).is_ready();
            match gives() {
                None if !ended => Poll::Pending,
                given => Poll::Ready(given),
            }
        })
        .await
    }
}
