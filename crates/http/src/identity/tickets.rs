//! Stream tickets: credentials for URLs, used once and valid for 30 seconds, so that no JWT has to be part of a URL.
//!
//! [`Tickets`] is a port: one process stores tickets in memory ([`MemoryTickets`]), a fleet in Redis. A client whose
//! ticket is lost requests another one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bongsu_kernel::{Clock, Id, Millis, Outage, lock, random};

use serde::Serialize;
use utoipa::ToSchema;

use super::Person;

/// How long a ticket is valid, in milliseconds.
pub const TICKET_LIFETIME_MS: Millis = 30_000;
/// Tickets that one process issues in 30 s, also redeemed ones. More are refused until the oldest have expired.
const MAX_TICKETS: usize = 100_000;
/// Unused tickets of one person, so that one person cannot use up all tickets.
pub const MAX_TICKETS_PER_PERSON: u32 = 64;

/// The future that the functions of [`Tickets`] return.
pub type TicketFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TicketError>> + Send + 'a>>;

/// Issues and redeems tickets.
///
/// A ticket cannot be guessed. It can be redeemed once, even by concurrent requests, and only until the token expires
/// with which it was requested. The number of tickets per person is bounded.
pub trait Tickets: Send + Sync {
    fn issue(&self, person: Person) -> TicketFuture<'_, Ticket>;

    /// Removes a ticket and returns its person. None if the ticket does not exist, has expired or was redeemed.
    fn redeem<'a>(&'a self, ticket: &'a str) -> TicketFuture<'a, Option<Person>>;
}

/// Why a ticket could not be issued or redeemed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    #[error("too many unused tickets")]
    TooMany,
    #[error("tickets are unavailable: {0}")]
    Unavailable(#[from] Outage),
}

/// A new random ticket.
pub fn new_ticket() -> String {
    URL_SAFE_NO_PAD.encode(random::secret())
}

/// The tickets of a hub that runs as one process.
pub struct MemoryTickets {
    clock: Clock,
    tickets: Mutex<TicketTable>,
}

/// The unused tickets, and all recent ones by age.
#[derive(Default)]
struct TicketTable {
    by_ticket: HashMap<String, (Person, Millis)>,
    per_person: HashMap<Id, u32>,
    /// In the order of issue, also redeemed ones, each with the latest time at which it expires.
    by_age: VecDeque<(Millis, String)>,
}

#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    pub ticket: String,
    /// Seconds until the ticket expires: 30, or fewer if the token expires earlier.
    #[schema(example = 30)]
    pub expires_in: u64,
}

impl MemoryTickets {
    pub fn new(clock: Clock) -> Self {
        Self { clock, tickets: Mutex::default() }
    }

    fn issue_now(&self, person: Person) -> Result<Ticket, TicketError> {
        let now = self.clock.now();
        let mut tickets = lock(&self.tickets);
        tickets.remove_expired(now);
        let unused = tickets.per_person.get(&person.id).copied().unwrap_or_default();
        if tickets.by_age.len() >= MAX_TICKETS || unused >= MAX_TICKETS_PER_PERSON {
            return Err(TicketError::TooMany);
        }
        let ticket = new_ticket();
        let expires_at = person.expires_at.min(now + TICKET_LIFETIME_MS);
        tickets.per_person.insert(person.id.clone(), unused + 1);
        tickets.by_ticket.insert(ticket.clone(), (person, expires_at));
        tickets.by_age.push_back((now + TICKET_LIFETIME_MS, ticket.clone()));
        Ok(Ticket { ticket, expires_in: expires_at.saturating_sub(now).div_ceil(1_000) })
    }

    fn redeem_now(&self, ticket: &str) -> Option<Person> {
        let now = self.clock.now();
        let mut tickets = lock(&self.tickets);
        let (person, expires_at) = tickets.remove(ticket)?;
        (now < expires_at).then_some(person)
    }
}

impl Tickets for MemoryTickets {
    fn issue(&self, person: Person) -> TicketFuture<'_, Ticket> {
        Box::pin(std::future::ready(self.issue_now(person)))
    }

    fn redeem<'a>(&'a self, ticket: &'a str) -> TicketFuture<'a, Option<Person>> {
        Box::pin(std::future::ready(Ok(self.redeem_now(ticket))))
    }
}

impl TicketTable {
    fn remove_expired(&mut self, now: Millis) {
        while self.by_age.front().is_some_and(|(expires_at, _)| *expires_at <= now) {
            if let Some((_, ticket)) = self.by_age.pop_front() {
                self.remove(&ticket);
            }
        }
    }

    fn remove(&mut self, ticket: &str) -> Option<(Person, Millis)> {
        let removed = self.by_ticket.remove(ticket)?;
        if let Entry::Occupied(mut unused) = self.per_person.entry(removed.0.id.clone()) {
            *unused.get_mut() -= 1;
            if *unused.get() == 0 {
                unused.remove();
            }
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(id: &str) -> Person {
        Person { id: Id::new(id).unwrap(), issued_at: 0, expires_at: 9_000_000, is_admin: false }
    }

    #[test]
    fn a_ticket_can_be_redeemed_once() {
        let tickets = MemoryTickets::new(Clock::manual(0));
        let Ticket { ticket, expires_in } = tickets.issue_now(person("1")).unwrap();
        assert_eq!(expires_in, 30);
        assert_eq!(tickets.redeem_now(&ticket), Some(person("1")));
        assert_eq!(tickets.redeem_now(&ticket), None);
        assert_eq!(tickets.redeem_now("made up"), None);
    }

    #[test]
    fn a_ticket_does_not_outlive_its_token() {
        let clock = Clock::manual(0);
        let tickets = MemoryTickets::new(clock.clone());
        let Ticket { ticket, expires_in } =
            tickets.issue_now(Person { expires_at: 2_000, ..person("1") }).unwrap();
        assert_eq!(expires_in, 2);
        clock.set(2_000);
        assert_eq!(tickets.redeem_now(&ticket), None);
    }

    #[test]
    fn expired_tickets_are_removed() {
        let clock = Clock::manual(0);
        let tickets = MemoryTickets::new(clock.clone());
        let ticket = tickets.issue_now(person("1")).unwrap().ticket;
        clock.set(30_000);
        assert_eq!(tickets.redeem_now(&ticket), None);
        for n in 0..MAX_TICKETS {
            tickets.issue_now(person(&n.to_string())).unwrap();
        }
        assert_eq!(tickets.issue_now(person("late")), Err(TicketError::TooMany));
        clock.set(60_000);
        tickets.issue_now(person("1")).unwrap();
        let table = tickets.tickets.lock().unwrap();
        assert_eq!((table.by_ticket.len(), table.per_person.len(), table.by_age.len()), (1, 1, 1));
    }

    #[test]
    fn one_person_cannot_use_up_all_tickets() {
        let tickets = MemoryTickets::new(Clock::manual(0));
        let first = tickets.issue_now(person("1")).unwrap().ticket;
        for _ in 1..MAX_TICKETS_PER_PERSON {
            tickets.issue_now(person("1")).unwrap();
        }
        assert_eq!(tickets.issue_now(person("1")), Err(TicketError::TooMany));
        tickets.issue_now(person("2")).unwrap();
        tickets.redeem_now(&first).unwrap();
        tickets.issue_now(person("1")).unwrap();
    }
}
