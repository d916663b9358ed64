//! Rows that were given up: who looks after the hub sees them with the reason, and has them tried again or lets them go.

use bongsu_kernel::Millis;
use bongsu_part::{Boxed, DeadLetter, DeadLetters};
use bongsu_sql::{Error, Transaction};

use crate::store::{self, PART, list};
use crate::{Outbox, Row};

impl DeadLetters for Outbox {
    fn name(&self) -> &'static str {
        PART
    }

    fn depth(&self) -> Boxed<'_, Result<u64, Error>> {
        Box::pin(self.records().count(&store::FAILED_COUNT))
    }

    fn after(&self, id: i64, most: usize) -> Boxed<'_, Result<Vec<DeadLetter>, Error>> {
        Box::pin(async move {
            let page = Page { after: id, up_to: i64::MAX, most };
            let given_up = self.records().read(page, read).await?;
            Ok(given_up.into_iter().map(DeadLetter::from).collect())
        })
    }

    /// What nobody can be told of is not among those that are tried again, as long as it stays what it is.
    fn redrive(&self, ids: Vec<i64>) -> Boxed<'_, Result<u64, Error>> {
        Box::pin(async move {
            let mut good = Vec::with_capacity(ids.len());
            for id in ids {
                let page = Page { after: id.saturating_sub(1), up_to: id, most: 1 };
                let given_up = self.records().read(page, read).await?;
                good.extend(given_up.iter().filter(|one| one.row.fault().is_none()).map(|one| one.row.id));
            }
            if good.is_empty() {
                return Ok(0);
            }
            let redriven = self.records().write((good.clone(), self.0.clock.now()), redrive).await?;
            tracing::info!(ids = ?good, redriven, "rows of the outbox that were given up are tried again");
            self.0.arrived.notify_one();
            Ok(redriven)
        })
    }

    /// Streams may still read the row.
    fn discard(&self, id: i64) -> Boxed<'_, Result<bool, Error>> {
        Box::pin(async move {
            let dropped = self.records().write(id, discard).await?;
            tracing::info!(id, dropped, "a row of the outbox that was given up is let go");
            Ok(dropped)
        })
    }
}

/// A row that was given up.
struct GivenUp {
    row: Row,
    attempts: u64,
    /// Empty when another program gave it up.
    reason: String,
}

impl From<GivenUp> for DeadLetter {
    fn from(GivenUp { row, attempts, reason }: GivenUp) -> Self {
        let Row { id, target, event_type, payload, created_at, .. } = row;
        Self { id, key: target, kind: event_type, payload, attempts, reason, created_at }
    }
}

/// Some of those that were given up, by their ids.
struct Page {
    /// After this one, up to that one.
    after: i64,
    up_to: i64,
    most: usize,
}

async fn read(page: &Page, tx: &mut Transaction<'_>) -> Result<Vec<GivenUp>, Error> {
    let Page { after, up_to, most } = *page;
    let wanted = [("after", after.into()), ("up_to", up_to.into()), ("most", most.into())];
    let rows = tx.rows(&store::FAILED, &wanted).await?;
    let given_up = |row: &bongsu_sql::Row| {
        let attempts = u64::try_from(row.int(6)?).unwrap_or_default();
        Ok(GivenUp { row: Row::read(row)?, attempts, reason: row.text(7)?.to_owned() })
    };
    rows.iter().map(given_up).collect()
}

/// Has rows tried again, outside the order of their targets.
async fn redrive((ids, now): &(Vec<i64>, Millis), tx: &mut Transaction<'_>) -> Result<u64, Error> {
    let ids = list(ids)?;
    let redriven = tx.run(&store::REDRIVE, &[("ids", ids.clone().into()), ("now", (*now).into())]).await?;
    tx.run(&store::FAILURE_REMOVE, &[("ids", ids.clone().into())]).await?;
    tx.run(&store::REDRIVEN_PUT, &[("ids", ids.into())]).await?;
    Ok(redriven)
}

async fn discard(id: &i64, tx: &mut Transaction<'_>) -> Result<bool, Error> {
    let dropped = tx.run(&store::FAILED_DROP, &[("id", (*id).into())]).await?;
    tx.run(&store::FAILURE_REMOVE, &[("ids", list(&[*id])?.into())]).await?;
    Ok(dropped > 0)
}
