//! Locks of one process, in memory: they end with it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bongsu_kernel::{Clock, Id};

use super::{Acquired, Grant, Locks};
use crate::{Boxed, Error, Fence};

/// With more than so many, those that have ended are looked for and forgotten.
const TIDY: usize = 1_024;

/// See the module.
pub struct EmbeddedLocks {
    ttl: Duration,
    clock: Clock,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// By the token of their grant.
    locks: HashMap<Id, (u64, Instant)>,
    last_token: u64,
}

impl EmbeddedLocks {
    pub fn new(ttl: Duration, clock: Clock) -> Self {
        Self { ttl, clock, held: Mutex::default() }
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
        // By the clock, so that tokens also grow over a restart; what they guard may be in a file.
        held.last_token = self.clock.now().saturating_mul(1_000).max(held.last_token + 1);
        let (token, until) = (held.last_token, now + self.ttl);
        held.locks.insert(event.clone(), (token, until));
        Acquired::Granted(Grant {
            event: event.clone(),
            owner: String::new(),
            fence: Fence::new(token),
            until,
        })
    }

    /// Lets a lock last until then if the grant still has it.
    fn change(&self, grant: &Grant, until: Instant) -> bool {
        let now = Instant::now();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.locks.get_mut(&grant.event) {
            Some((token, ends)) if *token == grant.fence.token() && *ends > now => *ends = until,
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
