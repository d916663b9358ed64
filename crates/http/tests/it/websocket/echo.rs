//! A session that echoes messages, and the state by which a test observes and controls it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bongsu_http::ConnectionControl;
use bongsu_http::websocket::{self, Output, Session};

/// Bytes of one output of a session that floods.
pub(crate) const FLOOD_SIZE: usize = 60_000;

#[derive(Default)]
pub(crate) struct EchoState {
    pub(crate) received: Mutex<Vec<String>>,
    pub(crate) pongs: AtomicUsize,
    /// Bytes of all outputs of the session.
    pub(crate) output_bytes: AtomicUsize,
    /// Sessions that are open.
    pub(crate) open: AtomicUsize,
    /// Whether the session always has output.
    pub(crate) is_flooding: AtomicBool,
    /// Whether the session receives no messages after the first one.
    pub(crate) pauses_after_first: AtomicBool,
    /// Whether the next poll for output resets `pauses_after_first`.
    pub(crate) resumes_on_poll: AtomicBool,
    /// How often the session was polled for output.
    pub(crate) poll_count: AtomicUsize,
    pub(crate) peer: Mutex<Option<ConnectionControl>>,
    queued: Mutex<VecDeque<Output>>,
    waker: Mutex<Option<Waker>>,
}

impl EchoState {
    pub(crate) fn send_text(&self, text: &str) {
        self.send(Output::Frames(websocket::text(text.as_bytes())));
    }

    pub(crate) fn send(&self, output: Output) {
        self.queued.lock().unwrap().push_back(output);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.lock().unwrap() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn peer(&self) -> ConnectionControl {
        self.peer.lock().unwrap().clone().unwrap()
    }

    pub(crate) fn output_bytes(&self) -> usize {
        self.output_bytes.load(Ordering::SeqCst)
    }

    pub(crate) async fn until(&self, condition: impl Fn(&Self) -> bool) {
        bongsu_testkit::wait::until(crate::WAIT_TIMEOUT, || async { condition(self) }).await;
    }

    pub(crate) async fn until_closed(&self) {
        self.until(|echo| echo.open.load(Ordering::SeqCst) == 0).await;
    }
}

pub(crate) struct EchoSession(Arc<EchoState>);

impl EchoSession {
    pub(crate) fn new(echo: Arc<EchoState>, peer: ConnectionControl) -> Self {
        echo.open.fetch_add(1, Ordering::SeqCst);
        *echo.peer.lock().unwrap() = Some(peer);
        Self(echo)
    }
}

impl Drop for EchoSession {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Session for EchoSession {
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Output> {
        *self.0.waker.lock().unwrap() = Some(cx.waker().clone());
        self.0.poll_count.fetch_add(1, Ordering::SeqCst);
        if self.0.resumes_on_poll.swap(false, Ordering::SeqCst) {
            self.0.pauses_after_first.store(false, Ordering::SeqCst);
        }
        let mut output = self.0.queued.lock().unwrap().pop_front();
        if output.is_none() && self.0.is_flooding.load(Ordering::SeqCst) {
            output = Some(Output::Frames(websocket::text(&[b'x'; FLOOD_SIZE])));
        }
        match output {
            None => Poll::Pending,
            Some(output) => {
                if let Output::Frames(frames) = &output {
                    self.0.output_bytes.fetch_add(frames.len(), Ordering::SeqCst);
                }
                Poll::Ready(output)
            }
        }
    }

    fn on_message(&mut self, text: &str) {
        self.0.received.lock().unwrap().push(text.to_owned());
        self.0.send_text(text);
    }

    fn can_receive_message(&self) -> bool {
        !self.0.pauses_after_first.load(Ordering::SeqCst) || self.0.received.lock().unwrap().is_empty()
    }

    fn on_pong(&mut self) {
        self.0.pongs.fetch_add(1, Ordering::SeqCst);
    }
}
