//! The entries of a hub, bounded in rooms and in members: past either bound those that were read first go.

use std::collections::{BTreeMap, HashMap};

use bongsu_kernel::{Id, Millis};

use super::Membership;

/// Rooms in the cache at most: about 20 MiB.
const MAX_ROOMS: usize = 100_000;
/// Members in the cache at most, of all rooms together: about 30 MiB.
const MAX_MEMBERS: usize = 500_000;

pub(super) struct Cache {
    entries: HashMap<Id, Entry>,
    /// In the order in which they were read.
    by_number: BTreeMap<u64, Id>,
    next_number: u64,
    /// Of all entries.
    members: usize,
    max_rooms: usize,
    max_members: usize,
}

struct Entry {
    known: Membership,
    read_at: Millis,
    number: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(MAX_ROOMS, MAX_MEMBERS)
    }
}

impl Cache {
    fn new(max_rooms: usize, max_members: usize) -> Self {
        Self {
            entries: HashMap::new(),
            by_number: BTreeMap::new(),
            next_number: 0,
            members: 0,
            max_rooms,
            max_members,
        }
    }

    pub(super) fn get(&self, room: &Id) -> Option<(Membership, Millis)> {
        self.entries.get(room).map(|entry| (entry.known.clone(), entry.read_at))
    }

    pub(super) fn insert(&mut self, room: &Id, known: Membership, read_at: Millis) {
        self.remove(room);
        let number = self.next_number;
        self.next_number += 1;
        self.members += count(&known);
        self.by_number.insert(number, room.clone());
        self.entries.insert(room.clone(), Entry { known, read_at, number });
        while self.entries.len() > self.max_rooms || self.members > self.max_members {
            let Some((_, oldest)) = self.by_number.first_key_value() else { break };
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    pub(super) fn remove(&mut self, room: &Id) {
        if let Some(entry) = self.entries.remove(room) {
            self.by_number.remove(&entry.number);
            self.members -= count(&entry.known);
        }
    }

    /// Another event may have had the room read again meanwhile: that entry stays.
    pub(super) fn forget(&mut self, room: &Id, version: u64) {
        if self.entries.get(room).is_some_and(|entry| entry.known.version == Some(version)) {
            self.remove(room);
        }
    }
}

fn count(known: &Membership) -> usize {
    known.members.as_ref().map_or(0, |members| members.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(number: usize) -> Id {
        Id::new(&number.to_string()).unwrap()
    }

    fn with_members(version: u64, count: usize) -> Membership {
        Membership { version: Some(version), members: Some((0..count).map(room).collect()) }
    }

    #[test]
    fn rooms_and_members_are_bounded_and_the_oldest_go() {
        let mut cache = Cache::new(5, 100);
        for number in 0..1_000 {
            cache.insert(&room(number), with_members(1, number % 60), 0);
            let members: usize = cache.entries.values().map(|entry| count(&entry.known)).sum();
            assert_eq!((cache.members, cache.by_number.len()), (members, cache.entries.len()), "at {number}");
            assert!(cache.entries.len() <= 5 && members <= 100, "at {number}");
            assert!(cache.get(&room(number)).is_some(), "the newest of {number}");
        }
        cache.insert(&room(0), with_members(1, 101), 0);
        assert_eq!((cache.entries.len(), cache.members), (0, 0), "more members than all rooms may have");
    }

    #[test]
    fn a_stale_version_removes_the_entry_that_has_it_and_no_newer_one() {
        let mut cache = Cache::default();
        cache.insert(&room(1), with_members(7, 1), 0);
        cache.insert(&room(1), with_members(8, 2), 0);
        cache.forget(&room(1), 7);
        assert_eq!(cache.get(&room(1)).unwrap().0.version, Some(8));
        cache.forget(&room(1), 8);
        assert!(cache.get(&room(1)).is_none());
        assert_eq!(cache.members, 0);
    }
}
