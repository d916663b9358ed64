//! What became of one row: whether it has its position, what was done about it, and why it was given up.
//!
//! Needs the records and nothing else, so that an operator can ask while the hub runs and while it does not.

use bongsu_kernel::trace::TraceParent;
use bongsu_sql::{Error, Records, Transaction};

use crate::{Row, store};

#[derive(Clone, Debug)]
pub struct ExplainedRow {
    pub row: Row,
    pub status: String,
    pub attempts: u64,
    /// Why it was given up; None when it was not, or another program did.
    pub reason: Option<String>,
}

impl ExplainedRow {
    /// None until the sequencer has seen it: no stream has it before.
    pub fn position(&self) -> Option<u64> {
        Some(self.row.position).filter(|position| *position > 0)
    }
}

/// None when there is no such row, or it was removed for its age.
pub async fn explain(records: &Records, id: i64) -> Result<Option<ExplainedRow>, Error> {
    records.read(id, look).await
}

async fn look(id: &i64, tx: &mut Transaction<'_>) -> Result<Option<ExplainedRow>, Error> {
    let Some(found) = tx.row(&store::EXPLAIN, &[("id", (*id).into())]).await? else { return Ok(None) };
    let trace = found.maybe_text(9)?.and_then(TraceParent::parse);
    Ok(Some(ExplainedRow {
        row: Row { trace, ..Row::read(&found)? },
        status: found.maybe_text(6)?.unwrap_or_default().to_owned(),
        attempts: u64::try_from(found.maybe_int(7)?.unwrap_or_default()).unwrap_or_default(),
        reason: found.maybe_text(8)?.map(str::to_owned),
    }))
}
