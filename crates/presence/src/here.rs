//! Who has a stream on this hub, room by room, what the store has not been told yet, and when to tell it what.
//!
//! One look at a room is under way at a time ([`Here::take_due`] to [`Here::done`]). It takes what is the case then:
//! who came and left between two looks was never there, and who left and came never gone.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bongsu_kernel::{Id, random, shrink};
use tokio::sync::{Notify, oneshot};

use crate::store::Told;

/// So many people are told of in one call. Were all of them to come to a small room at once, each with a list of its
/// own, an engine with one thread would be busy for a few milliseconds.
pub(crate) const BATCH: usize = 50;

type Map<T> = HashMap<Id, T, foldhash::fast::RandomState>;

pub(crate) struct Here {
    life: Duration,
    book: Mutex<Book>,
    bell: Notify,
}

#[derive(Default)]
struct Book {
    rooms: Map<Room>,
    agenda: BTreeSet<(Instant, Id)>,
}

#[derive(Default)]
struct Room {
    /// Streams by person.
    tabs: Map<usize>,
    /// Streams that hear of presence and are not part of it.
    observers: usize,
    /// Who came or left since the store was told, and when.
    news: Map<Instant>,
    /// New streams, by person; None for an observer's.
    waiting: Vec<(Option<Id>, oneshot::Sender<Told>)>,
    /// Whom this round of renewals has yet to come to, how long after the last batch, and when.
    round: Vec<Id>,
    step: Duration,
    renew_at: Option<Instant>,
    /// Whether the store was asked to announce the changes of this room.
    is_subscribed: bool,
    /// Where it stands in the agenda. Nowhere while it is being looked at: then `asked` says when to look next.
    due: Option<Instant>,
    looked_at: bool,
    asked: Option<Instant>,
}

/// What one look at a room has to tell.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) here: Vec<Id>,
    pub(crate) gone: Vec<Id>,
    /// When those who are gone left.
    since: Vec<Instant>,
    waiting: Vec<oneshot::Sender<Told>>,
}

impl Here {
    pub(crate) fn new(life: Duration) -> Self {
        Self { life, book: Mutex::default(), bell: Notify::new() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts in a stream of a person, or of an observer (None). The receiver gets what the store answered; there is none
    /// when the store knows of the person already and no look is under way.
    pub(crate) fn enter(&self, room: &Id, person: Option<&Id>) -> Option<oneshot::Receiver<Told>> {
        let (mut book, now) = (self.book(), Instant::now());
        let entry = book.rooms.entry(room.clone()).or_default();
        // A look that is under way may be the first one: its outcome is not known yet.
        let is_known = !entry.looked_at && entry.is_told(person);
        match person {
            Some(person) => *entry.tabs.entry(person.clone()).or_default() += 1,
            None => entry.observers += 1,
        }
        if is_known {
            return None;
        }
        if let Some(person) = person {
            entry.news.insert(person.clone(), now);
        }
        let (told, waits) = oneshot::channel();
        entry.waiting.push((person.cloned(), told));
        book.look_at(room, now);
        self.bell.notify_one();
        Some(waits)
    }

    /// Counts a stream out.
    pub(crate) fn leave(&self, room: &Id, person: Option<&Id>) {
        let (mut book, now) = (self.book(), Instant::now());
        let Some(entry) = book.rooms.get_mut(room) else { return };
        if let Some(person) = person {
            let Some(tabs) = entry.tabs.get_mut(person) else { return };
            *tabs -= 1;
            if *tabs > 0 {
                return;
            }
            entry.tabs.remove(person);
            entry.news.insert(person.clone(), now);
        } else {
            entry.observers = entry.observers.saturating_sub(1);
            if !entry.is_empty() {
                return;
            }
        }
        book.look_at(room, now);
        self.bell.notify_one();
    }

    /// Whether a room has streams of this hub.
    pub(crate) fn has(&self, room: &Id) -> bool {
        self.book().rooms.get(room).is_some_and(|room| !room.is_empty())
    }

    /// Has a room looked at when something is due in it.
    pub(crate) fn look_within(&self, room: &Id, within: Duration) {
        self.book().look_at(room, Instant::now() + self.not_all_at_once(within));
        self.bell.notify_one();
    }

    /// Has every room looked at, each at some moment of this time.
    pub(crate) fn look_at_all(&self, within: Duration) {
        let (mut book, now) = (self.book(), Instant::now());
        let rooms: Vec<Id> = book.rooms.keys().cloned().collect();
        rooms.iter().for_each(|room| book.look_at(room, now + part_of(within)));
        self.bell.notify_one();
    }

    /// A little later, and not with all other hubs at the same moment.
    fn not_all_at_once(&self, within: Duration) -> Duration {
        within + part_of((self.life / 64).min(within / 8))
    }

    /// Has everybody in a room told again at once: the store may have forgotten them.
    pub(crate) fn renew_now(&self, room: &Id) {
        let (mut book, now) = (self.book(), Instant::now());
        if let Some(room) = book.rooms.get_mut(room).filter(|room| room.renew_at.is_some()) {
            room.round = room.tabs.keys().cloned().collect();
            (room.step, room.renew_at) = (Duration::ZERO, Some(now));
        }
        book.look_at(room, now);
        self.bell.notify_one();
    }

    pub(crate) fn renew_all(&self) {
        let rooms: Vec<Id> = self.book().rooms.keys().cloned().collect();
        rooms.iter().for_each(|room| self.renew_now(room));
    }

    /// Begins anew after the loop that looks after the rooms has failed.
    pub(crate) fn begin_again(&self) {
        let (mut book, now) = (self.book(), Instant::now());
        let looked_at = book.rooms.iter_mut().filter(|(_, room)| room.looked_at);
        let looked_at: Vec<Id> = looked_at
            .map(|(id, room)| {
                (room.looked_at, room.is_subscribed) = (false, false);
                let people: Vec<Id> = room.tabs.keys().cloned().collect();
                people.into_iter().for_each(|person| _ = room.news.entry(person).or_insert(now));
                id.clone()
            })
            .collect();
        looked_at.iter().for_each(|room| book.look_at(room, now));
    }

    /// Resolves when something was added to the agenda.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// The next room to look at, when it is time, and whether this is the first look at it.
    pub(crate) fn take_due(&self, now: Instant) -> Option<(Id, bool)> {
        let mut book = self.book();
        let (_, id) = book.agenda.first().filter(|(due, _)| *due <= now).cloned()?;
        book.agenda.pop_first();
        let room = book.rooms.get_mut(&id)?;
        (room.due, room.looked_at) = (None, true);
        Some((id, !std::mem::replace(&mut room.is_subscribed, true)))
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.book().agenda.first().map(|(due, _)| *due)
    }

    /// What the store has to be told of a room: news first, then those whose renewal is due.
    pub(crate) fn take_work(&self, room: &Id, renewal: Option<Duration>) -> Work {
        let now = Instant::now();
        match self.book().rooms.get_mut(room) {
            Some(room) => room.take_work(renewal, now),
            None => Work::default(),
        }
    }

    /// A look has ended; what could not be told is told again after the pause. A room where nobody is any more is
    /// forgotten: `forget` is called before anybody can come to it again, and the answer is true.
    pub(crate) fn done(
        &self,
        id: &Id,
        work: Work,
        outcome: Result<Told, Duration>,
        forget: impl FnOnce(),
    ) -> bool {
        let (mut book, now) = (self.book(), Instant::now());
        let Some(room) = book.rooms.get_mut(id) else { return false };
        room.looked_at = false;
        let asked = room.asked.take();
        let due = match outcome {
            Err(pause) => {
                room.take_back(&work, now, self.life);
                Some(now + pause)
            }
            Ok(told) => {
                work.waiting.into_iter().for_each(|waits| _ = waits.send(told));
                let news = (!room.news.is_empty()).then_some(now);
                let ends = told.look_within.map(|within| now + self.not_all_at_once(within));
                [news, ends, asked, room.renew_at].into_iter().flatten().min()
            }
        };
        if room.is_empty() && room.news.is_empty() {
            book.rooms.remove(id);
            shrink(&mut book.rooms);
            forget();
            return true;
        }
        if let Some(due) = due {
            book.look_at(id, due);
        }
        false
    }

    /// Everybody leaves: this hub ends.
    pub(crate) fn everybody(&self) -> Vec<(Id, Vec<Id>)> {
        let book = std::mem::take(&mut *self.book());
        let people =
            |(id, room): (Id, Room)| (id, room.tabs.into_keys().chain(room.news.into_keys()).collect());
        book.rooms.into_iter().map(people).collect()
    }
}

impl Book {
    /// Puts a room into the agenda, unless it stands there earlier.
    fn look_at(&mut self, id: &Id, at: Instant) {
        let Some(room) = self.rooms.get_mut(id) else { return };
        if room.looked_at {
            room.asked = Some(room.asked.map_or(at, |asked| asked.min(at)));
        } else if room.due.is_none_or(|due| at < due) {
            if let Some(due) = room.due.replace(at) {
                self.agenda.remove(&(due, id.clone()));
            }
            self.agenda.insert((at, id.clone()));
        }
    }
}

impl Room {
    fn is_empty(&self) -> bool {
        self.tabs.is_empty() && self.observers == 0
    }

    /// Whether the store was told of a person. Of an observer there is nothing to tell, but the room has to be asked for.
    fn is_told(&self, person: Option<&Id>) -> bool {
        match person {
            Some(person) => self.tabs.contains_key(person) && !self.news.contains_key(person),
            None => self.is_subscribed,
        }
    }

    fn take_work(&mut self, renewal: Option<Duration>, now: Instant) -> Work {
        let mut work = Work::default();
        let news: Vec<Id> = self.news.keys().take(BATCH).cloned().collect();
        for person in news {
            let since = self.news.remove(&person).unwrap_or(now);
            if self.tabs.contains_key(&person) {
                work.here.push(person);
            } else {
                work.gone.push(person);
                work.since.push(since);
            }
        }
        // Those whose news is left for the next look wait on.
        let waiting = std::mem::take(&mut self.waiting);
        let (told, rest): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|(person, _)| person.as_ref().is_none_or(|person| !self.news.contains_key(person)));
        self.waiting = rest;
        work.waiting = told.into_iter().map(|(_, waits)| waits).collect();
        let Some(renewal) = renewal else { return work };
        match self.renew_at {
            // Rooms that were opened together are not renewed together for ever.
            None => self.renew_at = Some(now + renewal / 2 + part_of(renewal / 2)),
            Some(at) if at <= now => self.take_renewals(renewal, now, &mut work),
            Some(_) => {}
        }
        work
    }

    fn take_renewals(&mut self, renewal: Duration, now: Instant, work: &mut Work) {
        if self.round.is_empty() {
            self.round = self.tabs.keys().cloned().collect();
            let batches = self.round.len().div_ceil(BATCH).max(1);
            self.step = renewal / u32::try_from(batches).unwrap_or(u32::MAX);
        }
        while work.here.len() + work.gone.len() < BATCH
            && let Some(person) = self.round.pop()
        {
            if self.tabs.contains_key(&person) {
                work.here.push(person);
            }
        }
        // A round in a hurry has no steps, and is followed by a whole pause.
        let hurried = self.round.is_empty() && self.step.is_zero();
        self.renew_at = Some(now + if hurried { renewal } else { self.step });
    }

    /// Who left longer ago than a sign lives has gone without a word.
    fn take_back(&mut self, work: &Work, now: Instant, life: Duration) {
        for person in &work.here {
            self.news.entry(person.clone()).or_insert(now);
        }
        for (person, since) in work.gone.iter().zip(&work.since) {
            if now.duration_since(*since) < life {
                self.news.entry(person.clone()).or_insert(*since);
            }
        }
    }
}

/// Some of it, by chance.
fn part_of(whole: Duration) -> Duration {
    let micros = u64::try_from(whole.as_micros()).unwrap_or(u64::MAX - 1);
    Duration::from_micros(random::between(0, micros))
}

#[cfg(test)]
mod tests;
