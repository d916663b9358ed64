//! The program: command line, configuration, the list of parts, shutdown. The only crate that depends on all parts.

mod admin;
mod app;
mod cli;
mod commands;
mod dead_letters;
mod metric_descriptions;
mod operate;
mod parts;
mod settings;

use std::process::ExitCode;

pub use metric_descriptions::METRICS;
pub use parts::PARTS;

/// Runs the subcommand of the command line.
pub fn run() -> ExitCode {
    // Files that the hub creates are accessible to its own user only. SQLite has no option for the mode of its files.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            commands::print_failure(&failure);
            failure.exit_code()
        }
    }
}
