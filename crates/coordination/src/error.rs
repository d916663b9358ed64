//! What can go wrong with the engine, told apart by what helps.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The engine is away. Nothing was done; repeating helps once it is back.
    #[error("{0}")]
    Away(String),
    /// Whether it was done is unknown. Everything in this crate may be repeated.
    #[error("{0}")]
    Unanswered(String),
    /// The engine refused, and will go on to until somebody has looked at it.
    #[error("{0}")]
    Refused(String),
    /// The records could not be asked, or did not take it.
    #[error("{0}")]
    Records(String),
    /// Nothing was done.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    pub(crate) fn unreadable(what: &str) -> Self {
        Self::Failed(format!("{what} in Redis is not readable"))
    }
}

impl From<bongsu_redis::Error> for Error {
    fn from(error: bongsu_redis::Error) -> Self {
        use bongsu_redis::Error as Redis;
        let told = error.to_string();
        match error {
            Redis::Unreachable(_) | Redis::ReadOnly(_) => Self::Away(told),
            Redis::Unanswered(_) => Self::Unanswered(told),
            Redis::Refused(_) => Self::Refused(told),
            Redis::UnknownScript | Redis::Unexpected(_) => Self::Failed(told),
        }
    }
}

impl From<bongsu_sql::Error> for Error {
    fn from(error: bongsu_sql::Error) -> Self {
        Self::Records(error.to_string())
    }
}
