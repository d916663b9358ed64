//! A session that echoes, and a test's view of it: what it heard and gave, and what it is told to do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bongsu_http::Peer;
use bongsu_http::websocket::{self, Output, Session};

/// What a session that is told to flood says at once.
pub(crate) const FLOOD: usize = 60_000;

#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) heard: Mutex<Vec<String>>,
    pub(crate) pongs: AtomicUsize,
    /// Bytes that the session gave to be sent.
    pub(crate) given: AtomicUsize,
    pub(crate) open: AtomicUsize,
    pub(crate) floods: AtomicBool,
    /// Hears one message and no more until it is told to.
    pub(crate) hesitates: AtomicBool,
    /// Can hear again when it is next asked what to say.
    pub(crate) recovers: AtomicBool,
    /// How often it was asked what to say.
    pub(crate) asked: AtomicUsize,
    pub(crate) peer: Mutex<Option<Peer>>,
    to_say: Mutex<VecDeque<Output>>,
    waker: Mutex<Option<Waker>>,
}

impl Notes {
    pub(crate) fn say(&self, text: &str) {
        self.put(Output::Frames(websocket::text(text.as_bytes())));
    }

    pub(crate) fn put(&self, output: Output) {
        self.to_say.lock().unwrap().push_back(output);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.lock().unwrap() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer.lock().unwrap().clone().unwrap()
    }

    pub(crate) fn given(&self) -> usize {
        self.given.load(Ordering::SeqCst)
    }

    pub(crate) async fn until(&self, condition: impl Fn(&Self) -> bool) {
        bongsu_testkit::wait::until(crate::LONG, || async { condition(self) }).await;
    }

    pub(crate) async fn until_left(&self) {
        self.until(|notes| notes.open.load(Ordering::SeqCst) == 0).await;
    }
}

pub(crate) struct Noted(Arc<Notes>);

impl Noted {
    pub(crate) fn new(notes: Arc<Notes>, peer: Peer) -> Self {
        notes.open.fetch_add(1, Ordering::SeqCst);
        *notes.peer.lock().unwrap() = Some(peer);
        Self(notes)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Session for Noted {
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Output> {
        *self.0.waker.lock().unwrap() = Some(cx.waker().clone());
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        if self.0.recovers.swap(false, Ordering::SeqCst) {
            self.0.hesitates.store(false, Ordering::SeqCst);
        }
        let mut output = self.0.to_say.lock().unwrap().pop_front();
        if output.is_none() && self.0.floods.load(Ordering::SeqCst) {
            output = Some(Output::Frames(websocket::text(&[b'x'; FLOOD])));
        }
        match output {
            None => Poll::Pending,
            Some(output) => {
                if let Output::Frames(frames) = &output {
                    self.0.given.fetch_add(frames.len(), Ordering::SeqCst);
                }
                Poll::Ready(output)
            }
        }
    }

    fn on_message(&mut self, text: &str) {
        self.0.heard.lock().unwrap().push(text.to_owned());
        self.0.say(text);
    }

    fn ready_for_message(&self) -> bool {
        !self.0.hesitates.load(Ordering::SeqCst) || self.0.heard.lock().unwrap().is_empty()
    }

    fn on_pong(&mut self) {
        self.0.pongs.fetch_add(1, Ordering::SeqCst);
    }
}
