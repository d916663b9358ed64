//! Finds one event of a subject in the database file, and its follow-up record, for `explain`.

use bongsu_kernel::StreamId;
use bongsu_sql::{Error, Readers};

use super::{follow_ups, read};
use crate::SubjectName;
use crate::log::EventTrace;

pub async fn trace_event(readers: &Readers, subject: SubjectName, id: StreamId) -> Result<EventTrace, Error> {
    let reading = readers.read(move |connection| {
        let snapshot = connection.unchecked_transaction()?;
        let event = read::event(&snapshot, &subject, id)?;
        // The limit -1 searches all records, which are few at any time.
        let follow_up = follow_ups::find(&snapshot, &subject, id, -1)?;
        Ok(EventTrace { event, follow_up })
    });
    reading.await
}
