//! Tokens that are worth nothing any more, although their signature is good: a port that the wiring fills.

use bongsu_kernel::{Boxed, Id, Millis};

/// Knows from when on a person's tokens count.
pub trait Revocations: Send + Sync {
    /// Tokens of this person that were issued before this time are worth nothing. An error says why nobody knows; then
    /// nobody is let in.
    fn before<'a>(&'a self, person: &'a Id) -> Boxed<'a, Result<Option<Millis>, String>>;
}
