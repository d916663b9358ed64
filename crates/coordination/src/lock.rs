//! The general lock: `lock:event:<id>`, for single runners and for other programs.
//!
//! The contract is written on [`Locks`]; `tests/it/lock_contract.rs` holds every adapter against it.

pub mod embedded;
pub mod redis;

use std::time::{Duration, Instant};

use bongsu_kernel::Id;

use crate::{Boxed, Error};

/// Locks by name, each with one owner for a while.
///
/// - **One owner.** While a grant lasts nobody else gets the same lock, on any hub.
/// - **It ends.** Without being renewed a grant lasts for [`Locks::ttl`], by the engine's clock; [`Grant::is_held`] turns
///   false no later than that.
/// - **Only its owner** renews or releases it. Both say whether it was still the owner's. A grant that is dropped
///   without being released lasts to its end.
/// - **Not a fence.** An owner that stands still may write after its grant has ended and the next owner has begun. So
///   whatever is done under a lock bears being done by two at once.
/// - **Errors.** After an error of `acquire` the lock may stay taken for one `ttl`, by nobody.
pub trait Locks: Send + Sync {
    /// Takes a lock if it is free. Does not wait for it.
    fn acquire<'a>(&'a self, event: &'a Id) -> Boxed<'a, Result<Acquired, Error>>;

    /// Lets a grant last for another `ttl` from now. False: it had ended.
    fn renew<'a>(&'a self, grant: &'a mut Grant) -> Boxed<'a, Result<bool, Error>>;

    /// Ends a grant. False: it had ended before.
    fn release<'a>(&'a self, grant: &'a Grant) -> Boxed<'a, Result<bool, Error>>;

    fn ttl(&self) -> Duration;
}

#[derive(Debug)]
pub enum Acquired {
    Granted(Grant),
    /// Somebody has it, for so long unless it is renewed; none when it has no end.
    Taken(Option<Duration>),
}

/// A lock that somebody has.
#[derive(Debug)]
pub struct Grant {
    event: Id,
    owner: String,
    until: Instant,
}

impl Grant {
    /// When it ends unless it is renewed, by this process's own clock: counted from before the engine was asked, so
    /// never later than the engine has it.
    pub fn until(&self) -> Instant {
        self.until
    }

    pub fn is_held(&self) -> bool {
        Instant::now() < self.until
    }
}

fn count(outcome: &Result<Acquired, Error>) {
    let result = if matches!(outcome, Ok(Acquired::Granted(_))) { "success" } else { "failure" };
    metrics::counter!("lock_acquire_total", "result" => result).increment(1);
}
