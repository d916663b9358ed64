//! The signal that the server drains, which every connection checks with one atomic load per poll.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio_util::sync::CancellationToken;

/// Tells connections that the server drains. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct DrainSignal {
    is_draining: Arc<AtomicBool>,
    token: CancellationToken,
}

impl DrainSignal {
    pub(super) fn begin(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub(super) fn has_begun(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    pub(super) async fn wait(&self) {
        self.token.cancelled().await;
    }

    /// Runs a connection until it ends or `take_handover` returns a value, and calls `request_shutdown` once when the
    /// server drains.
    pub(super) async fn run<C: Future, H>(
        &self,
        connection: &mut Pin<Box<C>>,
        request_shutdown: fn(Pin<&mut C>),
        take_handover: impl Fn() -> Option<H>,
    ) -> Option<H> {
        let (mut cancelled, mut io_poll) = (pin!(self.token.cancelled()), pin!(tokio::task::yield_now()));
        let (mut has_registered_waker, mut has_requested_shutdown) = (false, false);
        poll_fn(|cx| {
            // One poll is enough: the token keeps this task's waker, and the flag says whether the drain has begun.
            if !has_registered_waker {
                has_registered_waker = true;
                let _ = cancelled.as_mut().poll(cx);
            }
            // Why the connection ended does not matter: the client disconnected, sent invalid bytes, or was slow.
            let has_ended = connection.as_mut().poll(cx).is_ready();
            let handover = take_handover();
            if has_ended || handover.is_some() {
                return Poll::Ready(handover);
            }
            // Shut down only after the runtime has polled the system for bytes that arrived meanwhile: a
            // request that has arrived is then in progress and is answered, while an idle connection ends at
            // once.
            if has_requested_shutdown || !self.has_begun() || io_poll.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            has_requested_shutdown = true;
            request_shutdown(connection.as_mut());
            let has_ended = connection.as_mut().poll(cx).is_ready();
            match take_handover() {
                None if !has_ended => Poll::Pending,
                handover => Poll::Ready(handover),
            }
        })
        .await
    }
}
