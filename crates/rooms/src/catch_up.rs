//! Catch-up without a stream: a page of events after a position, read from the log in chunks.
//!
//! The next chunk is read when the client has taken the previous one, so that a page needs the memory of one chunk and
//! a slow client holds no resource of the engine. A page ends at the head that the log had when the page began: the
//! page contains no event that was published later.

use std::sync::Arc;

use bongsu_kernel::{Id, StreamId};
use bongsu_live::log::ReadLimits;
use bongsu_live::{Log, LogEntry, LogError, Page, StartPosition, SubjectName, control};

use crate::{Rooms, subject};

/// Events in one page, unless the caller gives another number.
pub const DEFAULT_PAGE_SIZE: u64 = 100;
/// Maximum number of events in one page.
pub const MAX_PAGE_SIZE: u64 = 500;
/// Maximum number of bytes of event data in one page, unless its first event is larger.
const MAX_PAGE_BYTES: usize = 2 << 20;
/// Approximate number of bytes of event data in one chunk.
const CHUNK_BYTES: usize = 32 << 10;

/// Reads one page of a room's events.
pub struct EventPageReader {
    log: Arc<dyn Log>,
    subject: SubjectName,
    /// The first chunk, until it is returned.
    first: Option<Page>,
    /// The head of the log when the page began. The caller's membership was checked before.
    head: StreamId,
    events_left: usize,
    bytes_left: usize,
    end: PageEnd,
}

/// The fields that follow the events of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageEnd {
    /// The position after which the next page begins.
    pub last: StreamId,
    pub has_more: bool,
    /// The oldest entry of the log, if events after the given position were trimmed.
    pub trimmed: Option<StreamId>,
    /// The given position is not one of the log's. The next page begins after `last`, which is the head.
    pub is_unknown: bool,
}

/// Consecutive events of a page.
#[derive(Debug)]
pub enum PageChunk {
    Events(Vec<LogEntry>),
    Last(Vec<LogEntry>, PageEnd),
}

impl Rooms {
    /// Begins a page and reads its first chunk. Fails if the log fails now; a later failure ends the page early.
    pub async fn events_after(
        &self,
        room: &Id,
        since: StreamId,
        count: u64,
    ) -> Result<EventPageReader, LogError> {
        let (log, subject) = (self.0.log.clone(), subject(room));
        let events_left = usize::try_from(count).unwrap_or(usize::MAX);
        let page = log.read(&subject, since, ReadLimits { entries: events_left, bytes: CHUNK_BYTES }).await?;
        let is_unknown = page.start == StartPosition::Unknown;
        let trimmed = match page.start {
            StartPosition::Trimmed { oldest } => Some(oldest.id),
            StartPosition::Known | StartPosition::TooFarBehind | StartPosition::Unknown => None,
        };
        let (head, last) = (page.head.id, if is_unknown { page.head.id } else { since });
        let end = PageEnd { last, has_more: false, trimmed, is_unknown };
        let (first, bytes_left) = (Some(page), MAX_PAGE_BYTES);
        Ok(EventPageReader { log, subject, first, head, events_left, bytes_left, end })
    }
}

impl EventPageReader {
    /// Returns the next chunk. [`PageChunk::Last`] is the end: do not call it again.
    pub async fn next(&mut self) -> PageChunk {
        let page = match self.first.take() {
            Some(page) => page,
            None => match self.read_next_chunk().await {
                Some(page) => page,
                // The next page begins after the last event, and reports trimmed events or the failure of the log.
                None => return PageChunk::Last(Vec::new(), PageEnd { has_more: true, ..self.end }),
            },
        };
        let read = page.entries.len();
        let mut events: Vec<LogEntry> =
            page.entries.into_iter().map_while(|entry| self.accept(entry)).collect();
        let is_cut = events.len() < read;
        // Control records are removed after `accept` has counted them, so that the next page begins after them.
        events.retain(|event| !control::is_control(event));
        if !is_cut && page.more && read > 0 && self.events_left > 0 {
            return PageChunk::Events(events);
        }
        PageChunk::Last(events, PageEnd { has_more: is_cut || page.more, ..self.end })
    }

    /// Reads the entries after the last one. None if that fails, or if entries in between were trimmed.
    async fn read_next_chunk(&self) -> Option<Page> {
        let limits = ReadLimits { entries: self.events_left, bytes: CHUNK_BYTES };
        match self.log.read(&self.subject, self.end.last, limits).await {
            Ok(page) => (page.start == StartPosition::Known).then_some(page),
            Err(error) => {
                tracing::warn!(%error, "failed to read more events from the log; ending the page early");
                None
            }
        }
    }

    /// Adds an entry to the page. None if it was published after the page began, or does not fit into the page.
    fn accept(&mut self, entry: LogEntry) -> Option<LogEntry> {
        let bytes = entry.data.as_str().len();
        let is_first = self.bytes_left == MAX_PAGE_BYTES;
        if entry.position.id > self.head || (bytes > self.bytes_left && !is_first) {
            return None;
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.events_left -= 1;
        self.end.last = entry.position.id;
        Some(entry)
    }
}
