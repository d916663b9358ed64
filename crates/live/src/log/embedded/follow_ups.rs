//! What was written down for people, in the embedded file.

use bongsu_sql::Store;
use bongsu_sql::rusqlite::params;

use crate::log::{Boxed, FollowUps, LogError, Pending};

/// See the port.
pub struct EmbeddedFollowUps(pub Store);

impl FollowUps for EmbeddedFollowUps {
    fn take(&self, most: usize) -> Boxed<'_, Result<Vec<Pending>, LogError>> {
        Box::pin(async move {
            let taken = self.0.readers().read(move |connection| {
                let mut statement =
                    connection.prepare_cached("SELECT id, record FROM follow_ups ORDER BY id LIMIT ?1")?;
                let rows = statement.query_map(params![i64::try_from(most).unwrap_or(i64::MAX)], |row| {
                    Ok(Pending { key: row.get::<_, i64>(0)?.to_string(), record: row.get(1)? })
                })?;
                rows.collect::<Result<Vec<_>, _>>()
            });
            taken.await.map_err(LogError::from)
        })
    }

    fn done(&self, pending: Vec<Pending>) -> Boxed<'_, Result<(), LogError>> {
        Box::pin(async move {
            let ids: Vec<i64> = pending.iter().filter_map(|pending| pending.key.parse().ok()).collect();
            let forgotten = self.0.write(move |connection| {
                let mut statement = connection.prepare_cached("DELETE FROM follow_ups WHERE id = ?1")?;
                for id in &ids {
                    statement.execute([id])?;
                }
                Ok(())
            });
            forgotten.await.map_err(LogError::from)
        })
    }
}
