//! What was written down for people, in the embedded file.

use std::sync::Arc;

use bongsu_kernel::StreamId;
use bongsu_sql::Store;
use bongsu_sql::rusqlite::{Connection, Error, params};
use tokio::sync::Notify;

use super::signed;
use crate::SubjectName;
use crate::log::{Boxed, FollowUp, FollowUps, LogError, Pending, Watch};

/// So many of the newest are looked at for one event: records of all rooms are in one row, and no index names their events.
const LOOKED_AT: i64 = 512;

/// See the port.
pub struct EmbeddedFollowUps {
    pub(super) store: Store,
    /// Raised by appends, once they are durable.
    pub(super) news: Arc<Notify>,
}

/// The record of one event, if it is among so many of the newest; of all, when that is negative.
pub(super) fn find(
    connection: &Connection,
    subject: &SubjectName,
    id: StreamId,
    newest: i64,
) -> Result<Option<FollowUp>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT record FROM follow_ups ORDER BY id DESC LIMIT ?1")?;
    let mut rows = statement.query([newest])?;
    while let Some(row) = rows.next()? {
        let found = FollowUp::of(subject, id, row.get_ref(0)?.as_bytes()?);
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

impl FollowUps for EmbeddedFollowUps {
    fn take<'a>(&'a self, most: usize, but: &'a [Pending]) -> Boxed<'a, Result<Vec<Pending>, LogError>> {
        Box::pin(async move {
            let limit = signed(most.saturating_add(but.len()) as u64);
            let taken = self.store.readers().read(move |connection| {
                let mut statement =
                    connection.prepare_cached("SELECT id, record FROM follow_ups ORDER BY id LIMIT ?1")?;
                let rows = statement.query_map(params![limit], |row| {
                    let record = row.get_ref(1)?.as_bytes()?.to_owned();
                    Ok(Pending { key: row.get::<_, i64>(0)?.to_string(), record })
                })?;
                rows.collect::<Result<Vec<_>, _>>()
            });
            let mut taken = taken.await?;
            taken.retain(|one| !but.iter().any(|other| other.key == one.key));
            taken.truncate(most);
            Ok(taken)
        })
    }

    fn done(&self, pending: Vec<Pending>) -> Boxed<'_, Result<(), LogError>> {
        Box::pin(async move {
            let ids: Vec<i64> = pending.iter().filter_map(|pending| pending.key.parse().ok()).collect();
            let forgotten = self.store.write(move |connection| {
                let mut statement = connection.prepare_cached("DELETE FROM follow_ups WHERE id = ?1")?;
                for id in &ids {
                    statement.execute([id])?;
                }
                Ok(())
            });
            Ok(forgotten.await?)
        })
    }

    fn find(&self, subject: &SubjectName, id: StreamId) -> Boxed<'_, Result<Option<FollowUp>, LogError>> {
        let subject = subject.clone();
        Box::pin(async move {
            let found =
                self.store.readers().read(move |connection| find(connection, &subject, id, LOOKED_AT));
            Ok(found.await?)
        })
    }

    fn watch(&self) -> Boxed<'_, Watch> {
        Box::pin(std::future::ready(Watch { news: self.news.clone(), on_drop: Box::new(|| {}) }))
    }
}
