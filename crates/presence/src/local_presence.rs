//! The people with streams on this instance, per room; which of them were not reported to the store yet; and when the
//! next report of each room is due.
//!
//! At most one report per room is in flight ([`LocalPresence::begin_due_report`] to [`LocalPresence::finish_report`]).
//! A report contains the state at its beginning: a person who joined and left between two reports is never reported as
//! present, and one who left and rejoined is never reported as having left.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bongsu_kernel::{Id, lock, random, shrink};
use tokio::sync::{Notify, oneshot};

use crate::store::ReportOutcome;

/// Maximum number of people in one report. If all of them joined a small room at once, each would be
/// announced with a list of its own, and a Redis, which has one thread, would be busy for a few milliseconds.
pub(crate) const MAX_PEOPLE_PER_REPORT: usize = 50;

type IdMap<T> = HashMap<Id, T, foldhash::fast::RandomState>;

pub(crate) struct LocalPresence {
    lease_ttl: Duration,
    state: Mutex<State>,
    schedule_changed: Notify,
}

#[derive(Default)]
struct State {
    rooms: IdMap<Room>,
    /// The rooms in the order in which their reports are due.
    schedule: BTreeSet<(Instant, Id)>,
}

#[derive(Default)]
struct Room {
    /// The number of streams of each person.
    streams: IdMap<usize>,
    /// The number of streams that receive presence updates without being present themselves.
    observers: usize,
    /// The people who joined or left since the last report that contained them, and when.
    unreported: IdMap<Instant>,
    /// New streams that wait for the outcome of a report, by person; None for an observer's.
    waiters: Vec<(Option<Id>, oneshot::Sender<ReportOutcome>)>,
    /// The people whose leases the current round has yet to renew.
    renewal_queue: Vec<Id>,
    /// The time between two reports of a round; zero in a round that was requested by [`LocalPresence::renew_now`].
    renewal_step: Duration,
    next_renewal: Option<Instant>,
    /// The first report has begun, which subscribes to the announcements of the room.
    is_subscribed: bool,
    /// The key of this room in the schedule. None while a report is in flight: then `due_after_report` is set instead.
    due: Option<Instant>,
    is_reporting: bool,
    due_after_report: Option<Instant>,
}

/// The content of one report about a room.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) present: Vec<Id>,
    pub(crate) left: Vec<Id>,
    /// When each person of `left` left.
    left_at: Vec<Instant>,
    waiters: Vec<oneshot::Sender<ReportOutcome>>,
}

impl LocalPresence {
    pub(crate) fn new(lease_ttl: Duration) -> Self {
        Self { lease_ttl, state: Mutex::default(), schedule_changed: Notify::new() }
    }

    /// Adds a stream of a person, or of an observer (None). The receiver gets the outcome of the next report, or an
    /// error when that report fails. Returns None when the person was reported to the store already and no report is in
    /// flight.
    pub(crate) fn add_stream(
        &self,
        room: &Id,
        person: Option<&Id>,
    ) -> Option<oneshot::Receiver<ReportOutcome>> {
        let (mut state, now) = (lock(&self.state), Instant::now());
        let entry = state.rooms.entry(room.clone()).or_default();
        // The outcome of a report that is in flight is not known yet, and it may be the first one.
        let is_known = !entry.is_reporting && entry.is_reported(person);
        match person {
            Some(person) => *entry.streams.entry(person.clone()).or_default() += 1,
            None => entry.observers += 1,
        }
        if is_known {
            return None;
        }
        if let Some(person) = person {
            entry.unreported.insert(person.clone(), now);
        }
        let (sender, receiver) = oneshot::channel();
        entry.waiters.push((person.cloned(), sender));
        state.schedule_room(room, now);
        self.schedule_changed.notify_one();
        Some(receiver)
    }

    /// Removes a stream that was added.
    pub(crate) fn remove_stream(&self, room: &Id, person: Option<&Id>) {
        let (mut state, now) = (lock(&self.state), Instant::now());
        let Some(entry) = state.rooms.get_mut(room) else { return };
        if let Some(person) = person {
            let Some(streams) = entry.streams.get_mut(person) else { return };
            *streams -= 1;
            if *streams > 0 {
                return;
            }
            entry.streams.remove(person);
            entry.unreported.insert(person.clone(), now);
        } else {
            entry.observers = entry.observers.saturating_sub(1);
            if !entry.is_empty() {
                return;
            }
        }
        state.schedule_room(room, now);
        self.schedule_changed.notify_one();
    }

    /// Whether a room has streams on this instance.
    pub(crate) fn has_streams(&self, room: &Id) -> bool {
        lock(&self.state).rooms.get(room).is_some_and(|room| !room.is_empty())
    }

    /// Schedules a report of a room after `delay`, plus a little jitter so that the instances do not report together.
    pub(crate) fn schedule_after(&self, room: &Id, delay: Duration) {
        lock(&self.state).schedule_room(room, Instant::now() + self.with_jitter(delay));
        self.schedule_changed.notify_one();
    }

    /// Schedules a report of every room, each at a random moment within `spread`.
    pub(crate) fn schedule_all(&self, spread: Duration) {
        let (mut state, now) = (lock(&self.state), Instant::now());
        let rooms: Vec<Id> = state.rooms.keys().cloned().collect();
        rooms.iter().for_each(|room| state.schedule_room(room, now + random_up_to(spread)));
        self.schedule_changed.notify_one();
    }

    fn with_jitter(&self, delay: Duration) -> Duration {
        delay + random_up_to((self.lease_ttl / 64).min(delay / 8))
    }

    /// Reports all people in a room again at once, because the store may have lost their leases.
    pub(crate) fn renew_now(&self, room: &Id) {
        let (mut state, now) = (lock(&self.state), Instant::now());
        if let Some(room) = state.rooms.get_mut(room).filter(|room| room.next_renewal.is_some()) {
            room.renewal_queue = room.streams.keys().cloned().collect();
            (room.renewal_step, room.next_renewal) = (Duration::ZERO, Some(now));
        }
        state.schedule_room(room, now);
        self.schedule_changed.notify_one();
    }

    pub(crate) fn renew_all(&self) {
        let rooms: Vec<Id> = lock(&self.state).rooms.keys().cloned().collect();
        rooms.iter().for_each(|room| self.renew_now(room));
    }

    /// Schedules the rooms whose reports were in flight when the report loop failed, each with all of its people.
    pub(crate) fn recover(&self) {
        let (mut state, now) = (lock(&self.state), Instant::now());
        let interrupted = state.rooms.iter_mut().filter(|(_, room)| room.is_reporting);
        let interrupted: Vec<Id> = interrupted
            .map(|(id, room)| {
                (room.is_reporting, room.is_subscribed) = (false, false);
                let people: Vec<Id> = room.streams.keys().cloned().collect();
                people.into_iter().for_each(|person| _ = room.unreported.entry(person).or_insert(now));
                id.clone()
            })
            .collect();
        interrupted.iter().for_each(|room| state.schedule_room(room, now));
    }

    /// Resolves when a report was scheduled.
    pub(crate) async fn schedule_changed(&self) {
        self.schedule_changed.notified().await;
    }

    /// Takes the next room whose report is due, and begins the report. The bool is true for a room's first report.
    pub(crate) fn begin_due_report(&self, now: Instant) -> Option<(Id, bool)> {
        let mut state = lock(&self.state);
        let (_, id) = state.schedule.first().filter(|(due, _)| *due <= now).cloned()?;
        state.schedule.pop_first();
        let room = state.rooms.get_mut(&id)?;
        (room.due, room.is_reporting) = (None, true);
        Some((id, !std::mem::replace(&mut room.is_subscribed, true)))
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        lock(&self.state).schedule.first().map(|(due, _)| *due)
    }

    /// The content of a report that has begun: people who joined or left first, then those whose renewal is due.
    pub(crate) fn take_report(&self, room: &Id, renewal_interval: Option<Duration>) -> Report {
        let now = Instant::now();
        match lock(&self.state).rooms.get_mut(room) {
            Some(room) => room.take_report(renewal_interval, now),
            None => Report::default(),
        }
    }

    /// Ends a report and schedules the next one. An error is the delay after a failure; the next report then contains
    /// the same people. A room that has no streams and nothing to report is removed. Then the result is true, and
    /// `on_removed` was called before a stream can be added again.
    pub(crate) fn finish_report(
        &self,
        id: &Id,
        report: Report,
        outcome: Result<ReportOutcome, Duration>,
        on_removed: impl FnOnce(),
    ) -> bool {
        let (mut state, now) = (lock(&self.state), Instant::now());
        let Some(room) = state.rooms.get_mut(id) else { return false };
        room.is_reporting = false;
        let requested = room.due_after_report.take();
        let due = match outcome {
            Err(retry_delay) => {
                room.restore(&report, now, self.lease_ttl);
                Some(now + retry_delay)
            }
            Ok(outcome) => {
                report.waiters.into_iter().for_each(|waiter| _ = waiter.send(outcome));
                let unreported = (!room.unreported.is_empty()).then_some(now);
                let expiry = outcome.next_report_within.map(|within| now + self.with_jitter(within));
                [unreported, expiry, requested, room.next_renewal].into_iter().flatten().min()
            }
        };
        if room.is_empty() && room.unreported.is_empty() {
            state.rooms.remove(id);
            shrink(&mut state.rooms);
            on_removed();
            return true;
        }
        if let Some(due) = due {
            state.schedule_room(id, due);
        }
        false
    }

    /// Removes all rooms, because this instance shuts down. Returns the people that the store has to remove.
    pub(crate) fn take_all(&self) -> Vec<(Id, Vec<Id>)> {
        let state = std::mem::take(&mut *lock(&self.state));
        let people = |(id, room): (Id, Room)| {
            (id, room.streams.into_keys().chain(room.unreported.into_keys()).collect())
        };
        state.rooms.into_iter().map(people).collect()
    }
}

impl State {
    /// Schedules a report, unless an earlier one is scheduled.
    fn schedule_room(&mut self, id: &Id, at: Instant) {
        let Some(room) = self.rooms.get_mut(id) else { return };
        if room.is_reporting {
            room.due_after_report = Some(room.due_after_report.map_or(at, |requested| requested.min(at)));
        } else if room.due.is_none_or(|due| at < due) {
            if let Some(due) = room.due.replace(at) {
                self.schedule.remove(&(due, id.clone()));
            }
            self.schedule.insert((at, id.clone()));
        }
    }
}

impl Room {
    fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.observers == 0
    }

    /// Whether the store has the person. Observers are not reported, but the room has to be subscribed to.
    fn is_reported(&self, person: Option<&Id>) -> bool {
        match person {
            Some(person) => self.streams.contains_key(person) && !self.unreported.contains_key(person),
            None => self.is_subscribed,
        }
    }

    fn take_report(&mut self, renewal_interval: Option<Duration>, now: Instant) -> Report {
        let mut report = Report::default();
        let unreported: Vec<Id> = self.unreported.keys().take(MAX_PEOPLE_PER_REPORT).cloned().collect();
        for person in unreported {
            let since = self.unreported.remove(&person).unwrap_or(now);
            if self.streams.contains_key(&person) {
                report.present.push(person);
            } else {
                report.left.push(person);
                report.left_at.push(since);
            }
        }
        // Streams of people who did not fit into this report wait for the next one.
        let waiters = std::mem::take(&mut self.waiters);
        let (reported, remaining): (Vec<_>, Vec<_>) = waiters.into_iter().partition(|(person, _)| {
            person.as_ref().is_none_or(|person| !self.unreported.contains_key(person))
        });
        self.waiters = remaining;
        report.waiters = reported.into_iter().map(|(_, waiter)| waiter).collect();
        let Some(interval) = renewal_interval else { return report };
        match self.next_renewal {
            // The random part keeps rooms that were opened together from being renewed together for ever.
            None => self.next_renewal = Some(now + interval / 2 + random_up_to(interval / 2)),
            Some(at) if at <= now => self.take_renewals(interval, now, &mut report),
            Some(_) => {}
        }
        report
    }

    fn take_renewals(&mut self, interval: Duration, now: Instant, report: &mut Report) {
        if self.renewal_queue.is_empty() {
            self.renewal_queue = self.streams.keys().cloned().collect();
            let reports = self.renewal_queue.len().div_ceil(MAX_PEOPLE_PER_REPORT).max(1);
            self.renewal_step = interval / u32::try_from(reports).unwrap_or(u32::MAX);
        }
        while report.present.len() + report.left.len() < MAX_PEOPLE_PER_REPORT
            && let Some(person) = self.renewal_queue.pop()
        {
            if self.streams.contains_key(&person) {
                report.present.push(person);
            }
        }
        // A round without steps is followed by a whole interval.
        let is_immediate_round_over = self.renewal_queue.is_empty() && self.renewal_step.is_zero();
        self.next_renewal = Some(now + if is_immediate_round_over { interval } else { self.renewal_step });
    }

    /// Takes back the people of a report that failed. Those who left longer ago than a lease lasts are dropped: their
    /// leases have expired by themselves.
    fn restore(&mut self, report: &Report, now: Instant, lease_ttl: Duration) {
        for person in &report.present {
            self.unreported.entry(person.clone()).or_insert(now);
        }
        for (person, left_at) in report.left.iter().zip(&report.left_at) {
            if now.duration_since(*left_at) < lease_ttl {
                self.unreported.entry(person.clone()).or_insert(*left_at);
            }
        }
    }
}

/// A random duration from zero to `max`.
fn random_up_to(max: Duration) -> Duration {
    let micros = u64::try_from(max.as_micros()).unwrap_or(u64::MAX - 1);
    Duration::from_micros(random::between(0, micros))
}

#[cfg(test)]
mod tests;
