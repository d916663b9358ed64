//! Locks of one process, in memory: they end with it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bongsu_kernel::Id;

use super::{Acquired, Grant, Locks};
use crate::{Boxed, Error};

/// With more than so many, those that have ended are looked for and forgotten.
const TIDY: usize = 1_024;

/// See the module.
pub struct EmbeddedLocks {
    ttl: Duration,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// The owner of each, and when it ends.
    locks: HashMap<Id, (String, Instant)>,
    last_owner: u64,
}

impl EmbeddedLocks {
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, held: Mutex::default() }
    }

    fn take(&self, event: &Id) -> Acquired {
        let now = Instant::now();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, until)) = held.locks.get(event)
            && *until > now
        {
            return Acquired::Taken(Some(*until - now));
        }
        if held.locks.len() >= TIDY {
            held.locks.retain(|_, (_, until)| *until > now);
        }
        held.last_owner += 1;
        let (owner, until) = (held.last_owner.to_string(), now + self.ttl);
        held.locks.insert(event.clone(), (owner.clone(), until));
        Acquired::Granted(Grant { event: event.clone(), owner, until })
    }

    /// Lets a lock last until then if the grant still has it.
    fn change(&self, grant: &Grant, until: Instant) -> bool {
        let now = Instant::now();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.locks.get_mut(&grant.event) {
            Some((owner, ends)) if *owner == grant.owner && *ends > now => *ends = until,
            _ => return false,
        }
        if until <= now {
            held.locks.remove(&grant.event);
        }
        true
    }
}

impl Locks for EmbeddedLocks {
    fn acquire<'a>(&'a self, event: &'a Id) -> Boxed<'a, Result<Acquired, Error>> {
        Box::pin(async move {
            let outcome = Ok(self.take(event));
            super::count(&outcome);
            outcome
        })
    }

    fn renew<'a>(&'a self, grant: &'a mut Grant) -> Boxed<'a, Result<bool, Error>> {
        Box::pin(async move {
            let until = Instant::now() + self.ttl;
            let renewed = self.change(grant, until);
            if renewed {
                grant.until = until;
            }
            Ok(renewed)
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> Boxed<'a, Result<bool, Error>> {
        let now = Instant::now();
        Box::pin(async move { Ok(self.change(grant, now)) })
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}
