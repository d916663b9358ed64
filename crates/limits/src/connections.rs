//! The limit of a person's open connections, over the whole fleet, and what happens to the one that is too many.
//!
//! The contract is written on [`Connections`]; `tests/it/connections_contract.rs` holds every adapter against it.

pub mod embedded;
pub mod redis;

use std::time::Duration;

use bongsu_kernel::{Id, Outage};

use crate::Boxed;

/// What happens when a person who has as many connections as allowed opens another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The new connection is refused.
    Refuse,
    /// The new connection is let in, and the oldest one is ended.
    Replace,
}

/// A limit that all instances of a fleet count together.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Tells this limit from others. Redis keys and channels begin with it.
    pub name: &'static str,
    /// Connections that a person may have at the same time.
    pub max: usize,
    pub policy: Policy,
    /// No connection lives longer, so that an older one of another instance does not count. None: they live for any time.
    pub lifetime: Option<Duration>,
}

/// Ends a connection because newer ones of the same person have taken its place.
pub type OnReplaced = Box<dyn FnOnce() + Send>;

/// The connections of every person, over all instances.
///
/// - **Refuse: never more.** No connection is let in while as many as the limit count, however many try at once and
///   wherever. Looking and entering are one step.
/// - **Replace: the newest stay.** One more than the limit is let in, and the oldest is ended, wherever it is. A connection
///   ends that way only when as many newer ones are there as may stay.
/// - **Given back** when the [`Place`] is dropped: at once for this instance, a moment later for the others.
/// - **Only the living count.** The connections of an instance that was killed count until it is no longer in the fleet;
///   with `Replace` they push out nobody before that either. A connection that gave up while it came in does not count.
/// - **Put back.** What the engine has forgotten, or what another instance has given up, counts again as old as it was, also
///   over the limit: `Refuse` ends nobody.
/// - **Errors.** While the engine is away nobody new is let in, and who is connected stays.
pub trait Connections: Send + Sync {
    /// Lets a connection in. `on_replaced` is never called under [`Policy::Refuse`].
    fn enter(&self, person: &Id, on_replaced: OnReplaced) -> Boxed<'_, Result<Place, Refused>>;
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the person has as many connections as allowed")]
    Full,
    /// How many there are cannot be found out now.
    #[error(transparent)]
    Away(#[from] Outage),
}

/// A connection that counts until this is dropped.
#[must_use = "a place that is dropped is given back"]
pub struct Place(Box<dyn FnMut() + Send>);

impl Drop for Place {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Place")
    }
}
