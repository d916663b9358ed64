//! The rooms that may have follow-up records: those that were announced on the channel, and those of the index.
//!
//! A room stays until a read that began after its last announcement found the room empty. So a round first takes all
//! rooms, and finally puts back those that it did not find empty; an announcement during the round adds its room again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bongsu_kernel::{Id, lock};
use bongsu_redis::{Channel, Listener};
use tokio::sync::Notify;

/// Time between two reads of the index, which has the rooms whose announcement was lost.
const INDEX_INTERVAL: Duration = Duration::from_secs(1);
/// Announced rooms kept in memory; beyond that the index is read, which has all rooms.
const MAX_ROOMS: usize = 10_000;

#[derive(Default)]
pub(super) struct AnnouncedRooms {
    rooms: Mutex<Rooms>,
    pub(super) added: Arc<Notify>,
}

#[derive(Default)]
struct Rooms {
    announced: HashSet<String>,
    /// When the index was last read. None if the next round has to read it.
    index_read_at: Option<Instant>,
}

impl AnnouncedRooms {
    /// Forgets all rooms when a watch begins or ends, because another instance may have handled them in between.
    pub(super) fn clear(&self) {
        *lock(&self.rooms) = Rooms::default();
    }

    pub(super) fn begin_round(&self) -> Round<'_> {
        let mut rooms = lock(&self.rooms);
        let needs_index = rooms.index_read_at.is_none_or(|at| at.elapsed() >= INDEX_INTERVAL);
        let announced = std::mem::take(&mut rooms.announced);
        Round { source: self, rooms: announced, needs_index }
    }
}

/// The rooms of one call of `take`. Dropping the round puts the remaining rooms back.
pub(super) struct Round<'a> {
    source: &'a AnnouncedRooms,
    /// The rooms that were not found empty yet.
    pub(super) rooms: HashSet<String>,
    pub(super) needs_index: bool,
}

impl Round<'_> {
    /// Adds the rooms that were read from the index.
    pub(super) fn add_index<'n>(&mut self, names: impl Iterator<Item = &'n String>) {
        self.rooms.extend(names.cloned());
        lock(&self.source.rooms).index_read_at = Some(Instant::now());
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        lock(&self.source.rooms).announced.extend(self.rooms.drain());
    }
}

impl Listener for AnnouncedRooms {
    fn message(&self, _: &Channel, payload: &[u8]) {
        let room = std::str::from_utf8(payload).ok();
        let is_valid = |room: &&str| room.split_once(':').is_some_and(|(_, id)| Id::new(id).is_ok());
        let Some(room) = room.filter(is_valid) else {
            metrics::counter!("bus_malformed_total").increment(1);
            tracing::warn!("failed to parse an announcement of follow-up records; dropping it");
            return;
        };
        let mut rooms = lock(&self.rooms);
        if rooms.announced.len() < MAX_ROOMS {
            rooms.announced.insert(room.to_owned());
        } else {
            rooms.index_read_at = None;
        }
        drop(rooms);
        self.added.notify_one();
    }

    fn mark_stale(&self, _: &Channel) {
        lock(&self.rooms).index_read_at = None;
        self.added.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(announced: &AnnouncedRooms) -> Vec<String> {
        let mut rooms: Vec<String> = announced.begin_round().rooms.iter().cloned().collect();
        rooms.sort();
        rooms
    }

    #[test]
    fn a_room_stays_until_a_read_after_its_announcement_finds_it_empty() {
        let (announced, channel) = (AnnouncedRooms::default(), Channel::Everywhere("news".into()));
        let announce = |room: &'static str| announced.message(&channel, room.as_bytes());
        announce("room:1");
        announce("room:2");
        let mut round = announced.begin_round();
        round.rooms.remove("room:1");
        // The round has read the room before this announcement.
        announce("room:1");
        drop(round);
        assert_eq!(rooms(&announced), ["room:1", "room:2"]);
        let mut round = announced.begin_round();
        round.rooms.remove("room:1");
        drop(round);
        assert_eq!(rooms(&announced), ["room:2"]);
        announce("no room");
        announce("room:a b");
        assert_eq!(rooms(&announced), ["room:2"]);
    }

    #[test]
    fn the_index_is_read_first_and_after_messages_may_have_been_lost() {
        let (announced, channel) = (AnnouncedRooms::default(), Channel::Everywhere("news".into()));
        let mut round = announced.begin_round();
        assert!(round.needs_index);
        round.add_index([&"room:1".to_owned()].into_iter());
        drop(round);
        assert!(!announced.begin_round().needs_index);
        assert_eq!(rooms(&announced), ["room:1"]);
        announced.mark_stale(&channel);
        assert!(announced.begin_round().needs_index);
    }
}
