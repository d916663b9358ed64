//! `bongsu explain`: reports on one event from the stored data: its acceptance, inbox entries and read marks.
//!
//! The command reads the embedded file (also while a hub uses it), the database, and Redis, and changes none of them.
//! The report lists the facts that could not be read; `report` formats it.

mod report;

use std::path::Path;

use bongsu_inbox::EventId;
use bongsu_inbox::explain::{ExplainQuery, Explanation, explain};
use bongsu_inbox::marks::redis::RedisMarkBuffer;
use bongsu_inbox::marks::{MarkBuffer, Marks};
use bongsu_kernel::settings::{SettingError, Values};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, StreamId};
use bongsu_live::SubjectName;
use bongsu_live::log::{EventTrace, embedded};
use bongsu_outbox::explain::ExplainedRow;
use bongsu_redis::Redis;
use bongsu_rooms::store::sql::SqlStore;
use bongsu_sql::{DATA_DIR, DataFolder, Readers, Records};
use clap::{Arg, ArgMatches, Command};

use super::client::block_on;
use super::{flag, given, option, print_line};
use crate::PARTS;
use bongsu_part::Failure;

// Facts that are not recorded, with the reason.
const LIVE_RECEIVERS: &str = "who was connected and received it live: this is not recorded";
const PAST_SETTINGS: &str = "what the person had switched off at that time: only current settings are stored";
const MARKS_OF_ALL_PEOPLE: &str =
    "what was read in the last half minute: pending read marks in Redis are read for one --person only";
const MARKS_UNAVAILABLE: &str =
    "what the person read in the last half minute: Redis, which has the pending read marks, cannot be asked";
const LOG_UNAVAILABLE: &str =
    "whether the room still has it, or a follow-up record of it is pending: Redis cannot be asked";
const NO_RECORDS: &str = "who has an entry: RECORDS is off";
const NO_DATA_FOLDER: &str = "whether the room still has it, or a follow-up record of it is pending: the data folder of the hub cannot be read here";

pub(crate) fn command() -> Command {
    let event = "The eventId: <room>:<streamId> for an event of a room, outbox:<id> for a row of the outbox";
    Command::new("explain")
        .about("Show whether an event was accepted, who has an inbox entry for it, who read it, and why it was not sent")
        .arg(Arg::new("event").help(event).required(true).value_name("EVENT_ID"))
        .arg(option("person", "Limit the inbox entries to this person").value_name("ID"))
        .arg(flag("json", "Print the report as JSON"))
}

/// The stored data about an event.
struct EventData {
    event: EventId,
    person: Option<Id>,
    explained: Option<Explanation>,
    /// The entry of a room event in the log. None for other events, or if the log cannot be read.
    room: Option<EventTrace>,
    /// The outbox row, if the id names one.
    row: Option<ExplainedRow>,
    /// Facts that are missing in the report, with the reason.
    not_known: Vec<&'static str>,
}

impl EventData {
    fn is_found(&self) -> bool {
        let has_data = |trace: &EventTrace| trace.event.is_some() || trace.follow_up.is_some();
        self.explained.is_some() || self.row.is_some() || self.room.as_ref().is_some_and(has_data)
    }
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    bongsu_part::check_engines(values)?;
    let not_allowed = |what: &str, given: &str, reason: bongsu_kernel::Reason| {
        SettingError(format!("{what} {given:?} is not allowed: {}", reason.text().en))
    };
    let event = given(matches, "event").unwrap_or_default();
    let event = EventId::new(event).map_err(|reason| not_allowed("EVENT_ID", event, reason))?;
    let person = given(matches, "person")
        .map(|person| Id::new(person).map_err(|reason| not_allowed("--person", person, reason)))
        .transpose()?;
    if !bongsu_part::keeps_records(values) && room_event(&event).is_none() {
        return Err(Failure::other("RECORDS is off: only events of rooms can be explained"));
    }
    let data = block_on(read(values, event, person))?;
    if !data.is_found() {
        return Err(Failure::Other(report::not_found(&data, values)));
    }
    print_line(&if matches.get_flag("json") { report::json(&data)? } else { report::text(&data) });
    Ok(())
}

async fn read(values: &Values, event: EventId, person: Option<Id>) -> Result<EventData, Failure> {
    let supervisor = Supervisor::new();
    let redis = bongsu_redis::Options::from_settings(values)?;
    let redis = redis.map(|options| Redis::start(options, &supervisor));
    let database = bongsu_sql::Options::from_settings(values)?;
    let file = if bongsu_part::uses_folder(values) { Some(open_file(values)) } else { None };
    let mut not_known = vec![LIVE_RECEIVERS];
    // Reads each source before the destination of its data: follow-up records before entries, pending read marks before
    // rows. Data that moves during the command is then seen at least once.
    let mut room = None;
    if let Some((subject, id)) = room_event(&event) {
        match (&redis, &file) {
            (Some(redis), _) => match bongsu_live::log::redis::trace_event(redis, &subject, id).await {
                Ok(trace) => room = Some(trace),
                Err(_) => not_known.push(LOG_UNAVAILABLE),
            },
            (None, Some(Ok(readers))) => room = Some(embedded::trace_event(readers, subject, id).await?),
            (None, _) => not_known.push(NO_DATA_FOLDER),
        }
    }
    let mut marks = Marks::new();
    match (redis, &person) {
        (None, _) => {}
        (Some(_), None) => not_known.push(MARKS_OF_ALL_PEOPLE),
        (Some(redis), Some(person)) => match RedisMarkBuffer::new(redis).marks(person).await {
            Ok(found) => marks = found,
            Err(_) => not_known.push(MARKS_UNAVAILABLE),
        },
    }
    if !bongsu_part::keeps_records(values) {
        not_known.push(NO_RECORDS);
        return Ok(EventData { event, person, explained: None, room, row: None, not_known });
    }
    let records = match (database, file) {
        (Some(options), _) => {
            let migrations = PARTS.migrations(values, options.address.dialect())?;
            Records::connect_as_is(&options, &migrations, &supervisor).await?
        }
        (None, Some(file)) => {
            Records::read_only(file?).with_names(PARTS.folder_migrations(values)?.names().clone())
        }
        (None, None) => {
            return Err(Failure::other("no store for records: neither a database nor a data folder"));
        }
    };
    if let Some(record) = room.as_mut().and_then(|trace| trace.follow_up.as_mut())
        && record.recipients.is_none()
        && let Some((subject, _)) = room_event(&event)
        && let Ok(room) = Id::new(subject.parts().1)
    {
        // The follow-up record names no recipients: the entries will be made for the members of the room.
        let store = SqlStore(records.clone());
        let members = store.members(&room).await.map_err(Failure::other)?;
        record.recipients = Some(record.filter_recipients(members.unwrap_or_default()));
    }
    let query = ExplainQuery { event: event.clone(), person: person.clone(), marks };
    let explained = explain(&records, query).await?;
    let row = match outbox_row_id(&event).filter(|_| bongsu_outbox::is_on(values)) {
        Some(id) => bongsu_outbox::explain::explain(&records, id).await?,
        None => None,
    };
    if person.is_some() {
        not_known.push(PAST_SETTINGS);
    }
    Ok(EventData { event, person, explained, room, row, not_known })
}

fn open_file(values: &Values) -> Result<Readers, Failure> {
    let file = DataFolder::database_in(Path::new(values.text(&DATA_DIR)));
    Ok(bongsu_sql::open_read_only(&file, &PARTS.folder_migrations(values)?)?)
}

/// The subject and stream id that an event id names, if it has the form `<room>:<streamId>`.
fn room_event(event: &EventId) -> Option<(SubjectName, StreamId)> {
    let (room, id) = event.as_str().rsplit_once(':')?;
    Some((SubjectName::new(bongsu_rooms::SUBJECT_KIND, &Id::new(room).ok()?), id.parse().ok()?))
}

/// The outbox row that an event id names, if it has the form `outbox:<id>`.
fn outbox_row_id(event: &EventId) -> Option<i64> {
    event.as_str().strip_prefix("outbox:")?.parse().ok()
}
