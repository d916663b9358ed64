//! Presence in the memory of one process; it is lost when the process ends.
//!
//! The lease of a stream ends with the stream, so only heartbeat leases expire. A loop removes expired ones, also in
//! rooms without streams. A room exists while people are in it. The rules are those of `lua/report_people.lua`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis, lock, shrink};

use super::{
    CHANGE_BATCH_INTERVAL, MAX_LISTED, MAX_PAGE_SIZE, Occupant, Occupants, PresenceChange, PresenceListener,
    PresenceStore, ReportOutcome, StoreFuture, millis,
};
use crate::Options;

/// The time between two passes over the rooms in which something is due.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

type IdMap<T> = HashMap<Id, T, foldhash::fast::RandomState>;

/// The presence store of one process.
pub struct EmbeddedStore {
    lease_ttl: Millis,
    clock: Clock,
    listener: Arc<dyn PresenceListener>,
    rooms: Mutex<Rooms>,
}

#[derive(Default)]
struct Rooms {
    by_id: IdMap<Room>,
    /// The rooms in which a lease expires or an announcement is due, in the order of these times.
    schedule: BTreeSet<(Millis, Id)>,
    /// The version of the last announcement of any room.
    version: u64,
}

/// The length of an id and the id, which sort in the order of `compare_ids`.
type SortKey = (usize, Id);

fn sort_key(id: &Id) -> SortKey {
    (id.as_str().len(), id.clone())
}

#[derive(Default)]
struct Room {
    people: BTreeMap<SortKey, Lease>,
    /// The people with a heartbeat lease, by the time of their last heartbeat.
    heartbeats: BTreeSet<(Millis, Id)>,
    batch: Option<ChangeBatch>,
    /// The key of this room in the schedule.
    due: Option<Millis>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lease {
    Stream,
    /// With the time of the last heartbeat.
    Heartbeat(Millis),
}

/// The person who joined, or the one who left.
type JoinedOrLeft = (Option<Id>, Option<Id>);

/// Changes of a large room that are to be announced together.
struct ChangeBatch {
    due: Millis,
    changes: usize,
    first: JoinedOrLeft,
}

impl EmbeddedStore {
    pub fn start(
        options: Options,
        clock: Clock,
        listener: Arc<dyn PresenceListener>,
        supervisor: &Supervisor,
    ) -> Arc<Self> {
        let lease_ttl = millis(options.user_ttl);
        let this = Arc::new(Self { lease_ttl, clock, listener, rooms: Mutex::default() });
        supervisor.every("presence-sweep", SWEEP_INTERVAL, &this, |store| async move { store.sweep() });
        this
    }

    fn sweep(&self) {
        let (mut rooms, now) = (lock(&self.rooms), self.clock.now());
        while let Some((_, room)) = rooms.schedule.first().filter(|(due, _)| *due <= now).cloned() {
            self.update(&mut rooms, &room, now, |_| {});
        }
    }

    /// Removes the expired leases of a room, applies a change, makes the announcements that are due, and removes the
    /// room when it is empty.
    fn update(&self, rooms: &mut Rooms, id: &Id, now: Millis, change: impl FnOnce(&mut RoomUpdate<'_>)) {
        let Rooms { by_id, schedule, version } = rooms;
        let room = by_id.entry(id.clone()).or_default();
        let mut update =
            RoomUpdate { room, now, version, deliver: &|change| self.listener.deliver(id, change) };
        update.expire(self.lease_ttl);
        change(&mut update);
        update.announce_batch_if_due();
        let due = room.next_due(self.lease_ttl);
        if due != room.due {
            if let Some(due) = room.due {
                schedule.remove(&(due, id.clone()));
            }
            if let Some(due) = due {
                schedule.insert((due, id.clone()));
            }
            room.due = due;
        }
        if room.people.is_empty() && due.is_none() {
            by_id.remove(id);
            shrink(by_id);
        }
    }
}

impl PresenceStore for EmbeddedStore {
    fn report(&self, room: &Id, present: &[Id], left: &[Id]) -> StoreFuture<'_, ReportOutcome> {
        // Takes effect before the future is polled, so reports are applied in the order of the calls.
        let mut rooms = lock(&self.rooms);
        self.update(&mut rooms, room, self.clock.now(), |update| {
            present.iter().for_each(|person| update.renew(person, Lease::Stream));
            for person in left {
                if update.room.people.get(&sort_key(person)) == Some(&Lease::Stream) {
                    update.remove(person);
                }
            }
        });
        let count = rooms.by_id.get(room).map_or(0, |room| room.people.len());
        Box::pin(std::future::ready(Ok(ReportOutcome { next_report_within: None, version: None, count })))
    }

    fn heartbeat(&self, room: &Id, person: &Id) -> StoreFuture<'_, ()> {
        let now = self.clock.now();
        self.update(&mut lock(&self.rooms), room, now, |update| update.renew(person, Lease::Heartbeat(now)));
        Box::pin(std::future::ready(Ok(())))
    }

    fn occupants(&self, room: &Id, after: Option<&Id>, limit: usize) -> StoreFuture<'_, Occupants> {
        let (mut rooms, now) = (lock(&self.rooms), self.clock.now());
        self.update(&mut rooms, room, now, |_| {});
        let after = after.map_or(Bound::Unbounded, |after| Bound::Excluded(sort_key(after)));
        let people = rooms.by_id.get(room).map(|room| &room.people);
        let mut following =
            people.into_iter().flat_map(|people| people.range((after.clone(), Bound::Unbounded)));
        let occupant = |((_, user), lease): (&SortKey, &Lease)| {
            let last_seen = match lease {
                Lease::Stream => now,
                Lease::Heartbeat(at) => *at,
            };
            Occupant { user: user.clone(), last_seen }
        };
        let online: Vec<Occupant> = following.by_ref().take(limit.min(MAX_PAGE_SIZE)).map(occupant).collect();
        let (count, has_more) = (people.map_or(0, BTreeMap::len), following.next().is_some());
        let occupants = Occupants { version: rooms.version, at: now, count, online, has_more };
        Box::pin(std::future::ready(Ok(occupants)))
    }

    fn subscribe(&self, _: &Id) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unsubscribe(&self, _: &Id) {}

    fn renewal_interval(&self) -> Option<Duration> {
        None
    }
}

impl Room {
    /// When the next lease expires or an announcement is due.
    fn next_due(&self, lease_ttl: Millis) -> Option<Millis> {
        let expiry = self.heartbeats.first().map(|(at, _)| at + lease_ttl);
        let batch = self.batch.as_ref().map(|batch| batch.due);
        [expiry, batch].into_iter().flatten().min()
    }
}

/// One update of a room, under the lock.
struct RoomUpdate<'a> {
    room: &'a mut Room,
    now: Millis,
    version: &'a mut u64,
    deliver: &'a dyn Fn(PresenceChange),
}

impl RoomUpdate<'_> {
    /// Takes or renews a lease of a person.
    fn renew(&mut self, person: &Id, lease: Lease) {
        let key = sort_key(person);
        let previous = self.room.people.get(&key).copied();
        if let Some(Lease::Heartbeat(at)) = previous {
            self.room.heartbeats.remove(&(at, person.clone()));
        }
        // A person with a stream needs no heartbeat lease.
        let lease = if previous == Some(Lease::Stream) { Lease::Stream } else { lease };
        if let Lease::Heartbeat(at) = lease {
            self.room.heartbeats.insert((at, person.clone()));
        }
        if self.room.people.insert(key, lease).is_none() {
            self.record_change((Some(person.clone()), None));
        }
    }

    fn remove(&mut self, person: &Id) {
        if self.room.people.remove(&sort_key(person)).is_some() {
            self.record_change((None, Some(person.clone())));
        }
    }

    fn expire(&mut self, lease_ttl: Millis) {
        while let Some((_, person)) =
            self.room.heartbeats.first().filter(|(at, _)| at + lease_ttl <= self.now).cloned()
        {
            self.room.heartbeats.pop_first();
            self.remove(&person);
        }
    }

    /// Announces a change, or adds it to the batch of a large room.
    fn record_change(&mut self, change: JoinedOrLeft) {
        if let Some(batch) = &mut self.room.batch {
            batch.changes += 1;
        } else if self.room.people.len() > MAX_LISTED {
            let due = self.now + millis(CHANGE_BATCH_INTERVAL);
            self.room.batch = Some(ChangeBatch { due, changes: 1, first: change });
        } else {
            self.announce(change);
        }
    }

    fn announce_batch_if_due(&mut self) {
        let is_small = self.room.people.len() <= MAX_LISTED;
        if let Some(batch) = self.room.batch.take_if(|batch| is_small || batch.due <= self.now) {
            self.announce(if batch.changes == 1 { batch.first } else { (None, None) });
        }
    }

    fn announce(&mut self, (joined, left): JoinedOrLeft) {
        *self.version += 1;
        let count = self.room.people.len();
        let online =
            (count <= MAX_LISTED).then(|| self.room.people.keys().map(|(_, id)| id.clone()).collect());
        // No announcement is lost within a process, so the listener need not check for gaps.
        let (version, previous) = (*self.version, None);
        (self.deliver)(PresenceChange { version, previous, at: self.now, joined, left, count, online });
    }
}
