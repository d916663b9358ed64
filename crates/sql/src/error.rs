//! What can go wrong with the store, told apart by what helps.

use std::path::PathBuf;

use rusqlite::ErrorCode;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the data folder {0} is in use by another process{1}")]
    InUse(PathBuf, String),
    #[error("{0} is not a file of this program; nothing was changed")]
    Foreign(PathBuf),
    #[error(
        "{0} is empty, as a copy that failed leaves it; nothing was changed. Restore a copy, or remove it to start with no data"
    )]
    Empty(PathBuf),
    #[error("{0} is damaged ({1}); nothing was changed. Restore a copy, or move it away to start empty")]
    Damaged(PathBuf, String),
    #[error("{0} was written by a newer version (it has {1}); nothing was changed. Start that version")]
    Newer(String, String),
    #[error(
        "{0} is of an older version (it lacks {1}); nothing was changed. Bring it up to date with migrate"
    )]
    Older(String, String),
    #[error(
        "{0} has its tables under other names ({1}) than the settings say ({2}); nothing was changed. Set those that it \
         has"
    )]
    Renamed(String, String, String),
    #[error("the data folder {0} cannot be used: {1}")]
    Unusable(PathBuf, String),
    /// Nothing of the work was kept; it may be tried again once there is space.
    #[error("the disk of the data folder is full")]
    Full,
    #[error("the database failed: {0}")]
    Failed(String),
    /// At a start: a server that is not there, or does not let us in. The address has no password in it.
    #[error("the database at {0} (DATABASE_URL) cannot be used: {1}")]
    NoServer(String, String),
    #[error(
        "the database at {0} (DATABASE_URL) is in use by another process; all hubs that share one need the same REDIS_URL"
    )]
    Taken(String),
    /// The server cannot be reached, or did not answer in time, or another process holds the file; nothing was kept, and repeating helps once it is back.
    #[error("the database is away: {0}")]
    Away(String),
    /// The connection broke while the change was made durable: whether it was kept is unknown.
    #[error("the database did not say whether a change was kept: {0}")]
    Unanswered(String),
    /// A change took itself back.
    #[error("the change was taken back")]
    Undone,
    /// The process is shutting down.
    #[error("the database is closed")]
    Closed,
}

impl Error {
    /// Whether the same may work a moment later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Unanswered(_))
    }

    /// Whether the fault lies with the store and not with one job: the next job would meet it too.
    pub fn concerns_all(&self) -> bool {
        !matches!(self, Self::Failed(_) | Self::Undone)
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseBusy) => Self::Away("another process holds the file".to_owned()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
