//! Doing something about rows: each is claimed by one worker at a time, tried again later when it failed, and given up
//! (`FAILED`) at last.
//!
//! Rows of a target are dealt with one after another, in their order; one that has to wait has those behind it wait as
//! well. A worker that was killed loses its claims when their lease ends: what a [`Handler`] does must bear being done
//! twice. Only failures count as tries, not claims: an engine that is away, or a worker that was killed, costs a row none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bongsu_kernel::{Backoff, Millis};
use bongsu_sql::{Boxed, Error};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::claim::{Claimed, Ending, Progress};
use crate::{Outbox, Row};

/// A claim is this worker's for so long; what is not done in half of that is given back.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// So many targets are dealt with at the same time.
const AT_ONCE: usize = 16;
/// Rows that have to wait, and those of workers that were killed, are looked for so often. New ones make themselves heard.
const PAUSE: Duration = Duration::from_millis(500);
/// The delay before a row that failed is tried again, and the attempts after which it is given up.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300), (100, 125));
const MAX_ATTEMPTS: u64 = 8;
/// While an engine or the database is away, everything waits for so long.
const AWAY: Duration = Duration::from_secs(2);

/// What is done about rows.
pub trait Handler: Send + Sync {
    /// Whether rows of a type are this one's.
    fn wants(&self, event_type: &str) -> bool;

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
    /// It never works.
    Hopeless(String),
}

/// Somebody who deals with rows. There may be several in a fleet, and they get along.
pub struct Worker {
    outbox: Outbox,
    handler: Arc<dyn Handler>,
    stop: CancellationToken,
    progress: Progress,
}

impl Worker {
    pub fn new(outbox: Outbox, handler: Arc<dyn Handler>, stop: CancellationToken) -> Self {
        Self { outbox, handler, stop, progress: Progress::default() }
    }

    /// Works until it is asked to stop; what is under way then is finished, and the rest given back.
    pub async fn work(mut self) {
        while !self.stop.is_cancelled() {
            let pause = match self.work_once().await {
                Ok(Some(0)) => PAUSE,
                Ok(Some(_)) => Duration::ZERO,
                Ok(None) => AWAY,
                Err(error) => {
                    tracing::debug!(%error, "rows of the outbox cannot be claimed for now");
                    AWAY
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
                () = self.outbox.0.arrived.notified(), if pause == PAUSE => {}
            }
        }
    }

    /// Claims what may be done now, and does it: how many rows that were; nothing when what they need is away.
    pub async fn work_once(&mut self) -> Result<Option<usize>, Error> {
        let claims = self.outbox.claim(&mut self.progress, &*self.handler).await?;
        if claims.is_empty() {
            return Ok(Some(0));
        }
        let count = claims.len();
        let mut targets: HashMap<String, Vec<Claimed>> = HashMap::new();
        for claimed in claims {
            targets.entry(claimed.row.target.clone()).or_default().push(claimed);
        }
        let is_away = AtomicBool::new(false);
        let working: Vec<_> = targets.into_values().map(|rows| self.in_turn(rows, &is_away)).collect();
        let endings = futures_util::stream::iter(working).buffer_unordered(AT_ONCE).concat().await;
        self.outbox.end(endings).await?;
        Ok((!is_away.into_inner()).then_some(count))
    }

    /// One target's rows, until one of them has to wait.
    async fn in_turn(&self, rows: Vec<Claimed>, is_away: &AtomicBool) -> Vec<Ending> {
        let (clock, mut stops) = (&self.outbox.0.clock, false);
        let mut endings = Vec::with_capacity(rows.len());
        for claimed in rows {
            let now = clock.now();
            let is_late = now + millis(LEASE) / 2 > claimed.until;
            if stops || is_late || is_away.load(Ordering::Relaxed) || self.stop.is_cancelled() {
                endings.push(claimed.given_back(now));
                continue;
            }
            match self.handler.handle(&claimed.row).await {
                Ok(()) => endings.push(claimed.done(clock.now())),
                Err(Failed::Away(reason)) => {
                    tracing::debug!(reason, "what the outbox needs is away");
                    is_away.store(true, Ordering::Relaxed);
                    endings.push(claimed.given_back(clock.now()));
                }
                Err(failure @ (Failed::Refused(_) | Failed::Hopeless(_))) => {
                    let (id, attempts) = (claimed.row.id, claimed.attempts + 1);
                    tracing::warn!(id, attempts, ?failure, "a row of the outbox could not be dealt with");
                    metrics::counter!("outbox_failures_total").increment(1);
                    let ending = failed(&claimed, failure, clock.now());
                    // One that is given up holds up nobody any more.
                    stops = !ending.is_given_up();
                    endings.push(ending);
                }
            }
        }
        endings
    }
}

/// It is tried again later, or never.
fn failed(claimed: &Claimed, failure: Failed, now: Millis) -> Ending {
    let attempts = claimed.attempts + 1;
    match failure {
        Failed::Hopeless(reason) => return claimed.given_up(attempts, reason, now),
        Failed::Refused(reason) if attempts >= MAX_ATTEMPTS => {
            return claimed.given_up(attempts, reason, now);
        }
        _ => {}
    }
    claimed.tried_again(attempts, now + millis(RETRY.delay(attempts)))
}

pub(crate) fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
