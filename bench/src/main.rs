//! Load generator, and the bare loop that the hub is measured against.
//!
//! `run` starts hubs, loads them over loopback and writes a report; `reference` measures the bare loop alone;
//! `bare-loop` is that loop. Everything is bounded in count and time, and no child outlives this process.

// A command-line tool: its report goes to standard output, its progress to standard error.
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

/// The tool has one reader of its errors, a person: a sentence is enough.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let done = match args::parse() {
        args::Command::Run(options) => measure::run(&options),
        args::Command::Reference(options) => measure::reference(&options).map(|()| true),
        args::Command::BareLoop(options) => bare_loop::serve(&options).map(|()| true),
        args::Command::ExecGuarded(command) => process::exec_guarded(&command).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("bongsu-bench: {error}");
            ExitCode::from(2)
        }
    }
}
