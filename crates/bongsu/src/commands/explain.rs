//! `bongsu explain`: what became of an event, from what is kept of it.
//!
//! It reads where the hub writes, and changes nothing: the embedded file beside the hub that holds it, the database, and Redis.
//! The answer names what could not be looked at. `told` writes it.

mod told;

use std::path::Path;

use bongsu_inbox::EventId;
use bongsu_inbox::explain::{Explained, Question, explain};
use bongsu_inbox::marks::redis::RedisBuffer;
use bongsu_inbox::marks::{Buffer, Marks};
use bongsu_kernel::settings::{Bad, Values};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, StreamId};
use bongsu_live::SubjectName;
use bongsu_live::log::{Traces, embedded};
use bongsu_outbox::explain::ExplainedRow;
use bongsu_redis::Redis;
use bongsu_rooms::store::sql::SqlStore;
use bongsu_sql::{DATA_DIR, DataFolder, Readers, Records};
use clap::{Arg, ArgMatches, Command};

use super::client::block_on;
use super::{flag, given, option, say};
use crate::PARTS;
use bongsu_part::Failure;

const CONNECTED: &str = "who was connected, and so heard of it live: that is not written down";
const SETTINGS_THEN: &str = "what the person had switched off then: settings are as they are now";
const MARKS_OF_ALL: &str =
    "what was read in the last half minute: marks that wait in Redis are looked at for one --person only";
const MARKS_AWAY: &str =
    "what the person read in the last half minute: Redis, where marks wait, cannot be asked";
const LOG_AWAY: &str =
    "whether the room still has it, or a record of it waits to be derived: Redis cannot be asked";
const NO_RECORDS: &str = "who has an entry: nothing is recorded here (RECORDS is off)";
const LOG_NOT_HERE: &str = "whether the room still has it, or a record of it waits to be derived: the data folder of the hub is not here";

pub(crate) fn command() -> Command {
    let event = "Its eventId; for an event of a room <room>:<streamId>, for a row of the outbox outbox:<id>";
    Command::new("explain")
        .about("Tell what became of an event: accepted, in whose inbox, read or not, and why it was not sent")
        .arg(Arg::new("event").help(event).required(true).value_name("EVENT_ID"))
        .arg(option("person", "What became of it for one person").value_name("ID"))
        .arg(flag("json", "As JSON"))
}

/// All that was found.
struct Found {
    event: EventId,
    person: Option<Id>,
    explained: Option<Explained>,
    /// Of an event of a room, as far as its log is here.
    room: Option<Traces>,
    row: Option<ExplainedRow>,
    not_known: Vec<&'static str>,
}

impl Found {
    fn is_anything(&self) -> bool {
        let seen = |traces: &Traces| traces.event.is_some() || traces.waiting.is_some();
        self.explained.is_some() || self.row.is_some() || self.room.as_ref().is_some_and(seen)
    }
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    bongsu_part::check_engines(values)?;
    let not_allowed = |what: &str, given: &str, reason: bongsu_kernel::Reason| {
        Bad(format!("{what} {given:?} is not allowed: {}", reason.text().en))
    };
    let event = given(matches, "event").unwrap_or_default();
    let event = EventId::new(event).map_err(|reason| not_allowed("EVENT_ID", event, reason))?;
    let person = given(matches, "person")
        .map(|person| Id::new(person).map_err(|reason| not_allowed("--person", person, reason)))
        .transpose()?;
    if !bongsu_part::keeps_records(values) && of_room(&event).is_none() {
        return Err(Failure::Other("nothing is recorded here: RECORDS is off".to_owned()));
    }
    let found = block_on(find(values, event, person))?;
    if !found.is_anything() {
        return Err(Failure::Other(told::unknown(&found, values)));
    }
    say(&if matches.get_flag("json") { told::json(&found)? } else { told::text(&found) });
    Ok(())
}

async fn find(values: &Values, event: EventId, person: Option<Id>) -> Result<Found, Failure> {
    let supervisor = Supervisor::new();
    let redis = bongsu_redis::Options::from_settings(values)?;
    let redis = redis.map(|options| Redis::start(options, &supervisor));
    let database = bongsu_sql::Options::from_settings(values)?;
    let file = if bongsu_part::uses_folder(values) { Some(open_file(values)) } else { None };
    let mut not_known = vec![CONNECTED];
    // Each before what comes of it: a record before its entries, a mark before its row. What moves meanwhile is then seen at
    // least once.
    let mut room = None;
    if let Some((subject, id)) = of_room(&event) {
        match (&redis, &file) {
            (Some(redis), _) => match bongsu_live::log::redis::look(redis, &subject, id).await {
                Ok(traces) => room = Some(traces),
                Err(_) => not_known.push(LOG_AWAY),
            },
            (None, Some(Ok(readers))) => room = Some(embedded::look(readers, subject, id).await?),
            (None, _) => not_known.push(LOG_NOT_HERE),
        }
    }
    let mut marks = Marks::new();
    match (redis, &person) {
        (None, _) => {}
        (Some(_), None) => not_known.push(MARKS_OF_ALL),
        (Some(redis), Some(person)) => match RedisBuffer::new(redis).of(person).await {
            Ok(found) => marks = found,
            Err(_) => not_known.push(MARKS_AWAY),
        },
    }
    if !bongsu_part::keeps_records(values) {
        not_known.push(NO_RECORDS);
        return Ok(Found { event, person, explained: None, room, row: None, not_known });
    }
    let records = match (database, file) {
        (Some(options), _) => {
            let migrations = PARTS.migrations(values, options.address.dialect())?;
            Records::connect_as_is(&options, &migrations, &supervisor).await?
        }
        (None, Some(file)) => {
            Records::looked_at(file?).named(PARTS.folder_migrations(values)?.names().clone())
        }
        (None, None) => return Err(Failure::Other("there is nowhere to keep records".to_owned())),
    };
    if let Some(record) = room.as_mut().and_then(|traces| traces.waiting.as_mut())
        && record.recipients.is_none()
        && let Some((subject, _)) = of_room(&event)
        && let Ok(room) = Id::new(subject.parts().1)
    {
        // The record names nobody: its entries go to the members at the time when they are made, which is now.
        let store = SqlStore(records.clone());
        let members = store.members(&room).await.map_err(Failure::other)?;
        record.recipients = Some(record.among(members.unwrap_or_default()));
    }
    let question = Question { event: event.clone(), person: person.clone(), marks };
    let explained = explain(&records, question).await?;
    let row = match of_outbox(&event).filter(|_| bongsu_outbox::is_on(values)) {
        Some(id) => bongsu_outbox::explain::explain(&records, id).await?,
        None => None,
    };
    if person.is_some() {
        not_known.push(SETTINGS_THEN);
    }
    Ok(Found { event, person, explained, room, row, not_known })
}

fn open_file(values: &Values) -> Result<Readers, Failure> {
    let file = DataFolder::database_in(Path::new(values.text(&DATA_DIR)));
    Ok(bongsu_sql::look(&file, &PARTS.folder_migrations(values)?)?)
}

/// The room and the place that an id names, if it is one of a room's events.
fn of_room(event: &EventId) -> Option<(SubjectName, StreamId)> {
    let (room, id) = event.as_str().rsplit_once(':')?;
    Some((SubjectName::new(bongsu_rooms::FAMILY, &Id::new(room).ok()?), id.parse().ok()?))
}

/// The row that an id names, if it is one of the outbox.
fn of_outbox(event: &EventId) -> Option<i64> {
    event.as_str().strip_prefix("outbox:")?.parse().ok()
}
