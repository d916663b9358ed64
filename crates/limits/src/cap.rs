//! The cap: so many places at a time, over the whole fleet.
//!
//! The contract is written on [`Cap`]; `tests/it/cap_contract.rs` holds every adapter against it.

pub mod embedded;
pub mod redis;

use std::sync::Arc;

use crate::{Away, Boxed};

/// Places in scopes (a person, say), of which there are only so many at a time.
///
/// - **Never more.** Nobody enters a scope in which as many places count as the limit of that call allows, however many
///   try at once and wherever. Looking and entering are one step.
/// - **Given back** when the [`Place`] is dropped: at once for this instance, a moment later for the others.
/// - **Leases.** The places of an instance that was killed, or that the engine has not heard of, count until its lease
///   ends. An instance that was only thought gone puts its places back when it reaches the engine again, also over
///   the limit if others have taken them meanwhile; so it does when the engine has lost everything.
/// - **Errors.** While the engine is away nobody enters; who is in stays in.
pub trait Cap: Send + Sync {
    fn enter<'a>(&'a self, scope: &'a str, limit: u32) -> Boxed<'a, Result<Place, Refused>>;
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("all places are taken")]
    Full,
    /// Whether there is a place cannot be found out now.
    #[error(transparent)]
    Away(#[from] Away),
}

/// A place that is held until it is dropped.
#[must_use = "a place that is dropped is given back"]
pub struct Place(Arc<dyn Scope>);

/// Where a place is given back.
trait Scope: Send + Sync {
    fn leave(self: Arc<Self>);
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.clone().leave();
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Place")
    }
}
