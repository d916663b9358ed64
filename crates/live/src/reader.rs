//! A reader: one connection's way through one subject.
//!
//! Subscribed before anything is read, it follows the subject's ring; where the ring does not reach it reads the log
//! page by page, and passes on only what is newer than what it has passed on already. So there is no gap and no
//! repetition at the seam, whatever the timing. It holds at most one page in memory, however slow its client is.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bongsu_kernel::{Id, StreamId, random};

use crate::connection::Listening;
use crate::encode::{Encoder, FrameWriter, Frames};
use crate::log::{Boxed, LogError, Most, Page, Place, Start};
use crate::message::{Item, Message, MessageId};
use crate::ring::{Cursor, Taken};
use crate::source::Source;

/// What a reader reads from the log at once: what it holds in memory while its client is slow.
const PAGE: Most = Most { entries: 256, bytes: 16 << 10 };
/// So long a reader waits for a log that is away.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Reader {
    listening: Listening,
    source: Arc<dyn Source>,
    encoder: Encoder,
    cursor: Cursor,
    state: State,
    /// Whether the client's own position is still to be checked.
    unchecked: bool,
    /// Whether the page at hand is what a stream without a position begins with.
    begins: bool,
    /// Records that end a right apply from here on: the right was looked at after this.
    since: StreamId,
}

enum State {
    Following,
    Reading(Boxed<'static, Result<Page<Item>, LogError>>),
    /// The right has ended; nothing comes after what was said.
    Removed,
    /// Where it stands is nowhere in a log that has other events: who comes back is told so, and looked at anew.
    Lost,
}

/// What a reader has to say.
pub(crate) enum Said {
    /// Messages, and when the oldest of them was accepted, where that was a moment ago.
    Frames(Frames, Option<Instant>),
    /// The person may not read on.
    Removed,
    /// The log cannot be read; why was logged.
    Failed,
}

impl Reader {
    pub(crate) fn new(
        listening: Listening,
        source: Arc<dyn Source>,
        encoder: Encoder,
        position: Option<StreamId>,
    ) -> Self {
        let found = match position {
            None => Some(listening.subject.end()),
            Some(StreamId::EMPTY) => listening.subject.find(StreamId::START),
            Some(id) => listening.subject.find(id),
        };
        let id = position.unwrap_or_default();
        let number = (id <= StreamId::EMPTY).then_some(0);
        // Where the ring stands now: what passes before is not for this reader.
        let unknown = Cursor { place: Place { id, number }, ..listening.subject.end() };
        let mut reader = Self {
            cursor: found.unwrap_or(unknown),
            state: State::Following,
            unchecked: found.is_none(),
            begins: position.is_none() && source.begin(&listening.name).is_some(),
            since: listening.subject.last().id,
            source,
            encoder,
            listening,
        };
        if reader.unchecked || reader.begins {
            reader.read_log();
        }
        reader
    }

    pub(crate) fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// The position that a client comes back with; None while the beginning of its subject was not sent.
    pub(crate) fn position(&self) -> Option<StreamId> {
        (!self.begins).then(|| self.cursor.place.id.named())
    }

    /// Leaves out the events without an id that were passed on until now.
    pub(crate) fn skip_passed(&mut self) {
        self.cursor.here_since = self.listening.subject.end().next;
    }

    /// Where it stands, as clients are told it.
    pub(crate) fn place_name(&self) -> MessageId {
        self.source.name(self.cursor.place.id)
    }

    /// What is new; pending when there is nothing. The caller has registered to be woken before.
    pub(crate) fn poll_said(&mut self, cx: &mut Context<'_>, person: &Id) -> Poll<Said> {
        loop {
            if self.listening.subject.is_lost() && !matches!(self.state, State::Removed | State::Lost) {
                let told = self.lose();
                if !told.is_empty() {
                    return Poll::Ready(Said::Frames(told, None));
                }
            }
            match &mut self.state {
                State::Removed => return Poll::Ready(Said::Removed),
                State::Lost => return Poll::Ready(Said::Failed),
                State::Reading(page) => match page.as_mut().poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(page)) => {
                        let frames = self.take_page(&page, person);
                        if !frames.is_empty() {
                            return Poll::Ready(Said::Frames(frames, None));
                        }
                    }
                    Poll::Ready(Err(error)) => {
                        tracing::error!(subject = ?self.listening.name, %error, "a stream could not read its log");
                        return Poll::Ready(Said::Failed);
                    }
                },
                State::Following => {
                    let subject = &self.listening.subject;
                    match subject.take(&mut self.cursor, person, self.since, &self.encoder) {
                        Taken::Frames { frames, events, oldest } => {
                            self.listening.chair.hub.0.delivered.increment(events);
                            return Poll::Ready(Said::Frames(frames, (events > 0).then_some(oldest)));
                        }
                        Taken::Removed => self.state = State::Removed,
                        Taken::Behind => self.read_log(),
                        Taken::Level => return Poll::Pending,
                    }
                }
            }
        }
    }

    /// Starts to read on from the log. While its engine is away for a moment the reader waits: it has lost nothing,
    /// and coming back would help nobody.
    fn read_log(&mut self) {
        let (name, after) = (self.listening.name.clone(), self.cursor.place.id);
        let (hub, source, begins) = (self.listening.chair.hub.clone(), self.source.clone(), self.begins);
        self.state = State::Reading(Box::pin(async move {
            let started = Instant::now();
            loop {
                let page = async {
                    let beginning = if begins { source.begin(&name) } else { None };
                    let page = beginning.unwrap_or_else(|| source.read(&name, after, PAGE)).await?;
                    hub.pass_gate().await?;
                    Ok::<Page<Item>, LogError>(page)
                };
                match page.await {
                    Err(error) if error.may_pass() && started.elapsed() < PATIENCE => {
                        tokio::time::sleep(Duration::from_millis(random::between(200, 600))).await;
                    }
                    outcome => return outcome,
                }
            }
        }));
    }

    /// The messages of a page, and where to go on after it.
    fn take_page(&mut self, page: &Page<Item>, person: &Id) -> Frames {
        let is_first = std::mem::take(&mut self.unchecked);
        if std::mem::take(&mut self.begins) {
            return self.take_beginning(page);
        }
        // A copy, because the position moves while messages are written.
        let encoder = self.encoder.clone();
        let mut out = FrameWriter::new(&encoder);
        match page.start {
            Start::Trimmed { oldest } if is_first => {
                out.push(&Message::reset_trimmed(self.source.name(oldest.id)), None);
            }
            Start::Unknown if page.entries.is_empty() => {
                self.cursor.place = page.head;
                // What ends a right in this log comes after its end, which may be before the one that was lost.
                self.since = self.since.min(page.head.id);
                let now = Some(self.source.name(page.head.id));
                out.push(&Message::reset_unknown(now), Some(page.head.id));
            }
            Start::Unknown if is_first => out.push(&Message::reset_unknown(None), None),
            Start::Unknown => return self.lose(),
            Start::Known if is_first => {}
            Start::Cut => {}
            // One that fell behind: what the log lost meanwhile shows in the numbers, also when it had nothing yet and
            // so stands at the beginning, which is always known.
            Start::Known | Start::Trimmed { .. } => self.tell_missed(page, &mut out),
        }
        if page.entries.is_empty() && page.head.id == self.cursor.place.id {
            // Now it is known which event that was: should it be trimmed, the next one still follows on it.
            self.cursor.place = page.head;
        }
        let mut events = 0;
        for item in &page.entries {
            if item.place.id > self.since && item.ends_right_of(person) {
                self.state = State::Removed;
                return out.finish();
            }
            if let Some(message) = &item.message {
                events += 1;
                out.push(message, Some(item.place.id));
            }
            self.cursor.place = item.place;
        }
        // Who was here all along gets everything, page by page; only who comes back is told to look at the list.
        let cut = page.start == Start::Cut && (is_first || page.entries.is_empty());
        if cut {
            out.push(&Message::reset_cut(self.source.name(page.head.id)), Some(page.head.id));
        }
        let more = page.more || (page.start == Start::Cut && !cut);
        if !more && page.head.id > self.cursor.place.id {
            // What follows up to there is nothing to be told of.
            self.cursor.place = page.head;
        }
        self.listening.chair.hub.0.delivered.increment(events);
        self.go_on(more);
        out.finish()
    }

    /// Its log is another one, so its right is looked at anew as well. What it says before it ends: where its position may
    /// come to mean another event, that this is over, and that all there is comes next.
    fn lose(&mut self) -> Frames {
        tracing::warn!(subject = ?self.listening.name, "a stream has lost its place: its log is another one");
        self.state = State::Lost;
        let mut out = FrameWriter::new(&self.encoder);
        if self.source.reuses_names() {
            let beginning = Some(self.source.name(StreamId::START));
            out.push(&Message::reset_unknown(beginning), Some(StreamId::START));
        }
        out.finish()
    }

    /// What a stream without a position begins with; it goes on from the end, and the client is told where that is.
    fn take_beginning(&mut self, page: &Page<Item>) -> Frames {
        let encoder = self.encoder.clone();
        let mut out = FrameWriter::new(&encoder);
        for item in &page.entries {
            if let Some(message) = &item.message {
                out.push(message, Some(item.place.id));
            }
        }
        out.push(&Message::place(self.source.name(page.head.id)), Some(page.head.id));
        self.listening.chair.hub.0.delivered.increment(page.entries.len() as u64);
        self.cursor.place = page.head;
        self.go_on(false);
        out.finish()
    }

    /// In the ring, when it has all that comes next.
    fn go_on(&mut self, more: bool) {
        match self.listening.subject.resume(self.cursor) {
            Some(cursor) if !more => {
                self.cursor = cursor;
                self.state = State::Following;
            }
            _ => self.read_log(),
        }
    }

    /// Says how many events were trimmed before this reader took them, if any.
    fn tell_missed(&self, page: &Page<Item>, out: &mut FrameWriter<'_>) {
        let next = page.entries.first().and_then(|item| item.place.number);
        let missed = next.zip(self.cursor.place.number).map(|(next, had)| next.saturating_sub(had + 1));
        match (missed, page.start) {
            (Some(0), _) | (None, Start::Known) => {}
            (missed, _) => {
                self.listening.chair.hub.0.lagged.increment(missed.unwrap_or(1));
                out.push(&Message::lagged(missed), None);
            }
        }
    }
}
