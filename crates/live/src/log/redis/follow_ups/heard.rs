//! Which rooms have something, as far as it was heard: what is looked at next.
//!
//! A room that was named stays until it was found empty by somebody who looked after it was named: nobody may look, be told
//! meanwhile, and forget it. So a round takes the rooms first, and puts back whatever it did not find empty.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_redis::{Channel, Listener};
use tokio::sync::Notify;

/// The index is looked at so often, for what was not heard.
const NET: Duration = Duration::from_secs(1);
/// So many rooms are remembered; the index has all of them.
const MOST: usize = 10_000;

#[derive(Default)]
pub(super) struct Heard {
    rooms: Mutex<Rooms>,
    pub(super) news: Arc<Notify>,
}

#[derive(Default)]
struct Rooms {
    named: HashSet<String>,
    /// When the index was looked at; nothing when it has to be.
    saw_index: Option<Instant>,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was heard in an earlier turn is somebody else's by now.
    pub(super) fn forget(&self) {
        *self.lock() = Rooms::default();
    }

    pub(super) fn begin(&self) -> Round<'_> {
        let mut rooms = self.lock();
        let looks_at_index = rooms.saw_index.is_none_or(|at| at.elapsed() >= NET);
        let named = std::mem::take(&mut rooms.named);
        Round { heard: self, rooms: named, looks_at_index }
    }
}

/// The rooms that are looked at now.
pub(super) struct Round<'a> {
    heard: &'a Heard,
    /// Those that were not found empty yet.
    pub(super) rooms: HashSet<String>,
    pub(super) looks_at_index: bool,
}

impl Round<'_> {
    /// The index names these.
    pub(super) fn saw_index<'n>(&mut self, names: impl Iterator<Item = &'n String>) {
        self.rooms.extend(names.cloned());
        self.heard.lock().saw_index = Some(Instant::now());
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.heard.lock().named.extend(self.rooms.drain());
    }
}

impl Listener for Heard {
    fn message(&self, _: &Channel, payload: &[u8]) {
        let room = std::str::from_utf8(payload).ok();
        let known = |room: &&str| room.split_once(':').is_some_and(|(_, id)| Id::new(id).is_ok());
        let Some(room) = room.filter(known) else {
            metrics::counter!("bus_malformed_total").increment(1);
            tracing::warn!("news of follow-ups that were not readable");
            return;
        };
        let mut rooms = self.lock();
        if rooms.named.len() < MOST {
            rooms.named.insert(room.to_owned());
        } else {
            rooms.saw_index = None;
        }
        drop(rooms);
        self.news.notify_one();
    }

    fn mark_stale(&self, _: &Channel) {
        self.lock().saw_index = None;
        self.news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(heard: &Heard) -> Vec<String> {
        let mut rooms: Vec<String> = heard.begin().rooms.iter().cloned().collect();
        rooms.sort();
        rooms
    }

    #[test]
    fn a_room_stays_until_it_was_found_empty_after_it_was_named() {
        let (heard, channel) = (Heard::default(), Channel::Everywhere("news".into()));
        let name = |room: &'static str| heard.message(&channel, room.as_bytes());
        name("room:1");
        name("room:2");
        let mut round = heard.begin();
        round.rooms.remove("room:1");
        // Whoever looked at it did so before this.
        name("room:1");
        drop(round);
        assert_eq!(named(&heard), ["room:1", "room:2"]);
        let mut round = heard.begin();
        round.rooms.remove("room:1");
        drop(round);
        assert_eq!(named(&heard), ["room:2"]);
        name("no room");
        name("room:a b");
        assert_eq!(named(&heard), ["room:2"]);
    }

    #[test]
    fn the_index_is_read_first_and_after_messages_may_have_been_lost() {
        let (heard, channel) = (Heard::default(), Channel::Everywhere("news".into()));
        let mut round = heard.begin();
        assert!(round.looks_at_index);
        round.saw_index([&"room:1".to_owned()].into_iter());
        drop(round);
        assert!(!heard.begin().looks_at_index);
        assert_eq!(named(&heard), ["room:1"]);
        heard.mark_stale(&channel);
        assert!(heard.begin().looks_at_index);
    }
}
