//! The errors of the store, classified by what the caller or the operator can do.

use std::path::PathBuf;

use rusqlite::ErrorCode;

/// The outcome of an operation on the records.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the data folder {0} is in use by another process{1}")]
    InUse(PathBuf, String),
    #[error("{0} is not a database of this program; nothing was changed")]
    Foreign(PathBuf),
    #[error(
        "{0} is empty, as after a failed copy; nothing was changed. Restore a copy, or remove it to start with no data"
    )]
    Empty(PathBuf),
    #[error("{0} is damaged ({1}); nothing was changed. Restore a copy, or move it away to start empty")]
    Damaged(PathBuf, String),
    #[error("{0} was written by a newer version (which has {1}); nothing was changed. Start that version")]
    Newer(String, String),
    #[error(
        "{0} has the schema of an older version (without {1}); nothing was changed. Run `bongsu migrate` first"
    )]
    Older(String, String),
    #[error(
        "{0} has its tables under other names ({1}) than the settings say ({2}); nothing was changed. Change the \
         settings to its names"
    )]
    Renamed(String, String, String),
    #[error("the data folder {0} cannot be used: {1}")]
    Unusable(PathBuf, String),
    /// Nothing was stored. A retry can succeed once the disk has space.
    #[error("the disk of the data folder is full")]
    Full,
    #[error("the database failed: {0}")]
    Failed(String),
    /// At a start: the server cannot be reached, denies the login, or fails a check. The address is shown without its
    /// password.
    #[error("the database at {0} (DATABASE_URL) cannot be used: {1}")]
    ServerUnusable(String, String),
    /// At a start: the server rejected a statement that this version needs, such as a check of a table or a
    /// query from a setting.
    #[error("the database at {0} (DATABASE_URL) rejects a statement of this version: {1}")]
    SchemaRejected(String, String),
    #[error(
        "the database at {0} (DATABASE_URL) is in use by another process; hubs that share a database need the same REDIS_URL"
    )]
    DatabaseInUse(String),
    /// The server cannot be reached or did not answer in time, or another process locks the file. Nothing was stored; a
    /// retry can succeed later.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// COMMIT was sent and not answered: whether the change is stored is unknown.
    #[error("the database did not confirm whether a change is stored: {0}")]
    Unanswered(String),
    /// The change asked for its own rollback.
    #[error("the change was rolled back")]
    RolledBack,
    /// The process is shutting down.
    #[error("the database is closed")]
    Closed,
}

impl Error {
    /// Whether a retry can succeed a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Unanswered(_))
    }

    /// Whether the store itself failed, so that other jobs would fail in the same way.
    pub fn is_store_failure(&self) -> bool {
        !matches!(self, Self::Failed(_) | Self::RolledBack)
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseBusy) => Self::Unavailable("another process locks the file".to_owned()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
