//! The load generator, and the bare loop that the hub is compared with.
//!
//! `run` starts hubs, loads them over loopback and writes a report; `reference` measures the bare loop alone;
//! `bare-loop` runs that loop. All counts and times are bounded, and no child outlives this process.

// A command-line tool prints: the report to standard output, progress to standard error.
#![allow(clippy::disallowed_macros)]

mod args;
mod bare_loop;
mod clock;
mod generator;
mod measure;
mod process;
mod report;
mod stats;
mod wire;

use std::process::ExitCode;

/// Errors are only printed for a person, so a text is sufficient.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let has_met_limits = match args::parse() {
        args::Command::Run(options) => measure::run(&options),
        args::Command::Reference(options) => measure::reference(&options).map(|()| true),
        args::Command::BareLoop(options) => bare_loop::serve(&options).map(|()| true),
        args::Command::ExecGuarded(command) => process::exec_guarded(&command).map(|()| true),
    };
    match has_met_limits {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("bongsu-bench: {error}");
            ExitCode::from(2)
        }
    }
}
