//! Giving positions: "not sequenced yet" is a state of a row, so that none can be missed.
//!
//! A pass holds the counter, takes rows that can be seen in the order of their ids, and gives them the next positions. What
//! another transaction has not committed is not seen and waits for a later pass; nobody waits for it. Two who do this at
//! once take turns at the counter. A row that nobody can be told of keeps its place, and is marked FAILED with it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bongsu_sql::{Dialect, Error, Records, Transaction};

use crate::retries::Retries;
use crate::row::Fault;
use crate::store::{self, list};
use crate::{Outbox, Row};

/// So many rows get their positions in one transaction.
const MOST: usize = 500;
/// So often a transaction looks for rows behind those that somebody holds.
const ROUNDS: usize = 8;
/// New rows are looked for so often; on the embedded file more seldom when there were none for a while: most hubs have
/// nobody who writes any.
const PAUSE: Duration = Duration::from_millis(20);
const SELDOM: Duration = Duration::from_millis(100);
const A_WHILE: Duration = Duration::from_secs(10);

impl Outbox {
    /// Gives positions until it is dropped: a loop that one hub of the fleet runs. Two at once do no harm: the row lock on
    /// the counter serialises their transactions.
    pub async fn sequence(self) {
        let (records, mut last) = (self.records().own_lane(), Instant::now());
        let mut retries = Retries::of(&self.0.sequencer);
        loop {
            let pause = match sequence_some(&records).await {
                Ok(0) if records.dialect() == Dialect::Sqlite && last.elapsed() > A_WHILE => SELDOM,
                Ok(0) => PAUSE,
                Ok(_) => {
                    last = Instant::now();
                    self.0.sequenced.notify_one();
                    Duration::ZERO
                }
                Err(error) => {
                    retries.failed(&error).await;
                    continue;
                }
            };
            retries.worked();
            tokio::time::sleep(pause).await;
        }
    }
}

/// One pass. Says how many rows got a position; as long as it is not zero there may be more.
pub async fn sequence_some(records: &Records) -> Result<usize, Error> {
    // Only looking, so that a quiet outbox costs nobody a lock.
    if !records.read((), is_unsequenced).await? {
        return Ok(0);
    }
    let Given { rows, faults } = records.write((), give).await?;
    metrics::counter!("outbox_sequenced_total").increment(rows as u64);
    for (id, fault) in faults {
        metrics::counter!("outbox_unusable_total", "reason" => fault.label()).increment(1);
        tracing::warn!(id, reason = fault.reason(), "nobody can be told of a row of the outbox");
    }
    Ok(rows)
}

async fn is_unsequenced((): &(), tx: &mut Transaction<'_>) -> Result<bool, Error> {
    Ok(tx.row(&store::IS_UNSEQUENCED, &[]).await?.is_some())
}

/// What a pass did.
struct Given {
    rows: usize,
    faults: Vec<(i64, Fault)>,
}

async fn give((): &(), tx: &mut Transaction<'_>) -> Result<Given, Error> {
    let held = tx.row(&store::HEAD_HOLD, &[]).await?;
    let head = held.ok_or_else(|| Error::Failed("bongsu_outbox_head is empty".to_owned()))?.int(0)?;
    tx.run(&store::UNPLACE, &[("head", head.into())]).await?;
    // From here on every question sees what was committed before the counter was ours.
    let rows = free(tx).await?;
    if rows.is_empty() {
        return Ok(Given { rows: 0, faults: Vec::new() });
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let given = tx.run(&store::SEQUENCE, &[("after", head.into()), ("ids", list(&ids)?.into())]).await?;
    let count = i64::try_from(ids.len()).unwrap_or(i64::MAX);
    if given != ids.len() as u64 {
        // Another pass would only do the same.
        let why = format!(
            "{given} of {count} rows of the outbox took a position: look at the triggers of its table"
        );
        return Err(Error::Failed(why));
    }
    tx.run(&store::HEAD_MOVE, &[("position", head.saturating_add(count).into())]).await?;
    let faults: Vec<(i64, Fault)> = rows.iter().filter_map(|row| Some((row.id, row.fault()?))).collect();
    if !faults.is_empty() {
        give_up(&faults, tx).await?;
    }
    Ok(Given { rows: ids.len(), faults })
}

async fn give_up(faults: &[(i64, Fault)], tx: &mut Transaction<'_>) -> Result<(), Error> {
    let ids: Vec<i64> = faults.iter().map(|(id, _)| *id).collect();
    tx.run(&store::FAULT_MARK, &[("ids", list(&ids)?.into())]).await?;
    let reasons: Vec<(i64, &str)> = faults.iter().map(|(id, fault)| (*id, fault.reason())).collect();
    tx.run(&store::FAILURE_PUT, &[("failures", list(&reasons)?.into())]).await.map(drop)
}

/// The next rows, oldest ids first. A row that somebody holds would have everybody wait, so it is left for later, and with
/// it those of its target that come after it: the order of a target is kept, and others go on.
async fn free(tx: &mut Transaction<'_>) -> Result<Vec<Row>, Error> {
    let mut held: Vec<String> = Vec::new();
    let mut taken = Vec::new();
    for _ in 0..ROUNDS {
        let known = held.len();
        taken.clear();
        let wanted = [("held", list(&held)?.into()), ("most", MOST.into())];
        let rows = tx.rows(&store::UNSEQUENCED, &wanted).await?;
        let rows =
            rows.iter().map(|row| Ok((row.int(0)?, row.text(1)?))).collect::<Result<Vec<_>, Error>>()?;
        let ids: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
        if ids.is_empty() {
            break;
        }
        let free = tx.rows(&store::UNSEQUENCED_HOLD, &[("ids", list(&ids)?.into())]).await?;
        let mut free = free.iter().map(unplaced).collect::<Result<HashMap<_, _>, _>>()?;
        for (id, target) in &rows {
            if held.iter().any(|held| held == target) {
                continue;
            }
            match free.remove(id) {
                Some(row) => taken.push(Row { target: (*target).to_owned(), ..row }),
                None => held.push((*target).to_owned()),
            }
        }
        // What is held may have taken the place of many others, which are asked for again without it.
        if rows.len() < MOST || held.len() == known {
            break;
        }
    }
    Ok(taken)
}

/// A row that has no position yet, and so is in no order.
fn unplaced(row: &bongsu_sql::Row) -> Result<(i64, Row), Error> {
    let id = row.int(0)?;
    let event_type = row.maybe_text(1)?.unwrap_or_default().to_owned();
    let payload = row.maybe_text(2)?.map(str::to_owned);
    Ok((id, Row { position: 0, id, target: String::new(), event_type, payload, created_at: 0, trace: None }))
}
