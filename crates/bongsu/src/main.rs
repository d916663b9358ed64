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
mod storage;
mod tickets;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
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
