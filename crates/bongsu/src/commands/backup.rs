//! `bongsu backup`: copies the database in the data folder, also while a hub uses it.
//!
//! The command copies only the data folder. It names the data that is in Redis or in a database server, which have
//! their own backup tools.

use std::path::Path;

use bongsu_kernel::settings::Values;
use bongsu_redis::REDIS_URL;
use bongsu_sql::{CopyError, DATA_DIR, DATABASE_URL, DataFolder};
use clap::{Arg, ArgMatches, Command};

use super::{given, print_line};
use bongsu_part::Failure;

const EVENTS_IN_REDIS: &str = "events, idempotency keys and revocations are in Redis (REDIS_URL)";
const RECORDS_IN_DATABASE: &str = "records (rooms, members, inboxes) are in the database (DATABASE_URL)";
const OWN_TOOLS: &str = "back it up with its own tools";

pub(crate) fn command() -> Command {
    Command::new("backup").about("Copy the data folder's database to a file, also while the hub runs").arg(
        Arg::new("file")
            .required(true)
            .value_name("FILE")
            .help("The new file; an existing one is not overwritten"),
    )
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    bongsu_part::check_engines(values)?;
    let not_copied = not_copied(values);
    if !bongsu_part::uses_folder(values) {
        return Err(Failure::Other(format!(
            "nothing is kept in DATA_DIR: {}; back them up with their own tools",
            not_copied.join("; ")
        )));
    }
    let target = Path::new(given(matches, "file").unwrap_or_default());
    let database = DataFolder::database_in(Path::new(values.text(&DATA_DIR)));
    let bytes = bongsu_sql::copy(&database, target).map_err(|error| match error {
        CopyError::Database(error) => Failure::Data(error),
        error => Failure::other(error),
    })?;
    print_line(&format!("{} is a complete copy of {} ({bytes} bytes)", target.display(), database.display()));
    for data in not_copied {
        print_line(&format!("not in it: {data}; {OWN_TOOLS}"));
    }
    Ok(())
}

/// The data that is not in the data folder, and where it is.
fn not_copied(values: &Values) -> Vec<&'static str> {
    let is_set = |setting| values.get(setting).is_some();
    let events = is_set(&REDIS_URL).then_some(EVENTS_IN_REDIS);
    let records = is_set(&DATABASE_URL).then_some(RECORDS_IN_DATABASE);
    events.into_iter().chain(records).collect()
}
