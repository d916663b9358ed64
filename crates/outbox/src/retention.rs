//! Forgetting: rows that streams have had for long enough and that nobody has to do anything about any more.
//!
//! A row's age counts from when it got its position: that is when streams had it, whatever time its program wrote into it
//! and however long its transaction was. The last row of a target that goes is remembered, so that who comes back is told
//! exactly when something is missing.

use std::collections::BTreeMap;
use std::time::Duration;

use bongsu_kernel::Millis;
use bongsu_sql::{Error, Transaction};

use crate::store::{self, list};
use crate::worker::millis;
use crate::{Outbox, Waited};

/// What is due is looked for so often.
const TURN: Duration = Duration::from_secs(60);
/// So many rows go in one transaction, and then others have their turn.
const MOST: usize = 200;
const PAUSE: Duration = Duration::from_millis(20);
/// Whoever comes back within this time finds everything.
pub const RECONNECT: Duration = Duration::from_secs(30 * 60);

impl Outbox {
    /// Forgets what is too old until it is dropped: a loop that one hub of the fleet runs. Two at once do no harm: a row is
    /// removed once, and the remembered position of a target only grows.
    pub async fn forget(self) {
        let mut told = false;
        loop {
            match self.forget_old().await {
                Ok(0) => {}
                Ok(rows) => tracing::debug!(rows, "old rows of the outbox were removed"),
                Err(error) => tracing::warn!(%error, "old rows of the outbox could not be removed yet"),
            }
            match self.records().read(self.0.clock.now().saturating_sub(self.keeps()), waiting).await {
                Ok(rows) => {
                    metrics::gauge!("outbox_overdue_rows").set(rows as f64);
                    if rows > 0 && !told {
                        tracing::warn!(
                            rows,
                            "rows of the outbox are old enough to go and wait for a worker: see OUTBOX_WAITS_FOR"
                        );
                    }
                    told = rows > 0;
                }
                Err(error) => tracing::debug!(%error, "the outbox is away"),
            }
            tokio::time::sleep(TURN).await;
        }
    }

    fn keeps(&self) -> Millis {
        millis(self.0.options.keeps.max(RECONNECT))
    }

    /// Removes what is too old by now, and says how many rows that were.
    pub async fn forget_old(&self) -> Result<u64, Error> {
        let now = self.0.clock.now();
        let up_to = self.records().write((now, now.saturating_sub(self.keeps())), note_time).await?;
        let (mut after, mut gone) = (0, 0);
        loop {
            let due = Due { after, up_to, waited: self.0.options.waited.clone() };
            let step = self.records().write(due, remove_some).await?;
            gone += step.gone;
            metrics::counter!("outbox_removed_total").increment(step.gone);
            match step.last {
                Some(last) => after = last,
                None => return Ok(gone),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// How many rows, of a thousand at most, had their positions before a time and wait for somebody.
async fn waiting(before: &Millis, tx: &mut Transaction<'_>) -> Result<u64, Error> {
    let up_to = position_at(*before, tx).await?;
    let counted = tx.row(&store::WAITING_OLD, &[("up_to", up_to.into())]).await?;
    counted.map_or(Ok(0), |row| row.count(0))
}

/// The last position that had been given at a time.
pub(crate) async fn position_at(time: Millis, tx: &mut Transaction<'_>) -> Result<u64, Error> {
    let found = tx.row(&store::TIMES_BEFORE, &[("before", time.into())]).await?;
    Ok(found.map(|row| row.maybe_count(0)).transpose()?.flatten().unwrap_or_default())
}

/// Notes where the order stands now, and gives the last position that had been given at the other time.
async fn note_time((now, before): &(Millis, Millis), tx: &mut Transaction<'_>) -> Result<u64, Error> {
    tx.run(&store::TIMES_ADD, &[("now", (*now).into())]).await?;
    let up_to = position_at(*before, tx).await?;
    tx.run(&store::TIMES_REMOVE, &[("position", up_to.into())]).await?;
    Ok(up_to)
}

struct Due {
    after: u64,
    up_to: u64,
    waited: Waited,
}

struct Step {
    gone: u64,
    /// Where to go on, if there may be more.
    last: Option<u64>,
}

async fn remove_some(due: &Due, tx: &mut Transaction<'_>) -> Result<Step, Error> {
    let (every, kinds): (i64, &[String]) = match &due.waited {
        Waited::Every => (1, &[]),
        Waited::Of(kinds) => (0, kinds),
    };
    let wanted = [
        ("after", due.after.into()),
        ("up_to", due.up_to.into()),
        ("every", every.into()),
        ("kinds", list(kinds)?.into()),
        ("most", MOST.into()),
    ];
    let rows = tx.rows(&store::OLD, &wanted).await?;
    let (mut ids, mut gone, mut last) = (Vec::new(), BTreeMap::new(), None);
    for row in &rows {
        let (id, target, position) = (row.int(0)?, row.text(1)?, row.count(2)?);
        ids.push(id);
        // In the order of positions: the last of a target stays.
        gone.insert(target, (position, id));
        last = Some(position);
    }
    if ids.is_empty() {
        return Ok(Step { gone: 0, last: None });
    }
    let gone: Vec<(&str, u64, i64)> = gone.iter().map(|(target, (at, id))| (*target, *at, *id)).collect();
    tx.run(&store::GONE_PUT, &[("gone", list(&gone)?.into())]).await?;
    let ids = list(&ids)?;
    let removed = tx.run(&store::OLD_REMOVE, &[("ids", ids.clone().into())]).await?;
    tx.run(&store::FAILURE_REMOVE, &[("ids", ids.clone().into())]).await?;
    tx.run(&store::REDRIVEN_REMOVE, &[("ids", ids.into())]).await?;
    Ok(Step { gone: removed, last: last.filter(|_| rows.len() == MOST) })
}
