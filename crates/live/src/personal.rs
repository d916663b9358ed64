//! The personal stream as connections follow it beside rooms. The part that owns personal streams provides it.

use bongsu_http::{ApiError, StreamPerson};
use bongsu_kernel::{Id, StreamId};

use crate::log::Boxed;
use crate::options::Manner;
use crate::{Ender, LiveStream, SubjectName, SubscriptionGuard};

/// See the module. A hub that records nothing has none.
pub trait PersonalFeed: Send + Sync {
    /// The subject of a person's inbox.
    fn subject(&self, person: &Id) -> SubjectName;

    /// How a connection behaves that carries it.
    fn manner(&self) -> Manner;

    /// Counts a connection among the person's until the guard is dropped. `ender` ends the connection when a newer one
    /// replaces it.
    fn join(&self, person: &Id, ender: Ender) -> Boxed<'_, Result<Box<dyn SubscriptionGuard>, ApiError>>;

    /// The personal stream on a connection of its own, after a position or with the newest unread entries.
    fn open(
        &self,
        caller: StreamPerson,
        position: Option<StreamId>,
    ) -> Boxed<'_, Result<LiveStream, ApiError>>;
}
