//! Stream tickets: single use, 30 seconds, so that a JWT need not stand in a URL.
//!
//! [`Tickets`] is a port: one process keeps them in its memory ([`OwnTickets`]), a fleet where all hubs find them. A
//! ticket that is lost with a process is asked for again.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bongsu_kernel::{Clock, Id, Millis, Outage, random};

use serde::Serialize;
use utoipa::ToSchema;

use super::Person;

/// How long a ticket may wait.
pub const LIFETIME: Millis = 30_000;
/// So many may wait at once; then the next one is refused until the oldest have run out.
const MOST: usize = 100_000;
/// So many of them may be one person's, so that nobody can take the others' places.
pub const MOST_PER_PERSON: u32 = 64;

/// A future that a trait object can give.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, TicketError>> + Send + 'a>>;

/// Where tickets wait.
///
/// A ticket is good once, whoever asks and however many at the same moment, and not after the token that it was got
/// with. It cannot be guessed. How many wait is bounded, also for one person.
pub trait Tickets: Send + Sync {
    fn issue(&self, person: Person) -> Boxed<'_, Ticket>;

    /// Takes a ticket; nothing when there is no such one (any more).
    fn redeem<'a>(&'a self, ticket: &'a str) -> Boxed<'a, Option<Person>>;
}

/// Why there is no ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    #[error("too many tickets wait")]
    TooMany,
    #[error("tickets cannot be kept right now: {0}")]
    Away(#[from] Outage),
}

/// What a new ticket is called.
pub fn new_ticket() -> String {
    URL_SAFE_NO_PAD.encode(random::secret())
}

/// The waiting tickets of one process.
pub struct OwnTickets {
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

impl OwnTickets {
    pub fn new(clock: Clock) -> Self {
        Self { clock, waiting: Mutex::default() }
    }

    fn issue_now(&self, person: Person) -> Result<Ticket, TicketError> {
        let now = self.clock.now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.forget_old(now);
        let own = waiting.per_person.get(&person.id).copied().unwrap_or_default();
        if waiting.order.len() >= MOST || own >= MOST_PER_PERSON {
            return Err(TicketError::TooMany);
        }
        let ticket = new_ticket();
        let until = person.expires_at.min(now + LIFETIME);
        waiting.per_person.insert(person.id.clone(), own + 1);
        waiting.people.insert(ticket.clone(), (person, until));
        waiting.order.push_back((now + LIFETIME, ticket.clone()));
        Ok(Ticket { ticket, expires_in: until.saturating_sub(now).div_ceil(1_000) })
    }

    fn redeem_now(&self, ticket: &str) -> Option<Person> {
        let now = self.clock.now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (person, until) = waiting.remove(ticket)?;
        (now < until).then_some(person)
    }
}

impl Tickets for OwnTickets {
    fn issue(&self, person: Person) -> Boxed<'_, Ticket> {
        Box::pin(std::future::ready(self.issue_now(person)))
    }

    fn redeem<'a>(&'a self, ticket: &'a str) -> Boxed<'a, Option<Person>> {
        Box::pin(std::future::ready(Ok(self.redeem_now(ticket))))
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
        Person { id: Id::new(id).unwrap(), issued_at: 0, expires_at: 9_000_000, is_admin: false }
    }

    #[test]
    fn a_ticket_is_good_once() {
        let tickets = OwnTickets::new(Clock::manual(0));
        let Ticket { ticket, expires_in } = tickets.issue_now(person("1")).unwrap();
        assert_eq!(expires_in, 30);
        assert_eq!(tickets.redeem_now(&ticket), Some(person("1")));
        assert_eq!(tickets.redeem_now(&ticket), None);
        assert_eq!(tickets.redeem_now("made up"), None);
    }

    #[test]
    fn a_ticket_does_not_outlive_its_token() {
        let clock = Clock::manual(0);
        let tickets = OwnTickets::new(clock.clone());
        let Ticket { ticket, expires_in } =
            tickets.issue_now(Person { expires_at: 2_000, ..person("1") }).unwrap();
        assert_eq!(expires_in, 2);
        clock.set(2_000);
        assert_eq!(tickets.redeem_now(&ticket), None);
    }

    #[test]
    fn tickets_run_out_and_take_no_room_then() {
        let clock = Clock::manual(0);
        let tickets = OwnTickets::new(clock.clone());
        let ticket = tickets.issue_now(person("1")).unwrap().ticket;
        clock.set(30_000);
        assert_eq!(tickets.redeem_now(&ticket), None);
        for n in 0..MOST {
            tickets.issue_now(person(&n.to_string())).unwrap();
        }
        assert_eq!(tickets.issue_now(person("late")), Err(TicketError::TooMany));
        clock.set(60_000);
        tickets.issue_now(person("1")).unwrap();
        let waiting = tickets.waiting.lock().unwrap();
        assert_eq!((waiting.people.len(), waiting.per_person.len(), waiting.order.len()), (1, 1, 1));
    }

    #[test]
    fn one_person_cannot_take_the_others_places() {
        let tickets = OwnTickets::new(Clock::manual(0));
        let first = tickets.issue_now(person("1")).unwrap().ticket;
        for _ in 1..MOST_PER_PERSON {
            tickets.issue_now(person("1")).unwrap();
        }
        assert_eq!(tickets.issue_now(person("1")), Err(TicketError::TooMany));
        tickets.issue_now(person("2")).unwrap();
        tickets.redeem_now(&first).unwrap();
        tickets.issue_now(person("1")).unwrap();
    }
}
