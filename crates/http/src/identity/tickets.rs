//! Stream tickets: single use, 30 seconds, so that a JWT need not stand in a URL.
//!
//! They live in this process's memory: a ticket that is lost with it is asked for again.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bongsu_kernel::{Clock, Id, Millis, random};

use serde::Serialize;
use utoipa::ToSchema;

use super::Person;

/// How long a ticket may wait.
const LIFETIME: Millis = 30_000;
/// So many may wait at once; then the next one is refused until the oldest have run out.
const MOST: usize = 100_000;
/// So many of them may be one person's, so that nobody can take the others' places.
const MOST_PER_PERSON: u32 = 64;

/// The waiting tickets.
pub struct Tickets {
    clock: Clock,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    people: HashMap<String, (Person, Millis)>,
    per_person: HashMap<Id, u32>,
    /// In the order of issue: none runs out later than 30 seconds after it was put here.
    order: VecDeque<(Millis, String)>,
}

#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    pub ticket: String,
    /// In seconds: 30, or less when the token ends earlier.
    #[schema(example = 30)]
    pub expires_in: u64,
}

/// More tickets wait than fit.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyTickets;

impl Tickets {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, waiting: Mutex::default() }
    }

    /// Issues a ticket. It does not outlive the token it was got with.
    pub fn issue(&self, person: Person) -> Result<Ticket, TooManyTickets> {
        let now = self.clock.now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.forget_old(now);
        let own = waiting.per_person.get(&person.id).copied().unwrap_or_default();
        if waiting.order.len() >= MOST || own >= MOST_PER_PERSON {
            return Err(TooManyTickets);
        }
        let ticket = URL_SAFE_NO_PAD.encode(random::secret());
        let until = person.expires_at.min(now + LIFETIME);
        waiting.per_person.insert(person.id.clone(), own + 1);
        waiting.people.insert(ticket.clone(), (person, until));
        waiting.order.push_back((now + LIFETIME, ticket.clone()));
        Ok(Ticket { ticket, expires_in: until.saturating_sub(now).div_ceil(1_000) })
    }

    /// Takes a ticket: it is good once.
    pub(super) fn redeem(&self, ticket: &str) -> Option<Person> {
        let now = self.clock.now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (person, until) = waiting.remove(ticket)?;
        (now < until).then_some(person)
    }
}

impl Waiting {
    fn forget_old(&mut self, now: Millis) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, ticket)) = self.order.pop_front() {
                self.remove(&ticket);
            }
        }
    }

    fn remove(&mut self, ticket: &str) -> Option<(Person, Millis)> {
        let taken = self.people.remove(ticket)?;
        if let Entry::Occupied(mut own) = self.per_person.entry(taken.0.id.clone()) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(id: &str) -> Person {
        Person { id: Id::new(id).unwrap(), expires_at: 9_000_000, is_admin: false }
    }

    #[test]
    fn a_ticket_is_good_once() {
        let tickets = Tickets::new(Clock::manual(0));
        let Ticket { ticket, expires_in } = tickets.issue(person("1")).unwrap();
        assert_eq!(expires_in, 30);
        assert_eq!(tickets.redeem(&ticket), Some(person("1")));
        assert_eq!(tickets.redeem(&ticket), None);
        assert_eq!(tickets.redeem("made up"), None);
    }

    #[test]
    fn a_ticket_does_not_outlive_its_token() {
        let clock = Clock::manual(0);
        let tickets = Tickets::new(clock.clone());
        let Ticket { ticket, expires_in } =
            tickets.issue(Person { expires_at: 2_000, ..person("1") }).unwrap();
        assert_eq!(expires_in, 2);
        clock.set(2_000);
        assert_eq!(tickets.redeem(&ticket), None);
    }

    #[test]
    fn tickets_run_out_and_take_no_room_then() {
        let clock = Clock::manual(0);
        let tickets = Tickets::new(clock.clone());
        let ticket = tickets.issue(person("1")).unwrap().ticket;
        clock.set(30_000);
        assert_eq!(tickets.redeem(&ticket), None);
        for n in 0..MOST {
            tickets.issue(person(&n.to_string())).unwrap();
        }
        assert_eq!(tickets.issue(person("late")), Err(TooManyTickets));
        clock.set(60_000);
        tickets.issue(person("1")).unwrap();
        let waiting = tickets.waiting.lock().unwrap();
        assert_eq!((waiting.people.len(), waiting.per_person.len(), waiting.order.len()), (1, 1, 1));
    }

    #[test]
    fn one_person_cannot_take_the_others_places() {
        let tickets = Tickets::new(Clock::manual(0));
        let first = tickets.issue(person("1")).unwrap().ticket;
        for _ in 1..MOST_PER_PERSON {
            tickets.issue(person("1")).unwrap();
        }
        assert_eq!(tickets.issue(person("1")), Err(TooManyTickets));
        tickets.issue(person("2")).unwrap();
        tickets.redeem(&first).unwrap();
        tickets.issue(person("1")).unwrap();
    }
}
