//! `bongsu backup`: a whole copy of the data folder's database, also while a hub runs on it.
//!
//! It copies what is kept here and nothing else, and says what is kept elsewhere: engines have tools of their own.

use std::path::Path;

use bongsu_kernel::settings::Values;
use bongsu_redis::REDIS_URL;
use bongsu_sql::{CopyError, DATA_DIR, DATABASE_URL, DataFolder};
use clap::{Arg, ArgMatches, Command};

use super::{given, say};
use bongsu_part::Failure;

const EVENTS_ELSEWHERE: &str = "events, idempotency keys and who was sent away are in Redis (REDIS_URL)";
const RECORDS_ELSEWHERE: &str = "records (rooms, members, inboxes) are in the database (DATABASE_URL)";
const OWN_TOOLS: &str = "back it up with its own tools";

pub(crate) fn command() -> Command {
    Command::new("backup")
        .about("Copy the data folder's database to a file, also while the hub runs")
        .arg(Arg::new("file").required(true).value_name("FILE").help("Where to; nothing is overwritten"))
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    bongsu_part::check_engines(values)?;
    let elsewhere = elsewhere(values);
    if !bongsu_part::uses_folder(values) {
        return Err(Failure::Other(format!(
            "nothing is kept in DATA_DIR: {}; back them up with their own tools",
            elsewhere.join("; ")
        )));
    }
    let target = Path::new(given(matches, "file").unwrap_or_default());
    let database = DataFolder::database_in(Path::new(values.text(&DATA_DIR)));
    let bytes = bongsu_sql::copy(&database, target).map_err(|error| match error {
        CopyError::Database(error) => Failure::Data(error),
        error => Failure::other(error),
    })?;
    say(&format!("{} is a whole copy of {} ({bytes} bytes)", target.display(), database.display()));
    for place in elsewhere {
        say(&format!("not in it: {place}; {OWN_TOOLS}"));
    }
    Ok(())
}

/// What is not kept in the data folder.
fn elsewhere(values: &Values) -> Vec<&'static str> {
    let is_set = |setting| values.given(setting).is_some();
    let events = is_set(&REDIS_URL).then_some(EVENTS_ELSEWHERE);
    let records = is_set(&DATABASE_URL).then_some(RECORDS_ELSEWHERE);
    events.into_iter().chain(records).collect()
}
