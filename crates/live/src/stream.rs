//! A stream: what one client is sent over one connection, until its end.
//!
//! [`LiveStream`] follows one subject; its neighbour `many` follows several. What is read and in which order is the
//! `reader`'s; when to end, and when to say that it is alive, is the `seat`'s.

use std::convert::Infallible;
use std::fmt::Display;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bongsu_kernel::{Close, Id, random, sse};
use bytes::Bytes;
use http_body::{Body, Frame};

use crate::connection::{Chair, Entered};
use crate::log::Passing;
use crate::message::Message;
use crate::reader::{Reader, Said};

/// What a body gives.
type Piece = Poll<Option<Result<Frame<Bytes>, Infallible>>>;

/// The body of an event stream's answer.
pub struct EventStream<F> {
    // Before `entered`: readers stand up before their person is counted out.
    pub(crate) followed: F,
    entered: Entered,
    greeting: Option<Bytes>,
    ended: bool,
}

/// What a stream follows.
pub trait Follow: Unpin {
    /// Messages, and when the oldest of them was accepted, where that was a moment ago; or why the stream ends. Pending when
    /// there is nothing new. The caller has registered to be woken before.
    fn poll(&mut self, cx: &mut Context<'_>, person: &Id) -> Poll<Result<(Bytes, Option<Instant>), Close>>;

    /// The id that the client comes back with.
    fn resume_id(&self) -> String;
}

/// A stream that follows one subject.
pub type LiveStream = EventStream<Reader>;

impl Follow for Reader {
    fn poll(&mut self, cx: &mut Context<'_>, person: &Id) -> Poll<Result<(Bytes, Option<Instant>), Close>> {
        self.poll_said(cx, person).map(|said| match said {
            Said::Frames(frames, accepted) => Ok((frames.into_bytes(), accepted)),
            Said::Removed => Err(Close::Withdrawn),
            Said::Failed => Err(Close::EngineLost),
        })
    }

    fn resume_id(&self) -> String {
        self.place_name().to_string()
    }
}

impl LiveStream {
    /// Holds the guard for as long as the stream lives, and sends its snapshot right after the greeting.
    #[must_use]
    pub fn begin_with(mut self, guard: impl SubscriptionGuard) -> Self {
        if let (Some(frame), Some(greeting)) = (self.followed.begin_with(&guard), &mut self.greeting) {
            *greeting = [&greeting[..], &frame[..]].concat().into();
        }
        self.holding(guard)
    }
}

/// What a connection holds while it follows a subject. Dropped when it no longer does.
pub trait SubscriptionGuard: Send + 'static {
    /// Calls `deliver` with the state that passed-on events of the subject have led to, or with None while that is not
    /// known; then an event with the state is passed on later. Nothing is passed on during the call, so that the
    /// connection can begin with the state and go on with what is passed on after it.
    fn snapshot(&self, deliver: &mut dyn FnMut(Option<&Passing>));
}

impl Reader {
    /// The encoded state of the guard. Events that were passed on before it are left out from here on.
    pub(crate) fn begin_with(&mut self, guard: &dyn SubscriptionGuard) -> Option<Bytes> {
        let mut frame = None;
        guard.snapshot(&mut |state| {
            self.skip_passed();
            frame = state.map(|state| self.encoder().encode(&Message::passing(state)));
        });
        frame
    }
}

impl<F> EventStream<F> {
    /// Its greeting says where it stands, where that is told at once, and when to come back.
    pub(crate) fn new(
        followed: F,
        entered: Entered,
        place: Option<impl Display>,
        (shortest, longest): (u64, u64),
    ) -> Self {
        let greeting = sse::greeting(random::between(shortest, longest), place);
        Self { followed, entered, greeting: Some(greeting.into()), ended: false }
    }

    /// Whether all that it will say is its end.
    pub fn is_ending(&self) -> bool {
        self.entered.chair.seat.closing().is_some()
    }

    /// What ends it from elsewhere.
    pub fn ender(&self) -> Ender {
        self.entered.ender()
    }

    /// Keeps something for as long as the stream lives.
    #[must_use]
    pub fn holding(mut self, what: impl std::any::Any + Send) -> Self {
        self.entered.held.push(Box::new(what));
        self
    }
}

impl<F: Follow> Body for EventStream<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Piece {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        if let Some(greeting) = this.greeting.take() {
            return this.entered.hand_out(greeting, Instant::now());
        }
        loop {
            // Registered before looking, so that news between the two is not missed.
            this.entered.chair.seat.listen(cx.waker());
            if let Some(close) = this.entered.chair.seat.closing() {
                this.ended = true;
                return this.entered.hand_out(sse::close(close, this.followed.resume_id()), Instant::now());
            }
            match this.followed.poll(cx, &this.entered.person) {
                Poll::Ready(Ok((bytes, accepted))) => {
                    let now = this.entered.delivered(accepted);
                    return this.entered.hand_out(bytes, now);
                }
                Poll::Ready(Err(close)) => this.entered.end(close),
                Poll::Pending => return this.entered.rest(),
            }
        }
    }
}

/// Ends a stream, wherever it is. Cheap to clone.
#[derive(Clone)]
pub struct Ender(Chair);

impl Ender {
    pub fn end(&self, close: Close) {
        self.0.seat.end(close, self.0.hub.0.tick());
    }
}

impl Entered {
    pub(crate) fn ender(&self) -> Ender {
        Ender(self.chair.clone())
    }

    pub(crate) fn end(&self, close: Close) {
        self.chair.seat.end(close, self.chair.hub.0.tick());
    }

    /// Notes how long an event took. Gives the time, which costs too much to be asked for twice on every delivery.
    pub(crate) fn delivered(&self, accepted: Option<Instant>) -> Instant {
        let now = Instant::now();
        if let Some(accepted) = accepted {
            self.chair.hub.0.latency.record(now.saturating_duration_since(accepted).as_secs_f64());
        }
        now
    }

    /// Notes that something was said.
    pub(crate) fn said(&self, now: Instant) {
        self.chair.seat.handed_out(self.chair.hub.0.tick_of(now));
    }

    fn hand_out(&self, bytes: impl Into<Bytes>, now: Instant) -> Piece {
        self.said(now);
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }

    /// There is nothing new.
    fn rest(&self) -> Piece {
        if self.chair.seat.take_keepalive() {
            return self.hand_out(self.alive, Instant::now());
        }
        self.chair.seat.caught_up();
        Poll::Pending
    }
}
