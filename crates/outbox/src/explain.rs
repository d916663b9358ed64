//! Reports on one row for `bongsu explain`: its position, its status for workers, and why it was given up.
//!
//! The report reads the database only, so that an operator can run it while the hub is stopped.

use bongsu_kernel::trace::TraceParent;
use bongsu_sql::{Records, Result, Transaction};

use crate::{OutboxRow, store};

/// A row with its state.
#[derive(Clone, Debug)]
pub struct ExplainedRow {
    pub row: OutboxRow,
    pub status: String,
    pub attempts: u64,
    /// Why the row was given up. None when the row was not given up, or when another program gave it up.
    pub reason: Option<String>,
}

impl ExplainedRow {
    /// The position of the row. None until the sequencer has given one: before that, no stream receives the row.
    pub fn position(&self) -> Option<u64> {
        Some(self.row.position).filter(|position| *position > 0)
    }
}

/// Reads one row. None when there is no such row, or when retention has removed it.
pub async fn explain(records: &Records, id: i64) -> Result<Option<ExplainedRow>> {
    records.read(id, read_row).await
}

async fn read_row(id: &i64, tx: &mut Transaction<'_>) -> Result<Option<ExplainedRow>> {
    let Some(found) = tx.row(&store::EXPLAIN, &[("id", (*id).into())]).await? else { return Ok(None) };
    let trace = found.maybe_text(9)?.and_then(TraceParent::parse);
    Ok(Some(ExplainedRow {
        row: OutboxRow { trace, ..OutboxRow::read(&found)? },
        status: found.maybe_text(6)?.unwrap_or_default().to_owned(),
        attempts: u64::try_from(found.maybe_int(7)?.unwrap_or_default()).unwrap_or_default(),
        reason: found.maybe_text(8)?.map(str::to_owned),
    }))
}
