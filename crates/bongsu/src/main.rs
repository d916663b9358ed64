//! The binary: command line, configuration, wiring, shutdown. The only crate that names all others.

mod admin;
mod changes;
mod commands;
mod failure;
mod fleet;
mod fleet_settings;
mod letters;
mod line;
mod operate;
mod people;
mod relay;
mod roles;
mod settings;
mod tickets;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    // What the hub writes is for its user, and nobody else: SQLite takes no modes of its own.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    match line::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            commands::complain(&failure);
            failure.exit_code()
        }
    }
}
