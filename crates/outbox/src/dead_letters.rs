//! The dead letters of the outbox: rows that were given up, with the reason, until an operator redrives or deletes
//! them.

use bongsu_kernel::Millis;
use bongsu_part::{BoxFuture, DeadLetter, DeadLetters};
use bongsu_sql::{Result, Transaction};

use crate::store::{self, PART, list};
use crate::{Outbox, OutboxRow};

impl DeadLetters for Outbox {
    fn name(&self) -> &'static str {
        PART
    }

    fn depth(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.records().count(&store::FAILED_COUNT))
    }

    fn list_after(&self, id: i64, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>> {
        Box::pin(async move {
            let page = PageRequest { after: id, up_to: i64::MAX, limit };
            let rows = self.records().read(page, read_page).await?;
            Ok(rows.into_iter().map(DeadLetter::from).collect())
        })
    }

    /// Skips rows that still cannot be sent, such as a row with an invalid type.
    fn redrive(&self, ids: Vec<i64>) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let mut sendable = Vec::with_capacity(ids.len());
            for id in ids {
                let page = PageRequest { after: id.saturating_sub(1), up_to: id, limit: 1 };
                let rows = self.records().read(page, read_page).await?;
                let rows = rows.iter().map(|failed| &failed.row);
                sendable.extend(rows.filter(|row| row.fault().is_none()).map(|row| row.id));
            }
            if sendable.is_empty() {
                return Ok(0);
            }
            let redriven = self.records().write((sendable.clone(), self.0.clock.now()), redrive).await?;
            tracing::info!(ids = ?sendable, redriven, "redrove dead letters of the outbox");
            self.0.rows_arrived.notify_one();
            Ok(redriven)
        })
    }

    /// Marks the row as done, so that streams can still read it until retention removes it.
    fn discard(&self, id: i64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let is_discarded = self.records().write(id, discard).await?;
            tracing::info!(id, is_discarded, "finished discarding a dead letter of the outbox");
            Ok(is_discarded)
        })
    }
}

/// A row that was given up.
struct FailedRow {
    row: OutboxRow,
    attempts: u64,
    /// Empty when another program gave the row up.
    reason: String,
}

impl From<FailedRow> for DeadLetter {
    fn from(FailedRow { row, attempts, reason }: FailedRow) -> Self {
        let OutboxRow { id, target, event_type, payload, created_at, .. } = row;
        Self { id, key: target, kind: event_type, payload, attempts, reason, created_at }
    }
}

/// A page of the rows that were given up: those with ids above `after`, up to and including `up_to`.
struct PageRequest {
    after: i64,
    up_to: i64,
    limit: usize,
}

async fn read_page(page: &PageRequest, tx: &mut Transaction<'_>) -> Result<Vec<FailedRow>> {
    let PageRequest { after, up_to, limit } = *page;
    let arguments = [("after", after.into()), ("up_to", up_to.into()), ("most", limit.into())];
    let rows = tx.rows(&store::FAILED, &arguments).await?;
    let failed_row = |row: &bongsu_sql::Row| {
        let attempts = u64::try_from(row.int(6)?).unwrap_or_default();
        Ok(FailedRow { row: OutboxRow::read(row)?, attempts, reason: row.text(7)?.to_owned() })
    };
    rows.iter().map(failed_row).collect()
}

/// Makes rows available to workers again, outside the order of their targets.
async fn redrive((ids, now): &(Vec<i64>, Millis), tx: &mut Transaction<'_>) -> Result<u64> {
    let ids = list(ids)?;
    let redriven = tx.run(&store::REDRIVE, &[("ids", ids.clone().into()), ("now", (*now).into())]).await?;
    tx.run(&store::FAILURE_REMOVE, &[("ids", ids.clone().into())]).await?;
    tx.run(&store::REDRIVEN_PUT, &[("ids", ids.into())]).await?;
    Ok(redriven)
}

async fn discard(id: &i64, tx: &mut Transaction<'_>) -> Result<bool> {
    let changed = tx.run(&store::FAILED_DROP, &[("id", (*id).into())]).await?;
    tx.run(&store::FAILURE_REMOVE, &[("ids", list(&[*id])?.into())]).await?;
    Ok(changed > 0)
}
