//! A stream: what one client is sent, in which order, until its end.
//!
//! Subscribed before anything is read, it follows its subject's ring; where the ring does not reach it reads the
//! log page by page, and passes on only what is newer than what it has passed on already. So there is no gap and no
//! repetition at the seam, whatever the timing. It holds at most one page in memory, however slow its client is.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bongsu_kernel::{StreamId, random, sse};
use bytes::Bytes;
use http_body::{Body, Frame};

use crate::hub::Listening;
use crate::log::{Boxed, LogError, Most, Page, Place, Start};
use crate::ring::{Cursor, Taken};

/// What a stream reads from the log at once: what it holds in memory while its client is slow.
const PAGE: Most = Most { entries: 256, bytes: 16 << 10 };

/// So long a stream waits for a log that is away.
const PATIENCE: Duration = Duration::from_secs(30);

/// The body of an event stream's answer.
pub struct LiveStream {
    listening: Listening,
    cursor: Cursor,
    state: State,
    /// Whether the client's own position is still to be checked.
    unchecked: bool,
    greeting: Option<Bytes>,
}

enum State {
    Following,
    Reading(Boxed<'static, Result<Page, LogError>>),
    Ended,
}

impl LiveStream {
    pub(crate) fn new(listening: Listening, position: Option<StreamId>) -> Self {
        let found = match position {
            None => Some(listening.subject.end()),
            Some(StreamId::EMPTY) => listening.subject.find(StreamId::START),
            Some(id) => listening.subject.find(id),
        };
        let id = position.unwrap_or_default();
        let number = (id <= StreamId::EMPTY).then_some(0);
        // Where the ring stands now: what passes before is not for this stream.
        let unknown = Cursor { place: Place { id, number }, ..listening.subject.end() };
        let mut stream = Self {
            cursor: found.unwrap_or(unknown),
            state: State::Following,
            unchecked: found.is_none(),
            greeting: None,
            listening,
        };
        let place = position.is_none().then_some(stream.cursor.place.id);
        stream.greeting = Some(sse::greeting(random::between(1_000, 3_000), place).into());
        if stream.unchecked {
            stream.read_log();
        }
        stream
    }

    /// Starts to read on from the log. While its engine is away for a moment the stream waits: it has lost nothing,
    /// and coming back would help nobody.
    fn read_log(&mut self) {
        let (name, after) = (self.listening.name.clone(), self.cursor.place.id);
        let log = self.listening.entered.hub.0.log().cloned();
        self.state = State::Reading(Box::pin(async move {
            let (log, started) = (log?, Instant::now());
            loop {
                match log.read(&name, after, PAGE).await {
                    Err(error) if error.may_pass() && started.elapsed() < PATIENCE => {
                        tokio::time::sleep(Duration::from_millis(random::between(200, 600))).await;
                    }
                    outcome => return outcome,
                }
            }
        }));
    }

    /// The bytes of a page, and where to go on after it.
    fn take_page(&mut self, page: &Page) -> Vec<u8> {
        let first = std::mem::take(&mut self.unchecked);
        let mut out = Vec::new();
        match page.start {
            Start::Trimmed { oldest } if first => out = sse::reset_trimmed(oldest.id),
            Start::Unknown => {
                self.cursor.place = page.head;
                out = sse::reset_unknown(page.head.id);
            }
            Start::Known if first => {}
            // A stream that fell behind: what the log lost meanwhile shows in the numbers, also when it had nothing
            // yet and so stands at the beginning, which is always known.
            Start::Known | Start::Trimmed { .. } => out = self.tell_missed(page),
        }
        if page.entries.is_empty() && page.head.id == self.cursor.place.id {
            // Now it is known which event that was: should it be trimmed, the next one still follows on it.
            self.cursor.place = page.head;
        }
        for entry in &page.entries {
            out.extend_from_slice(&sse::event(&entry.event_type, entry.place.id, &entry.data, entry.at));
            self.cursor.place = entry.place;
        }
        self.listening.entered.hub.0.delivered.increment(page.entries.len() as u64);
        match self.listening.subject.resume(self.cursor) {
            Some(cursor) if !page.more => {
                self.cursor = cursor;
                self.state = State::Following;
            }
            _ => self.read_log(),
        }
        out
    }

    /// Says how many events were trimmed before this reader took them, if any.
    fn tell_missed(&self, page: &Page) -> Vec<u8> {
        let next = page.entries.first().and_then(|entry| entry.place.number);
        let missed = next.zip(self.cursor.place.number).map(|(next, had)| next.saturating_sub(had + 1));
        match (missed, page.start) {
            (Some(0), _) | (None, Start::Known) => Vec::new(),
            (missed, _) => {
                self.listening.entered.hub.0.lagged.increment(missed.unwrap_or(1));
                sse::lagged(missed)
            }
        }
    }

    fn hand_out(
        &self,
        bytes: impl Into<Bytes>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        self.hand_out_at(bytes, Instant::now())
    }

    /// At a moment that was looked up already: on the way of every delivery a second look costs.
    fn hand_out_at(
        &self,
        bytes: impl Into<Bytes>,
        now: Instant,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        let entered = &self.listening.entered;
        entered.seat.handed_out(entered.hub.0.tick_of(now));
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }
}

impl Body for LiveStream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if matches!(this.state, State::Ended) {
            return Poll::Ready(None);
        }
        if let Some(greeting) = this.greeting.take() {
            return this.hand_out(greeting);
        }
        loop {
            // Registered before looking, so that news between the two is not missed.
            this.listening.entered.seat.listen(cx.waker());
            if let Some(close) = this.listening.entered.seat.closing() {
                this.state = State::Ended;
                return this.hand_out(sse::close(close, this.cursor.place.id));
            }
            match &mut this.state {
                State::Ended => return Poll::Ready(None),
                State::Reading(page) => match page.as_mut().poll(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(page)) => {
                        let out = this.take_page(&page);
                        if !out.is_empty() {
                            return this.hand_out(out);
                        }
                    }
                    Poll::Ready(Err(error)) => {
                        tracing::error!(subject = ?this.listening.name, %error, "a stream could not read its log");
                        let hub = &this.listening.entered.hub.0;
                        this.listening.entered.seat.end(bongsu_kernel::Close::EngineLost, hub.tick());
                    }
                },
                State::Following => match this.listening.subject.take(&mut this.cursor) {
                    Taken::Frames { bytes, count, oldest } => {
                        let (hub, now) = (&this.listening.entered.hub.0, Instant::now());
                        hub.delivered.increment(count);
                        hub.latency.record((now - oldest).as_secs_f64());
                        return this.hand_out_at(bytes, now);
                    }
                    Taken::Behind => this.read_log(),
                    Taken::Level => {
                        if this.listening.entered.seat.take_keepalive() {
                            return this.hand_out(sse::KEEPALIVE);
                        }
                        break;
                    }
                },
            }
        }
        this.listening.entered.seat.caught_up();
        Poll::Pending
    }
}
