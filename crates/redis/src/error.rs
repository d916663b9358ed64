//! What can go wrong with Redis, as those who ask it need to tell it apart.

use bongsu_kernel::Outage;
use redis::{ErrorKind, RedisError, ServerErrorKind};

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be reached or does not work now. Nothing was done.
    #[error("Redis cannot be reached: {0}")]
    Unreachable(String),
    /// The server is a replica, perhaps since it was demoted a moment ago. Nothing was done; another server may be the
    /// master by now.
    #[error("Redis takes no writes: {0}")]
    ReadOnly(String),
    /// The connection broke, or the answer did not come in time. Whether it was done is unknown.
    #[error("Redis did not answer: {0}")]
    Unanswered(String),
    /// It refused the command. The text begins with the server's code.
    #[error("Redis refused: {0}")]
    Refused(String),
    /// It does not know the script. Nothing was done.
    #[error("Redis does not know the script")]
    UnknownScript,
    /// The answer was not what the command gives.
    #[error("Redis answered something unexpected: {0}")]
    Unexpected(String),
}

impl Error {
    /// Whether the same may work a moment later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::ReadOnly(_) | Self::Unanswered(_))
    }

    pub(crate) fn is_unknown_script(&self) -> bool {
        matches!(self, Self::UnknownScript)
    }

    /// Of a command that was sent.
    pub(crate) fn of(error: &RedisError) -> Self {
        let told = error.to_string();
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::UnknownScript,
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::ReadOnly(told),
            // It says itself that it did nothing, and that this is not for ever.
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::TryAgain
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask,
            ) => Self::Unreachable(told),
            ErrorKind::Server(_) | ErrorKind::Extension => Self::Refused(match error.code() {
                Some(code) => format!("{code} {}", error.detail().unwrap_or_default()),
                None => told,
            }),
            ErrorKind::Io => Self::Unanswered(told),
            _ => Self::Unexpected(told),
        }
    }
}

impl From<Error> for Outage {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}
