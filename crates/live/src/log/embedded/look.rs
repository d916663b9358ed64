//! Looking at the file from outside for one event of a subject: whether the log still has it, and whether what was written
//! down for people with it still waits.

use bongsu_kernel::StreamId;
use bongsu_sql::rusqlite::OptionalExtension;
use bongsu_sql::{Error, Readers};

use super::read;
use crate::SubjectName;
use crate::log::{Pending, Traces};

/// Few records wait at a time, so all of them are looked at. What is no JSON is passed over: it belongs to no event.
const WAITING: &str = "SELECT record FROM follow_ups WHERE CASE WHEN json_valid(record)
    THEN record ->> 'subject' = ?1 AND record ->> 'streamId' = ?2 ELSE false END LIMIT 1";

pub async fn look(readers: &Readers, subject: SubjectName, id: StreamId) -> Result<Traces, Error> {
    let looked = readers.read(move |connection| {
        let snapshot = connection.unchecked_transaction()?;
        let event = read::event(&snapshot, &subject, id)?;
        let record = snapshot
            .prepare_cached(WAITING)?
            .query_row([subject.as_str(), &id.to_string()], |row| Ok(row.get_ref(0)?.as_bytes()?.to_owned()))
            .optional()?;
        let waiting = record.and_then(|record| Pending { key: String::new(), record }.read());
        Ok(Traces { event, waiting })
    });
    looked.await
}
