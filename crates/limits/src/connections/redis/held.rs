//! The connections that this instance holds, as it knows them itself, and of whom Redis has to be told.
//!
//! Nothing here waits: [`super`] sends the reports, and brings what is answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bongsu_kernel::{Id, Millis, shrink};
use tokio::sync::Notify;

use crate::connections::{OnReplaced, Policy};

/// People of whom Redis has to be told at the same time. While there are so many, nobody is let in who would add to them.
const MAX_CHANGED: usize = 65_536;

type People<T> = HashMap<Id, T, foldhash::fast::RandomState>;

pub(super) struct Held {
    policy: Policy,
    people: People<Vec<Connection>>,
    /// People whose note may be wrong, and why a report of them is due; None where no report is.
    changed: People<Option<Purpose>>,
    last_number: u64,
    /// A moment, and what Redis's clock showed then.
    clock: Option<(Instant, Millis)>,
    /// Notified when somebody is in `changed`.
    pub(super) on_change: Arc<Notify>,
}

struct Connection {
    id: Arc<str>,
    on_replaced: OnReplaced,
    state: State,
}

enum State {
    /// Its caller waits for an answer until this moment.
    Entering(Instant),
    /// Since when it counts, as Redis wrote it. It keeps this time whatever Redis forgets.
    Counted(String),
}

/// Why this instance reports what it holds of a person.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// Something has changed, or may have.
    Change,
    /// Another instance has asked.
    Answer,
    /// Others were asked at this time of Redis's clock, and have had their time to answer.
    Decision(Millis),
}

/// All that this instance holds of a person. Reports are numbered, so that an old one that comes late changes nothing.
pub(super) struct Report {
    pub(super) number: u64,
    /// Each with its time, which is empty for a new one.
    pub(super) connections: Vec<(Arc<str>, String)>,
    /// When the first of those who wait for it gives up, by Redis's clock; 0 when nobody waits.
    pub(super) until: Millis,
}

impl Held {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            people: HashMap::default(),
            changed: HashMap::default(),
            last_number: 0,
            clock: None,
            on_change: Arc::default(),
        }
    }

    pub(super) fn people(&self) -> Vec<Id> {
        self.people.keys().cloned().collect()
    }

    /// Whether a connection of this person counts.
    pub(super) fn counts(&self, person: &Id) -> bool {
        let is_counted = |one: &Connection| matches!(one.state, State::Counted(_));
        self.people.get(person).is_some_and(|own| own.iter().any(is_counted))
    }

    pub(super) fn holds(&self, person: &Id, id: &str) -> bool {
        self.people.get(person).is_some_and(|own| own.iter().any(|one| *one.id == *id))
    }

    /// Gives up everything. Gives those of whom Redis knows something, or may.
    pub(super) fn clear(&mut self) -> Vec<Id> {
        let untold = std::mem::take(&mut self.changed).into_keys();
        std::mem::take(&mut self.people).into_keys().chain(untold).collect()
    }

    pub(super) fn report(&mut self, person: &Id) -> Report {
        self.last_number += 1;
        let own = self.people.get(person).map(Vec::as_slice).unwrap_or_default();
        let (mut connections, mut deadlines) = (Vec::new(), Vec::new());
        for Connection { id, state, .. } in own {
            let time = match state {
                State::Counted(time) => time.clone(),
                State::Entering(deadline) => {
                    deadlines.push(*deadline);
                    String::new()
                }
            };
            connections.push((id.clone(), time));
        }
        let until = deadlines.into_iter().min().map_or(0, |deadline| {
            // Without a clock it is too late for certain, and the answer brings the clock.
            self.clock.map_or(1, |(at, time)| {
                let left = deadline.saturating_duration_since(at).as_millis();
                time.saturating_add(u64::try_from(left).unwrap_or(Millis::MAX))
            })
        });
        Report { number: self.last_number, connections, until }
    }

    pub(super) fn set_clock(&mut self, now: Millis) {
        self.clock = Some((Instant::now(), now));
    }

    /// The connection is held before it counts: one that is replaced at once has to be found.
    pub(super) fn enter(&mut self, person: &Id, id: Arc<str>, on_replaced: OnReplaced, deadline: Instant) {
        let one = Connection { id, on_replaced, state: State::Entering(deadline) };
        self.people.entry(person.clone()).or_default().push(one);
    }

    /// What Redis says of a connection that was reported: the time with which it counts, empty when it does not. Gives
    /// what ends the connection if it was replaced.
    pub(super) fn answered(&mut self, person: &Id, id: &str, time: &str) -> Option<OnReplaced> {
        let own = self.people.get_mut(person)?;
        let one = own.iter_mut().find(|one| *one.id == *id)?;
        match (&one.state, time.is_empty(), self.policy) {
            (State::Entering(_), false, _) => {
                one.state = State::Counted(time.to_owned());
                self.note(person);
            }
            (State::Entering(_), true, Policy::Refuse) => drop(self.take(person, id)),
            (_, true, Policy::Replace) => return self.remove(person, id),
            _ => {}
        }
        None
    }

    /// Takes a connection out, if it is still held, and has Redis told of that. Gives what ends the connection.
    pub(super) fn remove(&mut self, person: &Id, id: &str) -> Option<OnReplaced> {
        let one = self.take(person, id)?;
        self.tell_of(person, Purpose::Change);
        Some(one.on_replaced)
    }

    /// Has Redis told what is held of a person.
    pub(super) fn tell_of(&mut self, person: &Id, purpose: Purpose) {
        let due = self.changed.entry(person.clone()).or_default();
        // A report of a change is an answer as well.
        if !matches!(due, Some(Purpose::Change)) {
            *due = Some(purpose);
        }
        self.on_change.notify_one();
    }

    /// Has it noted whether a connection of a person counts.
    pub(super) fn note(&mut self, person: &Id) {
        self.changed.entry(person.clone()).or_default();
        self.on_change.notify_one();
    }

    /// Whether one more person of whom Redis has to be told is not one too many.
    pub(super) fn can_change(&self, person: &Id) -> bool {
        self.changed.len() < MAX_CHANGED || self.changed.contains_key(person)
    }

    /// Some of those of whom Redis has to be told. Whoever cannot tell puts them back.
    pub(super) fn take_changed(&mut self, most: usize) -> Vec<(Id, Option<Purpose>)> {
        let some: Vec<Id> = self.changed.keys().take(most).cloned().collect();
        let taken = some.iter().filter_map(|person| self.changed.remove_entry(person)).collect();
        // After an outage it was large.
        shrink(&mut self.changed);
        taken
    }

    fn take(&mut self, person: &Id, id: &str) -> Option<Connection> {
        let own = self.people.get_mut(person)?;
        let at = own.iter().position(|one| *one.id == *id)?;
        let one = own.swap_remove(at);
        if own.is_empty() {
            self.people.remove(person);
            shrink(&mut self.people);
        }
        Some(one)
    }
}
