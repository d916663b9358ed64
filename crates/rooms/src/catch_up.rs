//! Asking for what was missed, without a stream: a page of events, read from the log in pieces.
//!
//! A page is read while its client takes it, so that it costs one piece in memory and holds nothing of the log's engine while
//! the client is slow. What the client gets is still as it was at one moment: nothing that was published later.

use std::sync::Arc;

use bongsu_kernel::{Id, StreamId};
use bongsu_live::log::Most;
use bongsu_live::{Entry, Log, LogError, Page, Start, SubjectName, control};

use crate::{Rooms, subject};

/// Events in one answer, when the caller does not say and at most.
pub const USUAL: u64 = 100;
pub const MOST: u64 = 500;
/// Bytes of data in one answer, about: more are left for the next page.
const PAGE_BYTES: usize = 2 << 20;
/// Bytes of data that are read at once.
const PIECE_BYTES: usize = 32 << 10;

/// A page of a room's events that is being read.
pub struct Missed {
    log: Arc<dyn Log>,
    subject: SubjectName,
    /// The first piece, until it is taken.
    first: Option<Page>,
    /// The newest event when the page began. The caller's right was checked before that.
    until: StreamId,
    events_left: usize,
    bytes_left: usize,
    end: PageEnd,
}

/// What follows from a whole page.
#[derive(Clone, Copy, Debug)]
pub struct PageEnd {
    /// Where to ask on from.
    pub last: StreamId,
    pub more: bool,
    /// The position was older than all that is left; this is the oldest.
    pub trimmed: Option<StreamId>,
    /// The position names nothing that the log knows; ask on from `last`.
    pub unknown: bool,
}

/// Some events of a page.
#[derive(Debug)]
pub enum Piece {
    Events(Vec<Entry>),
    Last(Vec<Entry>, PageEnd),
}

impl Rooms {
    /// Begins to read a page: what the log does not give now is an error, and what it does not give later ends the page.
    pub async fn events_after(&self, room: &Id, since: StreamId, count: u64) -> Result<Missed, LogError> {
        let (log, subject) = (self.0.log.clone(), subject(room));
        let events_left = usize::try_from(count).unwrap_or(usize::MAX);
        let page = log.read(&subject, since, Most { entries: events_left, bytes: PIECE_BYTES }).await?;
        let unknown = page.start == Start::Unknown;
        let trimmed = match page.start {
            Start::Trimmed { oldest } => Some(oldest.id),
            Start::Known | Start::Cut | Start::Unknown => None,
        };
        let (until, last) = (page.head.id, if unknown { page.head.id } else { since });
        let end = PageEnd { last, more: false, trimmed, unknown };
        Ok(Missed { log, subject, first: Some(page), until, events_left, bytes_left: PAGE_BYTES, end })
    }
}

impl Missed {
    /// The next piece. Nothing comes after the last one.
    pub async fn next(&mut self) -> Piece {
        let page = match self.first.take() {
            Some(page) => page,
            None => match self.read_on().await {
                Some(page) => page,
                // Whoever asks on from the last event is told what became of the ones after it.
                None => return Piece::Last(Vec::new(), PageEnd { more: true, ..self.end }),
            },
        };
        let read = page.entries.len();
        let mut events: Vec<Entry> = page.entries.into_iter().map_while(|entry| self.take(entry)).collect();
        let is_cut = events.len() < read;
        // After they were counted: who asks on comes past the records, too.
        events.retain(|event| !control::is_control(event));
        if !is_cut && page.more && read > 0 && self.events_left > 0 {
            return Piece::Events(events);
        }
        Piece::Last(events, PageEnd { more: is_cut || page.more, ..self.end })
    }

    /// Reads on after the last event, unless that is no longer possible without a gap.
    async fn read_on(&self) -> Option<Page> {
        let most = Most { entries: self.events_left, bytes: PIECE_BYTES };
        match self.log.read(&self.subject, self.end.last, most).await {
            Ok(page) => (page.start == Start::Known).then_some(page),
            Err(error) => {
                tracing::warn!(%error, "a page of events ends early: the log could not be read on");
                None
            }
        }
    }

    /// An event that belongs to this page.
    fn take(&mut self, entry: Entry) -> Option<Entry> {
        let bytes = entry.data.as_str().len();
        let is_first = self.bytes_left == PAGE_BYTES;
        if entry.place.id > self.until || (bytes > self.bytes_left && !is_first) {
            return None;
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.events_left -= 1;
        self.end.last = entry.place.id;
        Some(entry)
    }
}
