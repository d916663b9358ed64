//! The errors of Redis, classified by whether the command may have run and whether a retry can help.

use bongsu_kernel::Outage;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The outcome of an operation on Redis.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot be reached or does not work at the moment. The command did not run.
    #[error("Redis cannot be reached: {0}")]
    Unreachable(String),
    /// The server is a replica, possibly since a demotion. The command did not run; another server may be the master by
    /// now.
    #[error("Redis takes no writes: {0}")]
    ReadOnly(String),
    /// The connection broke, or the answer did not arrive in time. Whether the command ran is unknown.
    #[error("Redis did not answer: {0}")]
    Unanswered(String),
    /// The server refused the command. The text begins with the server's error code.
    #[error("Redis refused the command: {0}")]
    Refused(String),
    /// The server does not know the script of an EVALSHA. The command did not run.
    #[error("Redis does not know the script")]
    UnknownScript,
    /// The answer does not have the form that the command returns.
    #[error("Redis sent an unexpected answer: {0}")]
    Unexpected(String),
}

impl Error {
    /// Whether a retry can succeed a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::ReadOnly(_) | Self::Unanswered(_))
    }

    /// Classifies the error of a command that was sent.
    pub(crate) fn of_sent(error: &RedisError) -> Self {
        let text = error.to_string();
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::UnknownScript,
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::ReadOnly(text),
            // These answers say that the command did not run, and are temporary.
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::TryAgain
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask,
            ) => Self::Unreachable(text),
            ErrorKind::Server(_) | ErrorKind::Extension => Self::Refused(match error.code() {
                Some(code) => format!("{code} {}", error.detail().unwrap_or_default()),
                None => text,
            }),
            ErrorKind::Io => Self::Unanswered(text),
            _ => Self::Unexpected(text),
        }
    }
}

impl From<Error> for Outage {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}
