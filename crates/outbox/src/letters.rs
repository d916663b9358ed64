//! Rows that were given up: who looks after the hub sees them with the reason, and has them tried again or lets them go.

use bongsu_kernel::Millis;
use bongsu_sql::{Boxed, Error, Transaction};

use crate::store::{self, list};
use crate::{Outbox, Row};

/// A row that was given up.
#[derive(Clone, Debug)]
pub struct Letter {
    pub row: Row,
    pub attempts: u64,
    /// Empty when another program gave it up.
    pub reason: String,
}

/// Some of those that were given up, by their ids.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// After this one, up to that one.
    pub after: i64,
    pub up_to: i64,
    pub most: usize,
}

impl Outbox {
    /// How many there are.
    pub async fn letter_count(&self) -> Result<u64, Error> {
        fn count<'t>((): &'t (), tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<u64, Error>> {
            Box::pin(async move {
                let counted = tx.row(&store::FAILED_COUNT, &[]).await?;
                counted.map_or(Ok(0), |row| row.count(0))
            })
        }
        self.records().read((), count).await
    }

    pub async fn letters(&self, page: Page) -> Result<Vec<Letter>, Error> {
        fn read<'t>(page: &'t Page, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<Vec<Letter>, Error>> {
            Box::pin(async move {
                let Page { after, up_to, most } = *page;
                let wanted = [("after", after.into()), ("up_to", up_to.into()), ("most", most.into())];
                let rows = tx.rows(&store::FAILED, &wanted).await?;
                let letter = |row: &bongsu_sql::Row| {
                    let reason = row.text(7)?.to_owned();
                    Ok(Letter {
                        row: Row::read(row)?,
                        attempts: u64::try_from(row.int(6)?).unwrap_or_default(),
                        reason,
                    })
                };
                rows.iter().map(letter).collect()
            })
        }
        self.records().read(page, read).await
    }

    /// Has rows tried again, outside the order of their targets, and says how many that are. What nobody can be told of is
    /// not among them, as long as it stays what it is.
    pub async fn redrive(&self, letters: &[Letter]) -> Result<u64, Error> {
        fn change<'t>(
            (ids, now): &'t (Vec<i64>, Millis),
            tx: &'t mut Transaction<'_>,
        ) -> Boxed<'t, Result<u64, Error>> {
            Box::pin(async move {
                let ids = list(ids)?;
                let redriven =
                    tx.run(&store::REDRIVE, &[("ids", ids.clone().into()), ("now", (*now).into())]).await?;
                tx.run(&store::FAILURE_REMOVE, &[("ids", ids.clone().into())]).await?;
                tx.run(&store::REDRIVEN_PUT, &[("ids", ids.into())]).await?;
                Ok(redriven)
            })
        }
        let good = letters.iter().filter(|letter| letter.row.fault().is_none());
        let ids: Vec<i64> = good.map(|letter| letter.row.id).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        let redriven = self.records().write((ids.clone(), self.0.clock.now()), change).await?;
        tracing::info!(?ids, redriven, "rows of the outbox that were given up are tried again");
        self.0.arrived.notify_one();
        Ok(redriven)
    }

    /// Lets a row go: streams may still read it, nobody does anything about it. False when it was not given up.
    pub async fn drop_letter(&self, id: i64) -> Result<bool, Error> {
        fn change<'t>(id: &'t i64, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<bool, Error>> {
            Box::pin(async move {
                let dropped = tx.run(&store::FAILED_DROP, &[("id", (*id).into())]).await?;
                tx.run(&store::FAILURE_REMOVE, &[("ids", list(&[*id])?.into())]).await?;
                Ok(dropped > 0)
            })
        }
        let dropped = self.records().write(id, change).await?;
        tracing::info!(id, dropped, "a row of the outbox that was given up is let go");
        Ok(dropped)
    }
}
