//! The follow-up records in the embedded database file.

use std::sync::Arc;

use bongsu_kernel::StreamId;
use bongsu_sql::Store;
use bongsu_sql::rusqlite::{Connection, Error, params};
use tokio::sync::Notify;

use super::to_sql;
use crate::SubjectName;
use crate::log::{BoxFuture, FollowUp, FollowUpWatch, FollowUps, LogFuture, PendingFollowUp};

/// Newest records that are searched for one event: the records of all rooms are in one table without an index by event.
const MAX_SEARCHED_RECORDS: i64 = 512;

/// The [`FollowUps`] of the embedded log.
pub struct EmbeddedFollowUps {
    pub(super) store: Store,
    /// Notified when an append with follow-up records was committed.
    pub(super) added: Arc<Notify>,
}

/// The record of one event, if it is among the newest `limit` records. A negative limit searches all records.
pub(super) fn find(
    connection: &Connection,
    subject: &SubjectName,
    id: StreamId,
    limit: i64,
) -> Result<Option<FollowUp>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT record FROM follow_ups ORDER BY id DESC LIMIT ?1")?;
    let mut rows = statement.query([limit])?;
    while let Some(row) = rows.next()? {
        let found = FollowUp::decode_if_of(subject, id, row.get_ref(0)?.as_bytes()?);
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

impl FollowUps for EmbeddedFollowUps {
    fn take<'a>(
        &'a self,
        limit: usize,
        excluded: &'a [PendingFollowUp],
    ) -> LogFuture<'a, Vec<PendingFollowUp>> {
        Box::pin(async move {
            let sql_limit = to_sql(limit.saturating_add(excluded.len()) as u64);
            let reading = self.store.readers().read(move |connection| {
                let mut statement =
                    connection.prepare_cached("SELECT id, record FROM follow_ups ORDER BY id LIMIT ?1")?;
                let rows = statement.query_map(params![sql_limit], |row| {
                    let record = row.get_ref(1)?.as_bytes()?.to_owned();
                    Ok(PendingFollowUp { key: row.get::<_, i64>(0)?.to_string(), record })
                })?;
                rows.collect::<Result<Vec<_>, _>>()
            });
            let mut pending = reading.await?;
            pending.retain(|record| !excluded.iter().any(|other| other.key == record.key));
            pending.truncate(limit);
            Ok(pending)
        })
    }

    fn acknowledge(&self, pending: Vec<PendingFollowUp>) -> LogFuture<'_, ()> {
        Box::pin(async move {
            let ids: Vec<i64> = pending.iter().filter_map(|pending| pending.key.parse().ok()).collect();
            let deleting = self.store.write(move |connection| {
                let mut statement = connection.prepare_cached("DELETE FROM follow_ups WHERE id = ?1")?;
                for id in &ids {
                    statement.execute([id])?;
                }
                Ok(())
            });
            Ok(deleting.await?)
        })
    }

    fn find(&self, subject: &SubjectName, id: StreamId) -> LogFuture<'_, Option<FollowUp>> {
        let subject = subject.clone();
        Box::pin(async move {
            let search =
                move |connection: &mut Connection| find(connection, &subject, id, MAX_SEARCHED_RECORDS);
            Ok(self.store.readers().read(search).await?)
        })
    }

    fn watch(&self) -> BoxFuture<'_, FollowUpWatch> {
        Box::pin(std::future::ready(FollowUpWatch { added: self.added.clone(), on_drop: Box::new(|| {}) }))
    }
}
