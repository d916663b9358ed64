//! Authenticates callers: people by JWT, services by key, operators by key or admin JWT.
//!
//! Identity is an extractor: a handler that needs a [`Person`], a [`Service`] or an [`Operator`] takes one as an
//! argument and cannot be reached without. Tokens, tickets and keys are never logged.

mod extract;
mod jwks;
mod jwt;
mod keys;
mod revocations;
mod settings;
pub mod tickets;

use std::sync::Arc;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis};
use serde::{Deserialize, Serialize};

pub use extract::{Caller, ObserverFlag, Operator, Service, StreamPerson};
pub use jwt::{Claims, MAX_TOKEN_LIFETIME, mint};
pub use revocations::Revocations;
pub use settings::{
    ADMIN_API_KEY, BONGSU_ENV, INTERNAL_API_KEY, JWKS_URL, JWT_ALGORITHM, JWT_SECRET, MIN_SECRET_BYTES,
    Options, SETTINGS,
};
pub use tickets::{MemoryTickets, Ticket, TicketError, Tickets};

use crate::answer::ApiError;
use crate::origins::Origins;

/// A signed-in person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Person {
    pub id: Id,
    pub issued_at: Millis,
    /// When the token expires, and every stream that was opened with it ends.
    pub expires_at: Millis,
    pub is_admin: bool,
}

/// Checks credentials. Cheap to clone.
#[derive(Clone)]
pub struct Identity(Arc<Inner>);

struct Inner {
    verifier: jwt::Verifier,
    internal: keys::KeyRing,
    admin: keys::KeyRing,
    tickets: Arc<dyn Tickets>,
    revocations: Option<Arc<dyn Revocations>>,
    origins: Origins,
}

impl Identity {
    pub fn new(
        options: &Options,
        origins: Origins,
        tickets: Arc<dyn Tickets>,
        revocations: Option<Arc<dyn Revocations>>,
        clock: Clock,
        supervisor: &Supervisor,
    ) -> Result<Self, ApiError> {
        Ok(Self(Arc::new(Inner {
            verifier: jwt::Verifier::new(options, clock, supervisor)?,
            internal: keys::KeyRing::new(&options.internal_keys),
            admin: keys::KeyRing::new(&options.admin_keys),
            tickets,
            revocations,
            origins,
        })))
    }

    pub fn tickets(&self) -> &dyn Tickets {
        &*self.0.tickets
    }

    /// Why tokens cannot be verified at the moment; None if they can.
    pub fn degraded_reason(&self) -> Option<&'static str> {
        self.0.verifier.degraded_reason()
    }
}
