//! Doing something about rows: each is claimed by one worker at a time, tried again later when it failed, and given up
//! (`FAILED`) at last.
//!
//! Of a target, only the first row that is not done yet can be claimed, so that work on it keeps its order. A worker that
//! was killed loses its claims when their lease ends: what a [`Handler`] does must bear being done twice. Only failures
//! count as tries, not claims: an engine that is away, or a worker that was killed, costs a row none of them.

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::{Millis, random};
use bongsu_sql::{Boxed, Error, Records, Transaction};

use crate::store::{self, list};
use crate::{Outbox, Row};

/// So many rows are claimed at once, for so long.
const MOST: usize = 50;
const LEASE: Duration = Duration::from_secs(60);
/// What is to be done is looked for so often.
const PAUSE: Duration = Duration::from_millis(200);
/// A row that failed is tried again after so long, twice as long each time, and not more than so often.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
const TRIES: u64 = 8;
/// While an engine or the database is away, everything waits for so long.
const AWAY: Duration = Duration::from_secs(2);

/// What is done about rows of some types.
pub trait Handler: Send + Sync {
    /// Does it. Called again after a failure, and perhaps after it was done, when the worker was killed.
    fn handle<'a>(&'a self, row: &'a Row) -> Boxed<'a, Result<(), Failed>>;
}

/// Why it was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// What it needs is away: it is tried again for as long as that lasts.
    Away(String),
    /// It may work later; it is tried a few times.
    Refused(String),
}

/// A row that is this worker's until a time.
#[derive(Debug)]
struct Claimed {
    row: Row,
    /// How often it has failed.
    attempts: u64,
    until: Millis,
}

/// What becomes of a row.
#[derive(Clone, Copy)]
struct Ending {
    id: i64,
    /// Tells this claim from others.
    until: Millis,
    status: &'static str,
    attempts: u64,
    available_at: Millis,
}

impl Outbox {
    /// Does what there is to do about rows of these types until it is dropped. Several may run at once.
    pub async fn work(self, kinds: Vec<String>, handler: Arc<dyn Handler>) {
        let kinds: Arc<[String]> = kinds.into();
        loop {
            let pause = match self.work_once(&kinds, &*handler).await {
                Ok(Some(0)) => PAUSE,
                Ok(Some(_)) => Duration::ZERO,
                Ok(None) => AWAY,
                Err(error) => {
                    tracing::debug!(%error, "rows of the outbox cannot be claimed for now");
                    AWAY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Claims what may be done now, and does it: how many rows that were; nothing when what they need is away.
    pub async fn work_once(
        &self,
        kinds: &Arc<[String]>,
        handler: &dyn Handler,
    ) -> Result<Option<usize>, Error> {
        let clock = &self.0.clock;
        let wish = Wish { kinds: kinds.clone(), now: clock.now(), until: clock.now() + millis(LEASE) };
        let mut claims = self.records().write(wish, claim).await?.into_iter();
        let mut done = 0;
        while let Some(claimed) = claims.next() {
            match handler.handle(&claimed.row).await {
                Ok(()) => self.end(claimed.done(clock.now())).await?,
                Err(Failed::Refused(reason)) => {
                    let (id, attempts) = (claimed.row.id, claimed.attempts);
                    tracing::warn!(id, attempts, reason, "a row of the outbox could not be dealt with");
                    metrics::counter!("outbox_failures_total").increment(1);
                    self.end(claimed.failed(clock.now())).await?;
                }
                Err(Failed::Away(reason)) => {
                    tracing::debug!(reason, "what the outbox needs is away");
                    let now = clock.now();
                    self.end(claimed.given_back(now)).await?;
                    for rest in claims.by_ref() {
                        self.end(rest.given_back(now)).await?;
                    }
                    return Ok(None);
                }
            }
            done += 1;
        }
        Ok(Some(done))
    }

    async fn end(&self, ending: Ending) -> Result<(), Error> {
        end(self.records(), ending).await
    }
}

impl Claimed {
    fn ends(&self, status: &'static str, attempts: u64, available_at: Millis) -> Ending {
        Ending { id: self.row.id, until: self.until, status, attempts, available_at }
    }

    fn done(&self, now: Millis) -> Ending {
        self.ends("DONE", self.attempts, now)
    }

    /// As if it had not been claimed.
    fn given_back(&self, now: Millis) -> Ending {
        self.ends("PENDING", self.attempts, now)
    }

    fn failed(&self, now: Millis) -> Ending {
        let attempts = self.attempts + 1;
        if attempts >= TRIES {
            return self.ends("FAILED", attempts, now);
        }
        let doublings = u32::try_from(self.attempts).unwrap_or(u32::MAX);
        let pause = millis(LONGEST).min(millis(AGAIN).saturating_mul(2_u64.saturating_pow(doublings)));
        self.ends("PENDING", attempts, now + pause + random::between(0, pause / 4))
    }
}

fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

struct Wish {
    kinds: Arc<[String]>,
    now: Millis,
    until: Millis,
}

fn claim<'t>(wish: &'t Wish, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<Vec<Claimed>, Error>> {
    Box::pin(async move {
        let kinds = list(&wish.kinds)?;
        let wanted = [("kinds", kinds.into()), ("now", wish.now.into()), ("most", MOST.into())];
        let found = tx.rows(&store::CLAIMABLE, &wanted).await?;
        let ids = found.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let held = [("ids", list(&ids)?.into()), ("now", wish.now.into())];
        let held = tx.rows(&store::CLAIM_HOLD, &held).await?;
        let claimed = held
            .iter()
            .map(|row| Ok(Claimed { row: Row::read(row)?, attempts: row.count(6)?, until: wish.until }));
        let mut claimed = claimed.collect::<Result<Vec<_>, Error>>()?;
        claimed.sort_unstable_by_key(|claimed| claimed.row.position);
        let ids: Vec<i64> = claimed.iter().map(|claimed| claimed.row.id).collect();
        tx.run(&store::CLAIM, &[("ids", list(&ids)?.into()), ("until", wish.until.into())]).await?;
        Ok(claimed)
    })
}

async fn end(records: &Records, ending: Ending) -> Result<(), Error> {
    fn change<'t>(ending: &'t Ending, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<(), Error>> {
        Box::pin(async move {
            let arguments = [
                ("id", ending.id.into()),
                ("until", ending.until.into()),
                ("status", ending.status.into()),
                ("attempts", ending.attempts.into()),
                ("available_at", ending.available_at.into()),
            ];
            tx.run(&store::CLAIM_END, &arguments).await.map(drop)
        })
    }
    records.write(ending, change).await
}
