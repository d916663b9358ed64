//! The store of registered rooms and their members: a port, and its adapter in SQL.

pub mod sql;

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;

use bongsu_kernel::Id;

/// A future that a trait object can give.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Registered rooms and their members.
///
/// - **Durable** before it answers, and seen by every question that is asked after the answer.
/// - **Repeating** a change is no error and changes nothing more.
/// - **Errors** mean that nothing was changed, unless the store did not answer.
pub trait Store: Send + Sync {
    /// Registers a room.
    fn register(&self, room: &Id) -> Boxed<'_, ()>;

    /// Takes a room and all its members away. Says whether it was there.
    fn unregister(&self, room: &Id) -> Boxed<'_, bool>;

    /// Adds a member; a room keeps at most `most`.
    fn add(&self, room: &Id, user: &Id, most: usize) -> Boxed<'_, Added>;

    /// Takes a member away. Says whether the room is registered.
    fn remove(&self, room: &Id, user: &Id) -> Boxed<'_, bool>;

    /// What somebody is to a room.
    fn standing(&self, room: &Id, user: &Id) -> Boxed<'_, Standing>;

    /// Who is a member, in order; nothing when the room is not registered.
    fn members(&self, room: &Id) -> Boxed<'_, Option<Vec<Id>>>;

    /// Those of these rooms that are registered.
    fn registered(&self, rooms: &[Id]) -> Boxed<'_, HashSet<Id>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Yes,
    NoRoom,
    /// The room has as many members as it may.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    NoRoom,
    Stranger,
    Member,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("the records cannot be used: {0}")]
pub struct StoreError(#[from] bongsu_sql::Error);

impl StoreError {
    /// Whether the same may work a moment later.
    pub fn may_pass(&self) -> bool {
        self.0.may_pass()
    }
}

impl From<StoreError> for bongsu_sql::Error {
    fn from(StoreError(error): StoreError) -> Self {
        error
    }
}
