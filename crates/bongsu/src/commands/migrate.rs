//! `bongsu migrate`: brings the data folder to this version's schema, without serving.

use bongsu_kernel::settings::Values;
use bongsu_kernel::telemetry;

use super::say;
use crate::failure::Failure;
use crate::{settings, wire};

pub(crate) fn command() -> clap::Command {
    clap::Command::new("migrate").about("Bring the data folder to this version's schema (serve does so too)")
}

pub(crate) fn run(values: &Values) -> Result<(), Failure> {
    settings::check_engines(values)?;
    telemetry::start_logs(values)?;
    let database = wire::open_database(values)?;
    say(&format!("{} is up to date", database.folder().path().display()));
    Ok(())
}
