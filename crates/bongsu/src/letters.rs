//! Dead letters: what was given up, wherever it waits. Operators see it with the reason, have it tried again, or let it go.
//!
//! Each place that gives things up is a queue with a name; the routes know no more of it than this.

pub(crate) mod routes;

use std::sync::Arc;
use std::time::Duration;

use bongsu_inbox::{DeadLetter, Inbox};
use bongsu_kernel::Millis;
use bongsu_kernel::task::Supervisor;
use bongsu_outbox::{LetterPage, Outbox};
use bongsu_sql::{Boxed, Error};
use tokio::sync::mpsc;

/// How many ids one request may name, and how many letters are read at once.
pub(crate) const MOST: usize = 100;
/// Requests to try everything again that may wait behind each other.
const QUEUED: usize = 16;

/// Something that was given up.
pub(crate) struct Letter {
    pub(crate) id: i64,
    /// What it is about: letters of one key had an order.
    pub(crate) key: String,
    pub(crate) kind: String,
    /// As it was written; nothing when it is too large to be shown.
    pub(crate) payload: Option<String>,
    pub(crate) attempts: u64,
    pub(crate) reason: String,
    pub(crate) created_at: Millis,
}

/// Somewhere that things are given up.
pub(crate) trait Letters: Send + Sync {
    fn name(&self) -> &'static str;

    fn depth(&self) -> Boxed<'_, Result<u64, Error>>;

    /// At most [`MOST`] after an id, by their ids.
    fn after(&self, id: i64, most: usize) -> Boxed<'_, Result<Vec<Letter>, Error>>;

    /// Those of these that are there are tried again, outside the order of their keys: how many. What can never work stays.
    fn redrive(&self, ids: Vec<i64>) -> Boxed<'_, Result<u64, Error>>;

    /// Nobody does anything about it any more. False when it was not there.
    fn discard(&self, id: i64) -> Boxed<'_, Result<bool, Error>>;
}

impl Letters for Outbox {
    fn name(&self) -> &'static str {
        "outbox"
    }

    fn depth(&self) -> Boxed<'_, Result<u64, Error>> {
        Box::pin(self.letter_count())
    }

    fn after(&self, id: i64, most: usize) -> Boxed<'_, Result<Vec<Letter>, Error>> {
        Box::pin(async move {
            let page = LetterPage { after: id, up_to: i64::MAX, most };
            Ok(self.letters(page).await?.into_iter().map(Letter::from).collect())
        })
    }

    fn redrive(&self, ids: Vec<i64>) -> Boxed<'_, Result<u64, Error>> {
        Box::pin(async move {
            let mut letters = Vec::with_capacity(ids.len());
            for id in ids {
                let page = LetterPage { after: id.saturating_sub(1), up_to: id, most: 1 };
                letters.extend(self.letters(page).await?);
            }
            Self::redrive(self, &letters).await
        })
    }

    fn discard(&self, id: i64) -> Boxed<'_, Result<bool, Error>> {
        Box::pin(self.drop_letter(id))
    }
}

impl From<bongsu_outbox::Letter> for Letter {
    fn from(letter: bongsu_outbox::Letter) -> Self {
        let bongsu_outbox::Letter { row, attempts, reason } = letter;
        Self {
            id: row.id,
            key: row.target,
            kind: row.event_type,
            payload: row.payload,
            attempts,
            reason,
            created_at: row.created_at,
        }
    }
}

impl Letters for Inbox {
    fn name(&self) -> &'static str {
        "follow-ups"
    }

    fn depth(&self) -> Boxed<'_, Result<u64, Error>> {
        Box::pin(self.dead_letter_count())
    }

    fn after(&self, id: i64, most: usize) -> Boxed<'_, Result<Vec<Letter>, Error>> {
        Box::pin(
            async move { Ok(self.dead_letters(id, most).await?.into_iter().map(Letter::from).collect()) },
        )
    }

    fn redrive(&self, ids: Vec<i64>) -> Boxed<'_, Result<u64, Error>> {
        Box::pin(async move { self.redrive_dead_letters(&ids).await })
    }

    fn discard(&self, id: i64) -> Boxed<'_, Result<bool, Error>> {
        Box::pin(self.drop_dead_letter(id))
    }
}

impl From<DeadLetter> for Letter {
    fn from(letter: DeadLetter) -> Self {
        let DeadLetter { id, subject, event_type, record, attempts, reason, created_at } = letter;
        Self { id, key: subject, kind: event_type, payload: record, attempts, reason, created_at }
    }
}

/// A wish to have everything of a queue tried again, so many a second.
struct Everything {
    of: Arc<dyn Letters>,
    rate: u64,
}

/// Starts what tries everything again, and gives the way to ask for it.
fn start_redriving(supervisor: &Supervisor) -> mpsc::Sender<Everything> {
    supervisor.queue("dlq-redrive", (QUEUED, 1), |wishes: Vec<Everything>| async move {
        for Everything { of, rate } in wishes {
            match redrive_all(&*of, rate).await {
                Ok(redriven) => {
                    tracing::info!(queue = of.name(), redriven, "dead letters are tried again");
                }
                Err(error) => {
                    tracing::warn!(queue = of.name(), %error, "not all dead letters are tried again");
                }
            }
        }
    })
}

/// Those that are there now: one that fails again meanwhile is not tried for ever.
async fn redrive_all(of: &dyn Letters, rate: u64) -> Result<u64, Error> {
    let rate = usize::try_from(rate).unwrap_or(MOST);
    let (mut after, mut redriven) = (i64::MIN, 0);
    loop {
        let ids: Vec<i64> = of.after(after, rate.min(MOST)).await?.iter().map(|letter| letter.id).collect();
        let Some(last) = ids.last() else { return Ok(redriven) };
        after = *last;
        let pause = Duration::from_secs(1).mul_f64(ids.len() as f64 / rate as f64);
        redriven += of.redrive(ids).await?;
        tokio::time::sleep(pause).await;
    }
}
