//! Locks of one process, in memory. They end with the process.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bongsu_kernel::{Id, lock};

use super::{AcquireOutcome, LockLease, Locks};
use crate::{BoxFuture, Error};

/// From this many entries on, acquiring a lock first removes the expired ones.
const CLEANUP_THRESHOLD: usize = 1_024;

/// Locks in the memory of one process.
pub struct EmbeddedLocks {
    ttl: Duration,
    table: Mutex<LockTable>,
}

#[derive(Default)]
struct LockTable {
    /// The owner of each lock, and when its lease ends.
    locks: HashMap<Id, (String, Instant)>,
    last_owner: u64,
}

impl EmbeddedLocks {
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, table: Mutex::default() }
    }

    fn acquire_now(&self, event: &Id) -> AcquireOutcome {
        let now = Instant::now();
        let mut table = lock(&self.table);
        if let Some((_, expires_at)) = table.locks.get(event)
            && *expires_at > now
        {
            return AcquireOutcome::Taken(Some(*expires_at - now));
        }
        if table.locks.len() >= CLEANUP_THRESHOLD {
            table.locks.retain(|_, (_, expires_at)| *expires_at > now);
        }
        table.last_owner += 1;
        let (owner, expires_at) = (table.last_owner.to_string(), now + self.ttl);
        table.locks.insert(event.clone(), (owner.clone(), expires_at));
        AcquireOutcome::Acquired(LockLease { event: event.clone(), owner, expires_at })
    }

    /// Moves the end of a lease, if its owner still holds the lock. An end that is not in the future removes the lock.
    fn set_expiry(&self, lease: &LockLease, expires_at: Instant) -> bool {
        let now = Instant::now();
        let mut table = lock(&self.table);
        match table.locks.get_mut(&lease.event) {
            Some((owner, current)) if *owner == lease.owner && *current > now => *current = expires_at,
            _ => return false,
        }
        if expires_at <= now {
            table.locks.remove(&lease.event);
        }
        true
    }
}

impl Locks for EmbeddedLocks {
    fn acquire<'a>(&'a self, event: &'a Id) -> BoxFuture<'a, Result<AcquireOutcome, Error>> {
        Box::pin(async move {
            let outcome = Ok(self.acquire_now(event));
            super::count(&outcome);
            outcome
        })
    }

    fn renew<'a>(&'a self, lease: &'a mut LockLease) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let expires_at = Instant::now() + self.ttl;
            let renewed = self.set_expiry(lease, expires_at);
            if renewed {
                lease.expires_at = expires_at;
            }
            Ok(renewed)
        })
    }

    fn release<'a>(&'a self, lease: &'a LockLease) -> BoxFuture<'a, Result<bool, Error>> {
        let now = Instant::now();
        Box::pin(async move { Ok(self.set_expiry(lease, now)) })
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}
