//! The errors of the engine and the records, distinguished by what the caller can do about them.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub enum Error {
    /// The engine is unreachable or read-only. Nothing was changed; a retry succeeds once the engine is back.
    Unavailable(String),
    /// It is unknown whether the engine executed the operation. Every operation of this crate may be repeated.
    Unanswered(String),
    /// The engine refused the operation, and refuses retries until an operator has corrected the cause.
    Refused(String),
    /// The records could not be read or written.
    Records(String),
    /// The operation failed and changed nothing.
    Failed(String),
}

impl Error {
    pub(crate) fn unreadable(what: &str) -> Self {
        Self::Failed(format!("{what} in Redis has an unknown format"))
    }
}

impl From<bongsu_redis::Error> for Error {
    fn from(error: bongsu_redis::Error) -> Self {
        use bongsu_redis::Error as Redis;
        let text = error.to_string();
        match error {
            Redis::Unreachable(_) | Redis::ReadOnly(_) => Self::Unavailable(text),
            Redis::Unanswered(_) => Self::Unanswered(text),
            Redis::Refused(_) => Self::Refused(text),
            Redis::UnknownScript | Redis::Unexpected(_) => Self::Failed(text),
        }
    }
}

impl From<bongsu_sql::Error> for Error {
    fn from(error: bongsu_sql::Error) -> Self {
        Self::Records(error.to_string())
    }
}
