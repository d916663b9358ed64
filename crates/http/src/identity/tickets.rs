//! Stream tickets: single use, 30 seconds, so that a JWT need not stand in a URL.
//!
//! They live in this process's memory: a ticket that is lost with it is asked for again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bongsu_kernel::{Clock, Millis, random};

use super::Person;

/// How long a ticket may wait.
pub const LIFETIME_SECS: u64 = 30;
/// So many may wait at once; then the next one is refused until the oldest have run out.
const MOST: usize = 100_000;

/// The waiting tickets.
pub struct Tickets {
    clock: Clock,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    people: HashMap<String, (Person, Millis)>,
    /// In the order of issue, which is the order in which they run out.
    order: VecDeque<(Millis, String)>,
}

/// More tickets wait than fit.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyTickets;

impl Tickets {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, waiting: Mutex::default() }
    }

    pub fn issue(&self, person: Person) -> Result<String, TooManyTickets> {
        let now = self.clock.now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.forget_old(now);
        if waiting.order.len() >= MOST {
            return Err(TooManyTickets);
        }
        let ticket = URL_SAFE_NO_PAD.encode(random::secret());
        let until = now + LIFETIME_SECS * 1_000;
        waiting.people.insert(ticket.clone(), (person, until));
        waiting.order.push_back((until, ticket.clone()));
        Ok(ticket)
    }

    /// Takes a ticket: it is good once.
    pub(super) fn redeem(&self, ticket: &str) -> Option<Person> {
        let now = self.clock.now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (person, until) = waiting.people.remove(ticket)?;
        (now < until).then_some(person)
    }
}

impl Waiting {
    fn forget_old(&mut self, now: Millis) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, ticket)) = self.order.pop_front() {
                self.people.remove(&ticket);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::Id;

    use super::*;

    fn person() -> Person {
        Person { id: Id::new("1").unwrap(), expires_at: 9_000_000, is_admin: false }
    }

    #[test]
    fn a_ticket_is_good_once() {
        let tickets = Tickets::new(Clock::manual(0));
        let ticket = tickets.issue(person()).unwrap();
        assert_eq!(tickets.redeem(&ticket), Some(person()));
        assert_eq!(tickets.redeem(&ticket), None);
        assert_eq!(tickets.redeem("made up"), None);
    }

    #[test]
    fn a_ticket_runs_out_and_takes_no_room_then() {
        let clock = Clock::manual(0);
        let tickets = Tickets::new(clock.clone());
        let ticket = tickets.issue(person()).unwrap();
        clock.set(30_000);
        assert_eq!(tickets.redeem(&ticket), None);
        for _ in 0..MOST {
            tickets.issue(person()).unwrap();
        }
        assert_eq!(tickets.issue(person()), Err(TooManyTickets));
        clock.set(60_000);
        tickets.issue(person()).unwrap();
        assert_eq!(tickets.waiting.lock().unwrap().people.len(), 1);
    }
}
