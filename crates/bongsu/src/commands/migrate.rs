//! `bongsu migrate`: migrates the data folder and the database to the schema of this version, without serving.

use bongsu_kernel::settings::Values;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::telemetry;
use bongsu_sql::Dialect;
use clap::{ArgMatches, Command};

use super::client::block_on;
use super::{flag, print_line};
use crate::PARTS;
use bongsu_part::Failure;
use bongsu_part::{Purpose, Storage};

pub(crate) fn command() -> Command {
    Command::new("migrate")
        .about("Migrate the data folder and the database to the schema of this version, as serve does at its start")
        .arg(flag(
            "print",
            "Print the SQL that creates the tables of the outbox, without changing the database",
        ))
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    bongsu_part::check_engines(values)?;
    let server = bongsu_sql::Options::from_settings(values)?;
    if matches.get_flag("print") {
        let dialect = server.map_or(Dialect::Sqlite, |options| options.address.dialect());
        let migrations = PARTS.migrations(values, dialect)?;
        print_line(migrations.statements(bongsu_outbox::store::PART, dialect).trim_end());
        return Ok(());
    }
    telemetry::start_logs(values)?;
    let supervisor = Supervisor::new();
    let migrated = block_on(async {
        Storage::prepare(PARTS, values, server.as_ref(), Purpose::Migrate).await?.migrate(&supervisor).await
    })?;
    if let Some((file, _)) = migrated.file {
        print_line(&format!("{} is up to date", file.folder().path().display()));
    }
    if let Some(options) = server {
        print_line(&format!("{} is up to date", options.address));
    }
    Ok(())
}
