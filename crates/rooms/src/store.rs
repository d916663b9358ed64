//! The store of registered rooms and their members, in SQL.

pub mod sql;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddOutcome {
    Added,
    NoRoom,
    /// The room has reached its maximum number of members.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipState {
    NoRoom,
    NotMember,
    Member,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("the records are not available: {0}")]
pub struct StoreError(#[from] bongsu_sql::Error);

impl StoreError {
    /// Whether the operation may succeed when it is repeated.
    pub fn is_transient(&self) -> bool {
        self.0.is_transient()
    }
}

impl From<StoreError> for bongsu_sql::Error {
    fn from(StoreError(error): StoreError) -> Self {
        error
    }
}
