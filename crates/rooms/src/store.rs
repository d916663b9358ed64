//! The store of registered rooms and their members, in SQL.

pub mod sql;

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
