//! Errors that end a command: each has a message of one line, and an exit code for scripts.

use std::process::ExitCode;

use bongsu_kernel::settings::SettingError;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub enum Failure {
    /// Exit code 2: the configuration or the command line is wrong.
    Configuration(#[from] SettingError),
    /// Exit code 3: the data folder is in use, or the data folder or the database is damaged, of another
    /// program, of another version, or rejects a statement of this version. Exit code 1 if the database
    /// server cannot be reached or is in use, because it may become usable.
    Data(#[from] bongsu_sql::Error),
    /// Exit code 1: any other error.
    Other(String),
}

impl Failure {
    pub fn other(error: impl std::fmt::Display) -> Self {
        Self::Other(error.to_string())
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Other(_)
            | Self::Data(bongsu_sql::Error::ServerUnusable(..) | bongsu_sql::Error::DatabaseInUse(_)) => 1,
            Self::Configuration(_) => 2,
            Self::Data(_) => 3,
        })
    }
}
