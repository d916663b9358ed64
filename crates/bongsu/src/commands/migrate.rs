//! `bongsu migrate`: brings the data folder and the database to this version's schema, without serving.

use bongsu_kernel::settings::Values;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::telemetry;
use bongsu_sql::Records;

use super::client::block_on;
use super::say;
use crate::failure::Failure;
use crate::{settings, wire};

pub(crate) fn command() -> clap::Command {
    clap::Command::new("migrate")
        .about("Bring the data folder and the database to this version's schema (serve does so too)")
}

pub(crate) fn run(values: &Values) -> Result<(), Failure> {
    settings::check_engines(values)?;
    let server = bongsu_sql::Options::from_settings(values)?;
    telemetry::start_logs(values)?;
    if settings::uses_folder(values) {
        let database = wire::open_database(values)?;
        say(&format!("{} is up to date", database.folder().path().display()));
    }
    if let Some(options) = server {
        let supervisor = Supervisor::new();
        block_on(async { Ok(Records::connect(&options, &wire::migrations(values), &supervisor).await?) })?;
        say(&format!("{} is up to date", options.address));
    }
    Ok(())
}
