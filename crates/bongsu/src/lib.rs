//! The program: command line, configuration, the list of parts, shutdown. The only crate that names all others.

mod admin;
mod app;
mod commands;
mod dead_letters;
mod line;
mod operate;
mod parts;
mod settings;

use std::process::ExitCode;

pub use parts::PARTS;

/// Does what the command line says.
pub fn run() -> ExitCode {
    // Files that the hub creates are readable by its own user only. SQLite cannot be told the mode of its files.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    match line::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            commands::complain(&failure);
            failure.exit_code()
        }
    }
}
