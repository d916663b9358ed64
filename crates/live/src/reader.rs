//! A reader: the cursor of one connection in one subject.
//!
//! The reader subscribes before it reads any entry. It reads the ring buffer of the subject, and where the ring buffer
//! does not reach, it reads the log page by page; it sends only entries after those that it has sent. So the switch
//! between log and ring buffer has no gap and no repetition, whatever the timing. A reader holds at most one page in
//! memory, however slow its client is.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bongsu_kernel::{Id, StreamId, random};

use crate::connection::Subscription;
use crate::encode::{Encoder, FrameWriter, Frames};
use crate::log::{LogError, LogFuture, LogPosition, Page, ReadLimits, StartPosition};
use crate::message::{Item, Message, MessageId};
use crate::ring::{Cursor, TakeOutcome};
use crate::source::Source;

/// The size of one page from the log, which a reader holds in memory while its client is slow.
const PAGE_LIMITS: ReadLimits = ReadLimits { entries: 256, bytes: 16 << 10 };
/// How long a reader retries while the log is unavailable.
const LOG_WAIT_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Reader {
    subscription: Subscription,
    source: Arc<dyn Source>,
    encoder: Encoder,
    cursor: Cursor,
    state: State,
    /// The log has not confirmed the client's position yet.
    is_unverified: bool,
    /// The page being read is the initial page, which a stream without a position begins with.
    is_initial: bool,
    /// The position at which the person's access was checked: only removal records after it apply.
    access_checked_at: StreamId,
}

enum State {
    Live,
    CatchingUp(LogFuture<'static, Page<Item>>),
    /// The person's access to the subject ended.
    Removed,
    /// The cursor's position is not in the log, which now has other entries: the stream is closed, and its client
    /// reconnects and is authorized again.
    PositionLost,
}

/// The result of polling a reader.
pub(crate) enum ReaderOutput {
    /// Messages, and when the oldest of them was accepted; None without an event from the ring buffer.
    Frames(Frames, Option<Instant>),
    /// The person's access to the subject ended.
    Removed,
    /// The log cannot be read; the reason was logged.
    Failed,
}

impl Reader {
    pub(crate) fn new(
        subscription: Subscription,
        source: Arc<dyn Source>,
        encoder: Encoder,
        position: Option<StreamId>,
    ) -> Self {
        let found = match position {
            None => Some(subscription.subject.end()),
            Some(StreamId::EMPTY_SUBJECT) => subscription.subject.find(StreamId::START),
            Some(id) => subscription.subject.find(id),
        };
        let id = position.unwrap_or_default();
        let number = (id <= StreamId::EMPTY_SUBJECT).then_some(0);
        // From the current end of the ring buffer: earlier ephemeral messages are not for this reader.
        let unknown = Cursor { position: LogPosition { id, number }, ..subscription.subject.end() };
        let mut reader = Self {
            cursor: found.unwrap_or(unknown),
            state: State::Live,
            is_unverified: found.is_none(),
            is_initial: position.is_none() && source.initial_page(&subscription.name).is_some(),
            access_checked_at: subscription.subject.last().id,
            source,
            encoder,
            subscription,
        };
        if reader.is_unverified || reader.is_initial {
            reader.read_log();
        }
        reader
    }

    pub(crate) fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// The position with which a client resumes; None while the initial page of the subject was not sent.
    pub(crate) fn position(&self) -> Option<StreamId> {
        (!self.is_initial).then(|| self.cursor.position.id.for_client())
    }

    /// Skips the ephemeral messages that were pushed so far.
    pub(crate) fn skip_past_ephemeral(&mut self) {
        self.cursor.ephemeral_from = self.subscription.subject.end().next;
    }

    /// The position as a message id for clients.
    pub(crate) fn resume_message_id(&self) -> MessageId {
        self.source.message_id(self.cursor.position.id)
    }

    /// Returns new messages; Pending when there are none. The caller has registered its waker before.
    pub(crate) fn poll_output(&mut self, cx: &mut Context<'_>, person: &Id) -> Poll<ReaderOutput> {
        loop {
            if self.subscription.subject.is_invalidated()
                && !matches!(self.state, State::Removed | State::PositionLost)
            {
                let frames = self.lose_position();
                if !frames.is_empty() {
                    return Poll::Ready(ReaderOutput::Frames(frames, None));
                }
            }
            match &mut self.state {
                State::Removed => return Poll::Ready(ReaderOutput::Removed),
                State::PositionLost => return Poll::Ready(ReaderOutput::Failed),
                State::CatchingUp(page) => match page.as_mut().poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(page)) => {
                        let frames = self.consume_page(&page, person);
                        if !frames.is_empty() {
                            return Poll::Ready(ReaderOutput::Frames(frames, None));
                        }
                    }
                    Poll::Ready(Err(error)) => {
                        tracing::error!(subject = ?self.subscription.name, %error, "failed to read the log; closing the stream");
                        return Poll::Ready(ReaderOutput::Failed);
                    }
                },
                State::Live => {
                    let subject = &self.subscription.subject;
                    match subject.take(&mut self.cursor, person, self.access_checked_at, &self.encoder) {
                        TakeOutcome::Frames { frames, events, oldest } => {
                            self.subscription.handle.hub.0.delivered.increment(events);
                            return Poll::Ready(ReaderOutput::Frames(frames, (events > 0).then_some(oldest)));
                        }
                        TakeOutcome::Removed => self.state = State::Removed,
                        TakeOutcome::Behind => self.read_log(),
                        TakeOutcome::UpToDate => return Poll::Pending,
                    }
                }
            }
        }
    }

    /// Starts to read the next page of the log. While the engine is unavailable, the reader waits: its position stays
    /// valid, and reconnecting would not help the client.
    fn read_log(&mut self) {
        let (name, after) = (self.subscription.name.clone(), self.cursor.position.id);
        let (hub, source, is_initial) =
            (self.subscription.handle.hub.clone(), self.source.clone(), self.is_initial);
        self.state = State::CatchingUp(Box::pin(async move {
            let started = Instant::now();
            loop {
                let page = async {
                    let initial = if is_initial { source.initial_page(&name) } else { None };
                    let page = initial.unwrap_or_else(|| source.read(&name, after, PAGE_LIMITS)).await?;
                    hub.wait_for_revocations().await?;
                    Ok::<Page<Item>, LogError>(page)
                };
                match page.await {
                    Err(error) if error.is_transient() && started.elapsed() < LOG_WAIT_TIMEOUT => {
                        tokio::time::sleep(Duration::from_millis(random::between(200, 600))).await;
                    }
                    outcome => return outcome,
                }
            }
        }));
    }

    /// Encodes the messages of a page and moves the cursor after it.
    fn consume_page(&mut self, page: &Page<Item>, person: &Id) -> Frames {
        let is_first = std::mem::take(&mut self.is_unverified);
        if std::mem::take(&mut self.is_initial) {
            return self.consume_initial_page(page);
        }
        // A copy, because messages are written while `self` changes.
        let encoder = self.encoder.clone();
        let mut out = FrameWriter::new(&encoder);
        match page.start {
            StartPosition::Trimmed { oldest } if is_first => {
                out.push(&Message::reset_trimmed(self.source.message_id(oldest.id)), None);
            }
            StartPosition::Unknown if page.entries.is_empty() => {
                self.cursor.position = page.head;
                // Removal records after the head of this log apply, even if the head is before the unknown position.
                self.access_checked_at = self.access_checked_at.min(page.head.id);
                let now = Some(self.source.message_id(page.head.id));
                out.push(&Message::reset_unknown(now), Some(page.head.id));
            }
            StartPosition::Unknown if is_first => out.push(&Message::reset_unknown(None), None),
            StartPosition::Unknown => return self.lose_position(),
            StartPosition::Known if is_first => {}
            StartPosition::TooFarBehind => {}
            // The reader fell behind. The numbers of entries show how many were trimmed meanwhile, also for a
            // reader at the beginning of the log, which is always a known position.
            StartPosition::Known | StartPosition::Trimmed { .. } => self.report_missed(page, &mut out),
        }
        if page.entries.is_empty() && page.head.id == self.cursor.position.id {
            // The head has a number, which the client's position lacked. With this number, the next entry is recognised
            // as the successor even if the entry at the head is trimmed.
            self.cursor.position = page.head;
        }
        let mut events = 0;
        for item in &page.entries {
            if item.position.id > self.access_checked_at && item.removes(person) {
                self.state = State::Removed;
                return out.finish();
            }
            if let Some(message) = &item.message {
                events += 1;
                out.push(message, Some(item.position.id));
            }
            self.cursor.position = item.position;
        }
        // A reader that was live gets all entries, page by page; only a reconnecting client gets the reset.
        let is_too_far_behind =
            page.start == StartPosition::TooFarBehind && (is_first || page.entries.is_empty());
        if is_too_far_behind {
            let now = self.source.message_id(page.head.id);
            out.push(&Message::reset_too_far_behind(now), Some(page.head.id));
        }
        let has_more = page.more || (page.start == StartPosition::TooFarBehind && !is_too_far_behind);
        if !has_more && page.head.id > self.cursor.position.id {
            // The log has no further message between the cursor and the head.
            self.cursor.position = page.head;
        }
        self.subscription.handle.hub.0.delivered.increment(events);
        self.continue_reading(has_more);
        out.finish()
    }

    /// Closes the stream, because the log has other entries than those that were delivered; its client is authorized
    /// again. If ids may be reused, the stream first sends a reset with the position of the beginning, because the
    /// client's own position may come to mean another entry.
    fn lose_position(&mut self) -> Frames {
        tracing::warn!(subject = ?self.subscription.name, "the log has other entries than those delivered; closing the stream");
        self.state = State::PositionLost;
        let mut out = FrameWriter::new(&self.encoder);
        if self.source.can_reuse_ids() {
            let beginning = Some(self.source.message_id(StreamId::START));
            out.push(&Message::reset_unknown(beginning), Some(StreamId::START));
        }
        out.finish()
    }

    /// Encodes the initial page, followed by the position at its end, from where the stream continues.
    fn consume_initial_page(&mut self, page: &Page<Item>) -> Frames {
        let encoder = self.encoder.clone();
        let mut out = FrameWriter::new(&encoder);
        for item in &page.entries {
            if let Some(message) = &item.message {
                out.push(message, Some(item.position.id));
            }
        }
        out.push(&Message::position_only(self.source.message_id(page.head.id)), Some(page.head.id));
        self.subscription.handle.hub.0.delivered.increment(page.entries.len() as u64);
        self.cursor.position = page.head;
        self.continue_reading(false);
        out.finish()
    }

    /// Continues in the ring buffer if it holds all entries after the cursor; else reads the log.
    fn continue_reading(&mut self, has_more: bool) {
        match self.subscription.subject.resume(self.cursor) {
            Some(cursor) if !has_more => {
                self.cursor = cursor;
                self.state = State::Live;
            }
            _ => self.read_log(),
        }
    }

    /// Sends `system.lagged` if events were trimmed before this reader got them.
    fn report_missed(&self, page: &Page<Item>, out: &mut FrameWriter<'_>) {
        let next = page.entries.first().and_then(|item| item.position.number);
        let missed = next.zip(self.cursor.position.number).map(|(next, had)| next.saturating_sub(had + 1));
        match (missed, page.start) {
            (Some(0), _) | (None, StartPosition::Known) => {}
            (missed, _) => {
                self.subscription.handle.hub.0.lagged.increment(missed.unwrap_or(1));
                out.push(&Message::lagged(missed), None);
            }
        }
    }
}
