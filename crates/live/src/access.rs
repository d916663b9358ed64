//! Access to streams: the connection limit of a person, and access commands that close streams.
//!
//! Two ports, implemented in the crate `part`. A hub without a connection limit has no [`ConnectionQuota`]; a hub that
//! is alone has no [`RevocationGate`], because it applies every access command at once.

use std::any::Any;

use bongsu_kernel::{Close, Id, Millis};

use crate::connection_state::ConnectionState;
use crate::hub::{Hub, OpenError};
use crate::log::{BoxFuture, LogError, LogFuture};
use crate::sync::Arc;

/// The connection limit of a person, counted over the fleet.
pub trait ConnectionQuota: Send + Sync {
    /// Takes one connection of the person's limit. Dropping the returned value gives the connection back.
    fn acquire<'a>(&'a self, person: &'a Id) -> BoxFuture<'a, Result<Box<dyn Any + Send>, OpenError>>;
}

/// Knows whether this instance has applied every access command. While it has not, the hub holds messages
/// back.
pub trait RevocationGate: Send + Sync {
    /// Whether this instance has applied every access command so far. Called for every event, so an implementation must
    /// be cheap.
    fn is_current(&self) -> bool;

    /// Waits until this instance has applied every access command that was issued before this call.
    fn catch_up(&self) -> LogFuture<'_, ()>;
}

impl Hub {
    /// Closes all streams of a person with 3001; their clients reconnect.
    pub fn disconnect(&self, person: &Id) {
        self.close_all(&self.0.connections.of_person(person), Close::Lifetime);
    }

    /// Closes the streams of a person that were opened with a token issued before this time.
    pub fn revoke(&self, person: &Id, issued_before: Millis) {
        let mut connections = self.0.connections.of_person(person);
        connections.retain(|connection| connection.deadlines().issued_at < issued_before);
        self.close_all(&connections, Close::TokenExpired);
    }

    /// Closes every stream with 3001: the clients reconnect, and their access is checked again.
    pub fn disconnect_all(&self) {
        self.close_all(&self.0.connections.all(), Close::Lifetime);
    }

    pub(crate) fn close_all(&self, connections: &[Arc<ConnectionState>], close: Close) {
        let now = self.0.tick();
        connections.iter().for_each(|connection| connection.close(close, now));
    }

    /// Whether messages may be delivered now: this instance has applied every access command so far.
    pub(crate) fn can_deliver(&self) -> bool {
        self.0.revocation_gate.get().is_none_or(|gate| gate.is_current())
    }

    /// Called before entries read from the log are delivered: an entry may be newer than an access command that this
    /// instance has not received yet.
    pub(crate) async fn wait_for_revocations(&self) -> Result<(), LogError> {
        match self.0.revocation_gate.get() {
            Some(gate) => gate.catch_up().await,
            None => Ok(()),
        }
    }
}
