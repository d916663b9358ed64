//! The sequencer: gives committed rows their positions, and misses none of them.
//!
//! A pass locks the counter (`bongsu_outbox_head`), selects the visible rows without a position in the order of their
//! ids, and gives them the next positions. A row that another transaction has not committed yet is not visible: a
//! later pass takes it, and no other row waits for it. Two sequencers at once wait for each other at the counter. A
//! row that cannot be sent gets a position, too, and is marked FAILED.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bongsu_sql::{Dialect, Error, Records, Result, Transaction};

use crate::retries::Retries;
use crate::row::Fault;
use crate::store::{self, list};
use crate::{Outbox, OutboxRow};

/// Rows that get their positions in one transaction.
const BATCH_SIZE: usize = 500;
/// Maximum number of selections in one transaction, each without the targets that were found to have a locked
/// row.
const MAX_SELECT_ROUNDS: usize = 8;
/// Time between two passes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two passes on the embedded file after `IDLE_AFTER` without rows: on most hubs no program writes rows.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(100);
const IDLE_AFTER: Duration = Duration::from_secs(10);

impl Outbox {
    /// Gives positions until the future is dropped: a loop that one instance of the fleet runs. Two loops at once do no
    /// harm, because the lock on the counter serialises their transactions.
    pub async fn run_sequencer(self) {
        let (records, mut last_rows_at) = (self.records().reserved_pool(), Instant::now());
        let mut retries = Retries::new(&self.0.sequencer_health);
        loop {
            let pause = match sequence_batch(&records).await {
                Ok(0) if records.dialect() == Dialect::Sqlite && last_rows_at.elapsed() > IDLE_AFTER => {
                    IDLE_POLL_INTERVAL
                }
                Ok(0) => POLL_INTERVAL,
                Ok(_) => {
                    last_rows_at = Instant::now();
                    self.0.rows_sequenced.notify_one();
                    Duration::ZERO
                }
                Err(error) => {
                    retries.record_failure(&error).await;
                    continue;
                }
            };
            retries.record_success();
            tokio::time::sleep(pause).await;
        }
    }
}

/// Runs one pass. Returns how many rows got a position; above 0, more rows may be without one.
pub async fn sequence_batch(records: &Records) -> Result<usize> {
    // This query takes no lock, so that an outbox without new rows costs none.
    if !records.read((), is_unsequenced).await? {
        return Ok(0);
    }
    let SequencedRows { count, faults } = records.write((), assign_positions).await?;
    metrics::counter!("outbox_sequenced_total").increment(count as u64);
    for (id, fault) in faults {
        metrics::counter!("outbox_unusable_total", "reason" => fault.label()).increment(1);
        tracing::warn!(id, reason = fault.reason(), "an outbox row cannot be sent; marked it FAILED");
    }
    Ok(count)
}

async fn is_unsequenced((): &(), tx: &mut Transaction<'_>) -> Result<bool> {
    Ok(tx.row(&store::IS_UNSEQUENCED, &[]).await?.is_some())
}

/// The rows that one pass gave positions.
struct SequencedRows {
    count: usize,
    /// The ids of rows that cannot be sent, with the reason.
    faults: Vec<(i64, Fault)>,
}

async fn assign_positions((): &(), tx: &mut Transaction<'_>) -> Result<SequencedRows> {
    let counter = tx.row(&store::HEAD_LOCK, &[]).await?;
    let head = counter.ok_or_else(|| Error::Failed("bongsu_outbox_head is empty".to_owned()))?.int(0)?;
    tx.run(&store::POSITION_RESET, &[("head", head.into())]).await?;
    // From here on every query sees all rows that were committed before this transaction locked the counter.
    let rows = lock_unsequenced(tx).await?;
    if rows.is_empty() {
        return Ok(SequencedRows { count: 0, faults: Vec::new() });
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let updated = tx.run(&store::SEQUENCE, &[("after", head.into()), ("ids", list(&ids)?.into())]).await?;
    let count = i64::try_from(ids.len()).unwrap_or(i64::MAX);
    if updated != ids.len() as u64 {
        // An error, because every later pass would select the same rows again.
        let text = format!(
            "only {updated} of {count} outbox rows could be given a position: check the triggers of the outbox table"
        );
        return Err(Error::Failed(text));
    }
    tx.run(&store::HEAD_MOVE, &[("position", head.saturating_add(count).into())]).await?;
    let faults: Vec<(i64, Fault)> = rows.iter().filter_map(|row| Some((row.id, row.fault()?))).collect();
    if !faults.is_empty() {
        mark_failed(&faults, tx).await?;
    }
    Ok(SequencedRows { count: ids.len(), faults })
}

async fn mark_failed(faults: &[(i64, Fault)], tx: &mut Transaction<'_>) -> Result<()> {
    let ids: Vec<i64> = faults.iter().map(|(id, _)| *id).collect();
    tx.run(&store::FAULT_MARK, &[("ids", list(&ids)?.into())]).await?;
    let reasons: Vec<(i64, &str)> = faults.iter().map(|(id, fault)| (*id, fault.reason())).collect();
    tx.run(&store::FAILURE_PUT, &[("failures", list(&reasons)?.into())]).await.map(drop)
}

/// Selects and locks the next rows without a position, smallest ids first. A row that another transaction has locked is
/// left for a later pass, so that no other target waits for it. The later rows of its target are left, too, which keeps
/// the order of the target.
async fn lock_unsequenced(tx: &mut Transaction<'_>) -> Result<Vec<OutboxRow>> {
    // Targets with a row that another transaction has locked.
    let mut held: Vec<String> = Vec::new();
    let mut selected = Vec::new();
    for _ in 0..MAX_SELECT_ROUNDS {
        let held_before = held.len();
        selected.clear();
        let arguments = [("held", list(&held)?.into()), ("most", BATCH_SIZE.into())];
        let rows = tx.rows(&store::UNSEQUENCED, &arguments).await?;
        let rows = rows.iter().map(|row| Ok((row.int(0)?, row.text(1)?))).collect::<Result<Vec<_>>>()?;
        let ids: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
        if ids.is_empty() {
            break;
        }
        let locked = tx.rows(&store::UNSEQUENCED_LOCK, &[("ids", list(&ids)?.into())]).await?;
        let mut locked = locked.iter().map(read_unsequenced).collect::<Result<HashMap<_, _>, _>>()?;
        for (id, target) in &rows {
            if held.iter().any(|held| held == target) {
                continue;
            }
            match locked.remove(id) {
                Some(row) => selected.push(OutboxRow { target: (*target).to_owned(), ..row }),
                None => held.push((*target).to_owned()),
            }
        }
        // The rows of held targets may have filled the batch, so the next round selects without these targets.
        if rows.len() < BATCH_SIZE || held.len() == held_before {
            break;
        }
    }
    Ok(selected)
}

/// Reads a row that has no position yet; the fields that the fault check does not need are empty.
fn read_unsequenced(row: &bongsu_sql::Row) -> Result<(i64, OutboxRow)> {
    let id = row.int(0)?;
    let event_type = row.maybe_text(1)?.unwrap_or_default().to_owned();
    let payload = row.maybe_text(2)?.map(str::to_owned);
    let row =
        OutboxRow { position: 0, id, target: String::new(), event_type, payload, created_at: 0, trace: None };
    Ok((id, row))
}
