//! The port of revocations: tokens that are refused although their signature is valid. The crate `part` has
//! the adapter.

use bongsu_kernel::{BoxFuture, Id, Millis};

/// Knows which tokens of a person were revoked.
pub trait Revocations: Send + Sync {
    /// The time before which the person's tokens were revoked; None if none were. The error says why the time is
    /// unknown; the caller then refuses the token.
    fn revoked_before<'a>(&'a self, person: &'a Id) -> BoxFuture<'a, Result<Option<Millis>, String>>;
}
