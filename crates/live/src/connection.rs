//! The values that a connection holds in the hub: its state on a shard, its entry in the connection count,
//! and its subscriptions.
//!
//! Each value is released on drop, however the connection ends.

use std::any::Any;

use bongsu_kernel::Id;
use bongsu_kernel::text::Language;

use crate::connection_state::ConnectionState;
use crate::hub::Hub;
use crate::subject::{Subject, SubjectName};
use crate::sync::Arc;

/// Refers to a connection: the hub, the shard that serves the connection, and the connection's state. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ConnectionHandle {
    pub(crate) hub: Hub,
    pub(crate) state: Arc<ConnectionState>,
    pub(crate) shard: usize,
}

/// Counts a person's stream as open until the guard is dropped.
pub(crate) struct ConnectionGuard {
    pub(crate) handle: ConnectionHandle,
    pub(crate) person: Id,
    /// Values that are dropped with the stream, such as its place in the connection limit.
    pub(crate) resources: Vec<Box<dyn Any + Send>>,
    /// The bytes that the stream sends after silence.
    pub(crate) keepalive_frame: &'static [u8],
    /// The language of the texts that the stream sends.
    pub(crate) language: Language,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let ConnectionHandle { hub, state, .. } = &self.handle;
        state.mark_disconnected();
        hub.0.connections.remove(&self.person, state);
    }
}

/// A connection's interest in one subject, until the subscription is dropped.
pub(crate) struct Subscription {
    pub(crate) name: SubjectName,
    pub(crate) subject: Arc<Subject>,
    pub(crate) handle: ConnectionHandle,
}

impl Subscription {
    pub(crate) fn start(handle: &ConnectionHandle, name: SubjectName) -> Self {
        let subject = handle.hub.0.subscribe(&name, handle);
        Self { name, subject, handle: handle.clone() }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let inner = &self.handle.hub.0;
        self.subject.remove_subscriber(self.handle.shard, &self.handle.state);
        inner.report_audience(&self.name, &self.subject);
        inner.remove_unused(&self.name, &self.subject);
    }
}
