//! How a command ends when it cannot do its work: one clear line, and an exit code that scripts can tell apart.

use std::process::ExitCode;

use bongsu_kernel::settings::Bad;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// 2: the configuration or the command line is wrong.
    #[error("{0}")]
    Configuration(#[from] Bad),
    /// 3: the data folder or the database cannot be used: held by another process, damaged, foreign, or of a newer
    /// version. A server that is not there may come: that is 1.
    #[error("{0}")]
    Data(#[from] bongsu_sql::Error),
    /// 1: anything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    pub fn other(error: impl std::fmt::Display) -> Self {
        Self::Other(error.to_string())
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Other(_) | Self::Data(bongsu_sql::Error::NoServer(..) | bongsu_sql::Error::Taken(_)) => 1,
            Self::Configuration(_) => 2,
            Self::Data(_) => 3,
        })
    }
}
