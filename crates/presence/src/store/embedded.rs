//! People in memory, for one process: exact, and gone with it.
//!
//! A stream's sign ends with the stream, so only people without one expire; a loop of its own looks for them, also in
//! rooms that have no stream. Rooms are there while somebody is in them. The rules are those of `lua/tell.lua`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis, shrink};
use bongsu_live::log::Boxed;

use super::{Change, Ears, Error, GATHER, MAX_PAGE_SIZE, MOST_LISTED, Online, Store, Told, Who, millis};
use crate::Options;

/// Looks so often whose time is up. Only those are looked at.
const SWEEP: Duration = Duration::from_millis(250);

type Map<T> = HashMap<Id, T, foldhash::fast::RandomState>;

/// See the module.
pub struct EmbeddedStore {
    life: Millis,
    clock: Clock,
    ears: Arc<dyn Ears>,
    rooms: Mutex<Rooms>,
}

#[derive(Default)]
struct Rooms {
    by_id: Map<Room>,
    /// When to look at which room.
    agenda: BTreeSet<(Millis, Id)>,
    /// Of the last announcement of any room.
    version: u64,
}

/// An id after its length, which is the order of lists (`in_order`).
type Listed = (usize, Id);

fn listed(id: &Id) -> Listed {
    (id.as_str().len(), id.clone())
}

#[derive(Default)]
struct Room {
    people: BTreeMap<Listed, Sign>,
    /// Those without a stream, by the time of their last heartbeat.
    beats: BTreeSet<(Millis, Id)>,
    gathered: Option<Gathered>,
    /// Where it stands in the agenda.
    due: Option<Millis>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Stream,
    Beat(Millis),
}

/// Who came, or who left.
type JoinedOrLeft = (Option<Id>, Option<Id>);

/// Changes of a large room that are still to be announced.
struct Gathered {
    due: Millis,
    changes: usize,
    first: JoinedOrLeft,
}

impl EmbeddedStore {
    pub fn start(options: Options, clock: Clock, ears: Arc<dyn Ears>, supervisor: &Supervisor) -> Arc<Self> {
        let life = millis(options.user_ttl);
        let this = Arc::new(Self { life, clock, ears, rooms: Mutex::default() });
        supervisor.every("presence-sweep", SWEEP, &this, |store| async move { store.sweep() });
        this
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sweep(&self) {
        let (mut rooms, now) = (self.rooms(), self.clock.now());
        while let Some((_, room)) = rooms.agenda.first().filter(|(due, _)| *due <= now).cloned() {
            self.change(&mut rooms, &room, now, |_| {});
        }
    }

    /// Changes a room, lets those go whose time is up, announces all of it, and forgets the room when nobody is left.
    fn change(&self, rooms: &mut Rooms, id: &Id, now: Millis, change: impl FnOnce(&mut Turn<'_>)) {
        let Rooms { by_id, agenda, version } = rooms;
        let room = by_id.entry(id.clone()).or_default();
        let mut turn = Turn { room, now, version, tell: &|change| self.ears.change(id, change) };
        turn.expire(self.life);
        change(&mut turn);
        turn.flush();
        let due = room.due(self.life);
        if due != room.due {
            if let Some(due) = room.due {
                agenda.remove(&(due, id.clone()));
            }
            if let Some(due) = due {
                agenda.insert((due, id.clone()));
            }
            room.due = due;
        }
        if room.people.is_empty() && due.is_none() {
            by_id.remove(id);
            shrink(by_id);
        }
    }
}

impl Store for EmbeddedStore {
    fn tell(&self, room: &Id, here: &[Id], gone: &[Id]) -> Boxed<'_, Result<Told, Error>> {
        // At once, and in the order of the calls, not of the futures.
        let mut rooms = self.rooms();
        self.change(&mut rooms, room, self.clock.now(), |turn| {
            here.iter().for_each(|person| turn.sign(person, Sign::Stream));
            for person in gone {
                if turn.room.people.get(&listed(person)) == Some(&Sign::Stream) {
                    turn.leave(person);
                }
            }
        });
        let count = rooms.by_id.get(room).map_or(0, |room| room.people.len());
        Box::pin(std::future::ready(Ok(Told { look_within: None, version: None, count })))
    }

    fn beat(&self, room: &Id, person: &Id) -> Boxed<'_, Result<(), Error>> {
        let now = self.clock.now();
        self.change(&mut self.rooms(), room, now, |turn| turn.sign(person, Sign::Beat(now)));
        Box::pin(std::future::ready(Ok(())))
    }

    fn who(&self, room: &Id, after: Option<&Id>, most: usize) -> Boxed<'_, Result<Who, Error>> {
        let (mut rooms, now) = (self.rooms(), self.clock.now());
        self.change(&mut rooms, room, now, |_| {});
        let after = after.map_or(Bound::Unbounded, |after| Bound::Excluded(listed(after)));
        let people = rooms.by_id.get(room).map(|room| &room.people);
        let mut following =
            people.into_iter().flat_map(|people| people.range((after.clone(), Bound::Unbounded)));
        let online = |((_, user), sign): (&Listed, &Sign)| {
            let last_seen = match sign {
                Sign::Stream => now,
                Sign::Beat(at) => *at,
            };
            Online { user: user.clone(), last_seen }
        };
        let online: Vec<Online> = following.by_ref().take(most.min(MAX_PAGE_SIZE)).map(online).collect();
        let (count, has_more) = (people.map_or(0, BTreeMap::len), following.next().is_some());
        let who = Who { version: rooms.version, at: now, count, online, has_more };
        Box::pin(std::future::ready(Ok(who)))
    }

    fn listen(&self, _: &Id) -> Boxed<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn forget(&self, _: &Id) {}

    fn renewal(&self) -> Option<Duration> {
        None
    }
}

impl Room {
    /// When to look at it again: somebody's time is up, or an announcement is due.
    fn due(&self, life: Millis) -> Option<Millis> {
        let beat = self.beats.first().map(|(at, _)| at + life);
        let gathered = self.gathered.as_ref().map(|gathered| gathered.due);
        [beat, gathered].into_iter().flatten().min()
    }
}

/// One look at a room, under the lock.
struct Turn<'a> {
    room: &'a mut Room,
    now: Millis,
    version: &'a mut u64,
    tell: &'a dyn Fn(Change),
}

impl Turn<'_> {
    fn sign(&mut self, person: &Id, sign: Sign) {
        let place = listed(person);
        let before = self.room.people.get(&place).copied();
        if let Some(Sign::Beat(at)) = before {
            self.room.beats.remove(&(at, person.clone()));
        }
        // A heartbeat beside a stream says nothing new.
        let sign = if before == Some(Sign::Stream) { Sign::Stream } else { sign };
        if let Sign::Beat(at) = sign {
            self.room.beats.insert((at, person.clone()));
        }
        if self.room.people.insert(place, sign).is_none() {
            self.changed((Some(person.clone()), None));
        }
    }

    fn leave(&mut self, person: &Id) {
        if self.room.people.remove(&listed(person)).is_some() {
            self.changed((None, Some(person.clone())));
        }
    }

    fn expire(&mut self, life: Millis) {
        while let Some((_, person)) = self.room.beats.first().filter(|(at, _)| at + life <= self.now).cloned()
        {
            self.room.beats.pop_first();
            self.leave(&person);
        }
    }

    fn changed(&mut self, what: JoinedOrLeft) {
        if let Some(gathered) = &mut self.room.gathered {
            gathered.changes += 1;
        } else if self.room.people.len() > MOST_LISTED {
            let due = self.now + millis(GATHER);
            self.room.gathered = Some(Gathered { due, changes: 1, first: what });
        } else {
            self.announce(what);
        }
    }

    fn flush(&mut self) {
        let small = self.room.people.len() <= MOST_LISTED;
        if let Some(gathered) = self.room.gathered.take_if(|gathered| small || gathered.due <= self.now) {
            self.announce(if gathered.changes == 1 { gathered.first } else { (None, None) });
        }
    }

    fn announce(&mut self, (joined, left): JoinedOrLeft) {
        *self.version += 1;
        let count = self.room.people.len();
        let online =
            (count <= MOST_LISTED).then(|| self.room.people.keys().map(|(_, id)| id.clone()).collect());
        // Nothing is lost within a process, so nobody has to look for gaps.
        let (version, previous) = (*self.version, None);
        (self.tell)(Change { version, previous, at: self.now, joined, left, count, online });
    }
}
