//! The general lock: `lock:event:<id>`, for runners and for other programs on the same Redis.
//!
//! The contract is documented on [`Locks`]; `tests/it/lock_contract.rs` tests every adapter against it.

pub mod embedded;
pub mod redis;

use std::time::{Duration, Instant};

use bongsu_kernel::Id;

use crate::{BoxFuture, Error};

/// Locks by name, each held by at most one owner under a lease.
///
/// - **One owner.** Until a lease ends, no other owner acquires the same lock, on any instance.
/// - **Expiry.** Unless it is renewed, a lease ends after [`Locks::ttl`], by the engine's clock; [`LockLease::is_held`]
///   turns false no later than that.
/// - **Only the owner** renews or releases a lease. Both operations return whether the caller still owned it. A lease
///   that is dropped without being released ends when its time is over.
/// - **No fencing.** A paused owner may still write after its lease has ended and the next owner has begun. So
///   all work under a lock must be safe when two owners do it at once.
/// - **Errors.** After an error of `acquire` the lock may stay taken for one `ttl` without an owner.
pub trait Locks: Send + Sync {
    /// Acquires a lock if it is free, without waiting for it.
    fn acquire<'a>(&'a self, event: &'a Id) -> BoxFuture<'a, Result<AcquireOutcome, Error>>;

    /// Extends a lease to one `ttl` from now. Returns false if the lease had already ended.
    fn renew<'a>(&'a self, lease: &'a mut LockLease) -> BoxFuture<'a, Result<bool, Error>>;

    /// Ends a lease. Returns false if the lease had already ended.
    fn release<'a>(&'a self, lease: &'a LockLease) -> BoxFuture<'a, Result<bool, Error>>;

    fn ttl(&self) -> Duration;
}

#[derive(Debug)]
pub enum AcquireOutcome {
    Acquired(LockLease),
    /// Another owner holds the lock. Its lease ends after this time unless it is renewed; None if it never expires.
    Taken(Option<Duration>),
}

/// A lease on a lock. Dropping it does not release the lock.
#[derive(Debug)]
pub struct LockLease {
    event: Id,
    owner: String,
    expires_at: Instant,
}

impl LockLease {
    /// When the lease ends unless it is renewed, by this process's clock. The time is counted from before the request to
    /// the engine, so it is never later than the end that the engine has stored.
    pub fn expires_at(&self) -> Instant {
        self.expires_at
    }

    pub fn is_held(&self) -> bool {
        Instant::now() < self.expires_at
    }
}

fn count(outcome: &Result<AcquireOutcome, Error>) {
    let result = if matches!(outcome, Ok(AcquireOutcome::Acquired(_))) { "success" } else { "failure" };
    metrics::counter!("lock_acquire_total", "result" => result).increment(1);
}
