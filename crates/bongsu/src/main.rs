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
    match line::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            commands::complain(&failure);
            failure.exit_code()
        }
    }
}
