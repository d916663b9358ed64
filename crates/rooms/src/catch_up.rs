//! Asking for what was missed, without a stream.

use bongsu_kernel::{Id, StreamId};
use bongsu_live::log::Most;
use bongsu_live::{Entry, LogError, Start, control};

use crate::{Rooms, subject};

/// Events in one answer, when the caller does not say and at most.
pub const USUAL: u64 = 100;
pub const MOST: u64 = 500;
/// Bytes of data in one answer, about: more are left for the next page.
const BYTES: usize = 2 << 20;

/// A page of a room's events.
#[derive(Debug)]
pub struct Missed {
    pub events: Vec<Entry>,
    /// Where to ask on from.
    pub last: StreamId,
    pub more: bool,
    /// The position was older than all that is left; this is the oldest.
    pub trimmed: Option<StreamId>,
    /// The position names nothing that the log knows; ask on from `last`.
    pub unknown: bool,
}

impl Rooms {
    pub async fn events_after(&self, room: &Id, since: StreamId, count: u64) -> Result<Missed, LogError> {
        let most = Most { entries: usize::try_from(count).unwrap_or(usize::MAX), bytes: BYTES };
        let mut page = self.0.log.read(&subject(room), since, most).await?;
        let unknown = page.start == Start::Unknown;
        let last =
            page.entries.last().map_or(if unknown { page.head.id } else { since }, |entry| entry.place.id);
        // After `last` was taken: who asks on comes past the records, too.
        page.entries.retain(|entry| !control::is_control(entry));
        let trimmed = match page.start {
            Start::Trimmed { oldest } => Some(oldest.id),
            Start::Known | Start::Cut | Start::Unknown => None,
        };
        Ok(Missed { events: page.entries, last, more: page.more, trimmed, unknown })
    }
}
