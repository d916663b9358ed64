//! The connection limit: how many open connections a person may have over the whole fleet, and what happens when the
//! person opens one more.
//!
//! The contract is documented on [`Connections`]; `tests/it/connections_contract.rs` tests every adapter against it.

pub mod embedded;
pub mod redis;

use std::time::Duration;

use bongsu_kernel::{Id, Outage};

use crate::BoxFuture;

/// The reaction to a further connection of a person who has the maximum number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The new connection is refused.
    Refuse,
    /// The new connection is admitted, and the oldest one is closed.
    Replace,
}

/// A connection limit, which all instances of a fleet count together.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Distinguishes this limit from others. Redis keys and channels begin with this name.
    pub name: &'static str,
    /// Maximum number of connections that a person may have at the same time.
    pub max: usize,
    pub policy: Policy,
    /// The maximum age of a connection: an older one that another instance reported does not count. None if connections
    /// have no maximum age.
    pub lifetime: Option<Duration>,
}

/// Closes a connection because newer ones of the same person have replaced it.
pub type OnReplaced = Box<dyn FnOnce() + Send>;

/// The connections of every person, over all instances.
///
/// - **Refuse: never more.** No connection is admitted while the maximum number of connections counts,
///   however many are attempted at once, on any instances. Check and admission are one step.
/// - **Replace: the newest stay.** A connection beyond the limit is admitted, and the oldest one is closed, on any
///   instance. A connection is replaced only when as many newer ones as the limit allows exist.
/// - **Released** when the [`ConnectionPermit`] is dropped: at once for this instance, a moment later for the others.
/// - **Only live instances count.** The connections of a killed instance count until the instance has left the fleet;
///   under `Replace`, they replace no other connections meanwhile. A connection whose caller gave up while it was being
///   admitted does not count.
/// - **Restored.** A connection that the engine has forgotten, or that another instance has released, counts again with
///   its original age, even beyond the limit: `Refuse` closes no connection.
/// - **Errors.** While the engine is unreachable no connection is admitted, and existing ones stay.
pub trait Connections: Send + Sync {
    /// Admits a connection. `on_replaced` is never called under [`Policy::Refuse`].
    fn acquire(&self, person: &Id, on_replaced: OnReplaced) -> BoxFuture<'_, AcquireResult>;
}

pub type AcquireResult = Result<ConnectionPermit, ConnectionLimitError>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionLimitError {
    #[error("the person has the maximum number of connections")]
    Full,
    /// The number of connections cannot be read from the engine.
    #[error(transparent)]
    Unavailable(#[from] Outage),
}

/// An admitted connection. It counts until the permit is dropped.
#[must_use = "dropping the permit releases the connection"]
pub struct ConnectionPermit(Box<dyn FnMut() + Send>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl std::fmt::Debug for ConnectionPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionPermit")
    }
}
