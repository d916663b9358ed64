//! Retention: removes rows that are old enough and that no worker has to process any more.
//!
//! The age of a row counts from the time when the row got its position, because streams received the row then. The time
//! that a program wrote into the row does not count. The last removed row of each target is remembered in
//! `bongsu_outbox_gone`, so that the hub can tell a resuming client whether rows are missing.

use std::collections::BTreeMap;
use std::time::Duration;

use bongsu_kernel::Millis;
use bongsu_sql::{Result, Transaction};

use crate::store::{self, list};
use crate::worker::millis;
use crate::{Outbox, RetainUntilDone};

/// Time between two runs.
const RUN_INTERVAL: Duration = Duration::from_secs(60);
/// Rows removed in one transaction.
const BATCH_SIZE: usize = 200;
/// Time between two transactions, in which other writers can take the locks.
const BATCH_INTERVAL: Duration = Duration::from_millis(20);
/// The shortest retention: a client that reconnects within this time misses no row.
pub const MIN_RETENTION: Duration = Duration::from_secs(30 * 60);

impl Outbox {
    /// Removes expired rows until the future is dropped: a loop that one instance of the fleet runs. Two loops at once
    /// do no harm: a row is removed once, and the remembered position of a target only grows.
    pub async fn run_retention(self) {
        let mut is_reported = false;
        loop {
            match self.remove_expired().await {
                Ok(0) => {}
                Ok(rows) => tracing::debug!(rows, "removed expired outbox rows"),
                Err(error) => {
                    tracing::warn!(%error, "failed to remove expired outbox rows; retrying in the next run");
                }
            }
            let before = self.0.clock.now().saturating_sub(self.retention());
            match self.records().read(before, count_overdue).await {
                Ok(rows) => {
                    metrics::gauge!("outbox_overdue_rows").set(rows as f64);
                    if rows > 0 && !is_reported {
                        tracing::warn!(
                            rows,
                            "outbox rows past their retention wait for a worker; keeping them (see OUTBOX_WAITS_FOR)"
                        );
                    }
                    is_reported = rows > 0;
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to count overdue outbox rows; retrying in the next run");
                }
            }
            tokio::time::sleep(RUN_INTERVAL).await;
        }
    }

    fn retention(&self) -> Millis {
        millis(self.0.options.retention.max(MIN_RETENTION))
    }

    /// Removes the rows that are expired now, and returns their number.
    pub async fn remove_expired(&self) -> Result<u64> {
        let now = self.0.clock.now();
        let up_to = self.records().write((now, now.saturating_sub(self.retention())), record_time).await?;
        let (mut after, mut removed) = (0, 0);
        loop {
            let range =
                ExpiredRange { after, up_to, retain_until_done: self.0.options.retain_until_done.clone() };
            let batch = self.records().write(range, remove_batch).await?;
            removed += batch.removed;
            metrics::counter!("outbox_removed_total").increment(batch.removed);
            match batch.last {
                Some(last) => after = last,
                None => return Ok(removed),
            }
            tokio::time::sleep(BATCH_INTERVAL).await;
        }
    }
}

/// Counts rows, at most 1,000, that got their positions before a time and still wait for a worker.
async fn count_overdue(before: &Millis, tx: &mut Transaction<'_>) -> Result<u64> {
    let up_to = position_at(*before, tx).await?;
    let counted = tx.row(&store::OVERDUE_COUNT, &[("up_to", up_to.into())]).await?;
    counted.map_or(Ok(0), |row| row.count(0))
}

/// The last position that is recorded with this time or an earlier one; 0 without such a record.
pub(crate) async fn position_at(time: Millis, tx: &mut Transaction<'_>) -> Result<u64> {
    let found = tx.row(&store::TIMES_BEFORE, &[("before", time.into())]).await?;
    Ok(found.map(|row| row.maybe_count(0)).transpose()?.flatten().unwrap_or_default())
}

/// Records the head with the current time, removes records that are no longer needed, and returns the last
/// position that is recorded with the time `before` or an earlier one.
async fn record_time((now, before): &(Millis, Millis), tx: &mut Transaction<'_>) -> Result<u64> {
    tx.run(&store::TIMES_ADD, &[("now", (*now).into())]).await?;
    let up_to = position_at(*before, tx).await?;
    tx.run(&store::TIMES_REMOVE, &[("position", up_to.into())]).await?;
    Ok(up_to)
}

/// The positions whose rows are old enough to be removed.
struct ExpiredRange {
    after: u64,
    up_to: u64,
    retain_until_done: RetainUntilDone,
}

struct RemovedBatch {
    removed: u64,
    /// The position of the last row, after which more expired rows may follow. None when the range is finished.
    last: Option<u64>,
}

async fn remove_batch(range: &ExpiredRange, tx: &mut Transaction<'_>) -> Result<RemovedBatch> {
    let (every, kinds): (i64, &[String]) = match &range.retain_until_done {
        RetainUntilDone::All => (1, &[]),
        RetainUntilDone::Types(kinds) => (0, kinds),
    };
    let arguments = [
        ("after", range.after.into()),
        ("up_to", range.up_to.into()),
        ("every", every.into()),
        ("kinds", list(kinds)?.into()),
        ("most", BATCH_SIZE.into()),
    ];
    let rows = tx.rows(&store::EXPIRED, &arguments).await?;
    let (mut ids, mut last_rows, mut last) = (Vec::new(), BTreeMap::new(), None);
    for row in &rows {
        let (id, target, position) = (row.int(0)?, row.text(1)?, row.count(2)?);
        ids.push(id);
        // Rows come in the order of positions, so the last row of each target stays in the map.
        last_rows.insert(target, (position, id));
        last = Some(position);
    }
    if ids.is_empty() {
        return Ok(RemovedBatch { removed: 0, last: None });
    }
    let last_rows: Vec<(&str, u64, i64)> =
        last_rows.iter().map(|(target, (position, id))| (*target, *position, *id)).collect();
    tx.run(&store::GONE_PUT, &[("gone", list(&last_rows)?.into())]).await?;
    let ids = list(&ids)?;
    let removed = tx.run(&store::EXPIRED_REMOVE, &[("ids", ids.clone().into())]).await?;
    tx.run(&store::FAILURE_REMOVE, &[("ids", ids.clone().into())]).await?;
    tx.run(&store::REDRIVEN_REMOVE, &[("ids", ids.into())]).await?;
    Ok(RemovedBatch { removed, last: last.filter(|_| rows.len() == BATCH_SIZE) })
}
