//! The connections that this instance holds, and the persons whose changes have to be reported to Redis.
//!
//! No function here does I/O: [`super`] sends the reports and passes the answers to [`HeldConnections::apply_answer`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bongsu_kernel::{Id, Millis, shrink};
use tokio::sync::Notify;

use crate::connections::{OnReplaced, Policy};

/// Maximum number of persons with changes to report. At the limit, only connections of these persons are
/// admitted.
const MAX_CHANGED: usize = 65_536;

type PersonMap<T> = HashMap<Id, T, foldhash::fast::RandomState>;

pub(super) struct HeldConnections {
    policy: Policy,
    people: PersonMap<Vec<Connection>>,
    /// Persons whose index entry may be wrong, and the purpose of the report that is due. None when no report is due.
    changed: PersonMap<Option<Purpose>>,
    /// The number of the last report.
    last_number: u64,
    /// The time of Redis in the last answer, and when the answer arrived.
    clock: Option<(Instant, Millis)>,
    /// Notified when a person was added to `changed`.
    pub(super) on_change: Arc<Notify>,
}

struct Connection {
    id: Arc<str>,
    on_replaced: OnReplaced,
    state: State,
}

enum State {
    /// The connection is not admitted yet. Its caller waits for the answer until this time.
    Pending(Instant),
    /// The connection counts since this time, as Redis returned it. Every report restores it with this time.
    Counted(String),
}

/// Why this instance reports the connections of a person.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// The connections have changed, or may have.
    Change,
    /// The report answers another instance.
    Answer,
    /// The instances were asked at this time of Redis, and had time to answer.
    Decision(Millis),
}

/// All connections of a person that this instance holds. Reports are numbered, so that a delayed report changes nothing
/// after a newer one.
pub(super) struct Report {
    pub(super) number: u64,
    /// Each connection with its time, which is empty for a new one.
    pub(super) connections: Vec<(Arc<str>, String)>,
    /// When the first caller of a new connection gives up, by the clock of Redis; 0 without new connections.
    pub(super) deadline: Millis,
}

impl HeldConnections {
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
    pub(super) fn has_counted(&self, person: &Id) -> bool {
        let is_counted = |connection: &Connection| matches!(connection.state, State::Counted(_));
        self.people.get(person).is_some_and(|own| own.iter().any(is_counted))
    }

    /// Whether this instance holds a connection.
    pub(super) fn contains(&self, person: &Id, id: &str) -> bool {
        self.people.get(person).is_some_and(|own| own.iter().any(|connection| *connection.id == *id))
    }

    /// Removes all connections and changes. Returns the persons for whom Redis may have connections of this instance.
    pub(super) fn clear(&mut self) -> Vec<Id> {
        let changed = std::mem::take(&mut self.changed).into_keys();
        std::mem::take(&mut self.people).into_keys().chain(changed).collect()
    }

    /// Builds the next report of a person.
    pub(super) fn build_report(&mut self, person: &Id) -> Report {
        self.last_number += 1;
        let own = self.people.get(person).map(Vec::as_slice).unwrap_or_default();
        let (mut connections, mut deadlines) = (Vec::new(), Vec::new());
        for Connection { id, state, .. } in own {
            let time = match state {
                State::Counted(time) => time.clone(),
                State::Pending(deadline) => {
                    deadlines.push(*deadline);
                    String::new()
                }
            };
            connections.push((id.clone(), time));
        }
        let deadline = deadlines.into_iter().min().map_or(0, |deadline| {
            // Before the clock of Redis is known, 1 makes the report too late, and the answer contains the time.
            self.clock.map_or(1, |(at, time)| {
                let left = deadline.saturating_duration_since(at).as_millis();
                time.saturating_add(u64::try_from(left).unwrap_or(Millis::MAX))
            })
        });
        Report { number: self.last_number, connections, deadline }
    }

    /// Sets the clock of Redis, from the answer to a report.
    pub(super) fn set_clock(&mut self, now: Millis) {
        self.clock = Some((Instant::now(), now));
    }

    /// Inserts a connection before Redis has admitted it, so that the message is not missed when the connection is
    /// replaced at once.
    pub(super) fn insert(&mut self, person: &Id, id: Arc<str>, on_replaced: OnReplaced, deadline: Instant) {
        let connection = Connection { id, on_replaced, state: State::Pending(deadline) };
        self.people.entry(person.clone()).or_default().push(connection);
    }

    /// Applies the answer about a reported connection: the time with which it counts, empty if it does not count.
    /// Returns the callback of the connection if it was replaced.
    pub(super) fn apply_answer(&mut self, person: &Id, id: &str, time: &str) -> Option<OnReplaced> {
        let own = self.people.get_mut(person)?;
        let connection = own.iter_mut().find(|connection| *connection.id == *id)?;
        match (&connection.state, time.is_empty(), self.policy) {
            (State::Pending(_), false, _) => {
                connection.state = State::Counted(time.to_owned());
                self.schedule_index_update(person);
            }
            (State::Pending(_), true, Policy::Refuse) => drop(self.take(person, id)),
            (_, true, Policy::Replace) => return self.remove(person, id),
            _ => {}
        }
        None
    }

    /// Removes a connection, if it is still held, and schedules a report. Returns the callback of the connection.
    pub(super) fn remove(&mut self, person: &Id, id: &str) -> Option<OnReplaced> {
        let connection = self.take(person, id)?;
        self.schedule_report(person, Purpose::Change);
        Some(connection.on_replaced)
    }

    /// Schedules a report of a person.
    pub(super) fn schedule_report(&mut self, person: &Id, purpose: Purpose) {
        let scheduled = self.changed.entry(person.clone()).or_default();
        // The report of a change also answers other instances.
        if !matches!(scheduled, Some(Purpose::Change)) {
            *scheduled = Some(purpose);
        }
        self.on_change.notify_one();
    }

    /// Schedules an update of a person's entry in the index.
    pub(super) fn schedule_index_update(&mut self, person: &Id) {
        self.changed.entry(person.clone()).or_default();
        self.on_change.notify_one();
    }

    /// Whether a change of this person can be scheduled within the limit.
    pub(super) fn has_room_for_change(&self, person: &Id) -> bool {
        self.changed.len() < MAX_CHANGED || self.changed.contains_key(person)
    }

    /// Removes up to `limit` persons from `changed`. The caller schedules those again whose report or index update
    /// fails.
    pub(super) fn take_changed(&mut self, limit: usize) -> Vec<(Id, Option<Purpose>)> {
        let people: Vec<Id> = self.changed.keys().take(limit).cloned().collect();
        let taken = people.iter().filter_map(|person| self.changed.remove_entry(person)).collect();
        // The map may have become large during an outage.
        shrink(&mut self.changed);
        taken
    }

    fn take(&mut self, person: &Id, id: &str) -> Option<Connection> {
        let own = self.people.get_mut(person)?;
        let index = own.iter().position(|connection| *connection.id == *id)?;
        let connection = own.swap_remove(index);
        if own.is_empty() {
            self.people.remove(person);
            shrink(&mut self.people);
        }
        Some(connection)
    }
}
