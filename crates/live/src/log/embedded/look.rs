//! Looking at the file from outside for one event of a subject: whether the log still has it, and whether what was written
//! down for people with it still waits.

use bongsu_kernel::StreamId;
use bongsu_sql::{Error, Readers};

use super::{follow_ups, read};
use crate::SubjectName;
use crate::log::Traces;

pub async fn look(readers: &Readers, subject: SubjectName, id: StreamId) -> Result<Traces, Error> {
    let looked = readers.read(move |connection| {
        let snapshot = connection.unchecked_transaction()?;
        let event = read::event(&snapshot, &subject, id)?;
        // Few records wait at a time, so all of them are looked at.
        let waiting = follow_ups::find(&snapshot, &subject, id, -1)?;
        Ok(Traces { event, waiting })
    });
    looked.await
}
