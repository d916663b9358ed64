//! The port of revocations: tokens that are refused although their signature is valid. The wiring provides the adapter.

use bongsu_kernel::{BoxFuture, Id, Millis};

/// Knows which tokens of a person were revoked.
pub trait Revocations: Send + Sync {
    /// The time before which the person's tokens were revoked, if any were. After an error, which says why this is
    /// unknown, every token is refused.
    fn revoked_before<'a>(&'a self, person: &'a Id) -> BoxFuture<'a, Result<Option<Millis>, String>>;
}
