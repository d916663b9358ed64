//! A stream: the messages that one client is sent over one SSE response, until the stream is closed.
//!
//! [`LiveStream`] reads one subject; the stream in `multi_stream` reads several. The module `reader` decides
//! which messages are sent, and in which order; `connection_state` decides when to close and when to send a
//! keepalive.

use std::convert::Infallible;
use std::fmt::Display;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bongsu_kernel::{Close, Id, random, sse};
use bytes::Bytes;
use http_body::{Body, Frame};

use crate::connection::{ConnectionGuard, ConnectionHandle};
use crate::log::EphemeralMessage;
use crate::message::Message;
use crate::reader::{Reader, ReaderOutput};

/// The result of polling a response body.
type BodyPoll = Poll<Option<Result<Frame<Bytes>, Infallible>>>;

/// The body of an SSE response.
pub struct EventStream<F> {
    // Declared before `connection`, so that subscriptions are dropped before the person's connection is uncounted.
    pub(crate) reader: F,
    connection: ConnectionGuard,
    greeting: Option<Bytes>,
    has_ended: bool,
}

/// Reads the subjects of a stream.
pub trait StreamReader: Unpin {
    /// The next messages, and when the oldest was accepted if they hold an event from the ring buffer; or the close
    /// code of the stream. Pending when there are no new messages. The caller has registered its waker before.
    fn poll(&mut self, cx: &mut Context<'_>, person: &Id) -> Poll<Result<(Bytes, Option<Instant>), Close>>;

    /// The id with which the client resumes.
    fn resume_id(&self) -> String;
}

/// A stream of one subject.
pub type LiveStream = EventStream<Reader>;

impl StreamReader for Reader {
    fn poll(&mut self, cx: &mut Context<'_>, person: &Id) -> Poll<Result<(Bytes, Option<Instant>), Close>> {
        self.poll_output(cx, person).map(|output| match output {
            ReaderOutput::Frames(frames, accepted) => Ok((frames.into_bytes(), accepted)),
            ReaderOutput::Removed => Err(Close::Withdrawn),
            ReaderOutput::Failed => Err(Close::EngineLost),
        })
    }

    fn resume_id(&self) -> String {
        self.resume_message_id().to_string()
    }
}

impl LiveStream {
    /// Keeps the guard until the stream is closed, and sends its snapshot right after the greeting.
    #[must_use]
    pub fn with_guard(mut self, guard: impl SubscriptionGuard) -> Self {
        if let (Some(frame), Some(greeting)) = (self.reader.snapshot_frame(&guard), &mut self.greeting) {
            *greeting = [&greeting[..], &frame[..]].concat().into();
        }
        self.with_resource(guard)
    }
}

/// Kept by a connection while it is subscribed to a subject, and dropped with the subscription.
pub trait SubscriptionGuard: Send + 'static {
    /// Calls `deliver` with the state that results from the ephemeral messages of the subject so far, or with None
    /// while the state is unknown; then an ephemeral message with the state follows later. No ephemeral message is
    /// delivered during the call, so that the connection can begin with the state and continue with later messages.
    fn snapshot(&self, deliver: &mut dyn FnMut(Option<&EphemeralMessage>));
}

pub type BoxedGuard = Box<dyn SubscriptionGuard>;

impl Reader {
    /// The encoded snapshot of the guard. Ephemeral messages before the snapshot are skipped from here on.
    pub(crate) fn snapshot_frame(&mut self, guard: &dyn SubscriptionGuard) -> Option<Bytes> {
        let mut frame = None;
        guard.snapshot(&mut |state| {
            self.skip_past_ephemeral();
            frame = state.map(|state| self.encoder().encode(&Message::ephemeral(state)));
        });
        frame
    }
}

impl<F> EventStream<F> {
    /// The greeting contains the `retry` time, and the position if the client gets it at once.
    pub(crate) fn new(
        reader: F,
        connection: ConnectionGuard,
        position: Option<impl Display>,
        (min_retry_ms, max_retry_ms): (u64, u64),
    ) -> Self {
        let greeting = sse::greeting(random::between(min_retry_ms, max_retry_ms), position);
        Self { reader, connection, greeting: Some(greeting.into()), has_ended: false }
    }

    /// Whether the stream will only send its close frame.
    pub fn is_closing(&self) -> bool {
        self.connection.handle.state.pending_close().is_some()
    }

    /// A handle that closes this stream from any thread.
    pub fn close_handle(&self) -> CloseHandle {
        self.connection.close_handle()
    }

    /// Keeps a value until the stream is closed.
    #[must_use]
    pub fn with_resource(mut self, resource: impl std::any::Any + Send) -> Self {
        self.connection.resources.push(Box::new(resource));
        self
    }
}

impl<F: StreamReader> Body for EventStream<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> BodyPoll {
        let this = &mut *self;
        if this.has_ended {
            return Poll::Ready(None);
        }
        if let Some(greeting) = this.greeting.take() {
            return this.connection.write(greeting, Instant::now());
        }
        loop {
            // Register before reading, so that no message in between is missed.
            this.connection.handle.state.register_waker(cx.waker());
            if let Some(close) = this.connection.handle.state.pending_close() {
                this.has_ended = true;
                return this.connection.write(sse::close(close, this.reader.resume_id()), Instant::now());
            }
            match this.reader.poll(cx, &this.connection.person) {
                Poll::Ready(Ok((bytes, accepted))) => {
                    let now = this.connection.record_delivery(accepted);
                    return this.connection.write(bytes, now);
                }
                Poll::Ready(Err(close)) => this.connection.close(close),
                Poll::Pending => return this.connection.poll_idle(),
            }
        }
    }
}

/// Closes a stream from any thread. Cheap to clone.
#[derive(Clone)]
pub struct CloseHandle(ConnectionHandle);

impl CloseHandle {
    pub fn close(&self, close: Close) {
        self.0.state.close(close, self.0.hub.0.tick());
    }
}

impl ConnectionGuard {
    pub(crate) fn close_handle(&self) -> CloseHandle {
        CloseHandle(self.handle.clone())
    }

    pub(crate) fn close(&self, close: Close) {
        self.handle.state.close(close, self.handle.hub.0.tick());
    }

    /// Records the delivery latency of an event. Returns the current time, because reading the clock twice per delivery
    /// would be too expensive.
    pub(crate) fn record_delivery(&self, accepted: Option<Instant>) -> Instant {
        let now = Instant::now();
        if let Some(accepted) = accepted {
            self.handle.hub.0.latency.record(now.saturating_duration_since(accepted).as_secs_f64());
        }
        now
    }

    /// Records that bytes were handed to the connection.
    pub(crate) fn record_write(&self, now: Instant) {
        self.handle.state.record_write(self.handle.hub.0.tick_of(now));
    }

    fn write(&self, bytes: impl Into<Bytes>, now: Instant) -> BodyPoll {
        self.record_write(now);
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }

    /// Called when there are no new messages. Sends a keepalive if one is due.
    fn poll_idle(&self) -> BodyPoll {
        if self.handle.state.take_keepalive() {
            return self.write(self.keepalive_frame, Instant::now());
        }
        self.handle.state.record_drained();
        Poll::Pending
    }
}
