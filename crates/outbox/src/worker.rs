//! The outbox worker: handles rows that one worker at a time has claimed, retries failed ones, and finally gives them
//! up (`FAILED`).
//!
//! Rows of one target are handled one after another, in their order, and a parked row delays the later rows of its
//! target. The claims of a killed worker end with their lease, so a [`Handler`] must tolerate handling a row twice.
//! Only a failure of the handler counts as an attempt: an unavailable engine or a killed worker does not.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bongsu_kernel::{Backoff, Millis};
use bongsu_sql::{BoxFuture, Error};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::claim::{ClaimOutcome, ClaimedRow, ScanProgress};
use crate::{Outbox, OutboxRow};

/// How long a claim lasts. Rows that are not handled in half of this time are released.
pub(crate) const CLAIM_LEASE: Duration = Duration::from_secs(30);
/// Targets whose rows are handled at the same time.
const MAX_CONCURRENT_TARGETS: usize = 16;
/// Time between two checks for parked rows and for rows of killed workers. The tail notifies the worker of new rows.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The delay before the next attempt at a failed row.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300), (100, 125));
/// Failed attempts after which a row is given up.
const MAX_ATTEMPTS: u64 = 8;
/// The delay before the next claim while an engine or the database is unavailable.
const UNAVAILABLE_DELAY: Duration = Duration::from_secs(2);

/// Handles the rows of certain event types.
pub trait Handler: Send + Sync {
    /// Whether this handler handles rows of a type.
    fn handles(&self, event_type: &str) -> bool;

    /// Handles a row. Called again after a failure, and possibly after a success if the worker was killed.
    fn handle<'a>(&'a self, row: &'a OutboxRow) -> BoxFuture<'a, Result<(), HandlerError>>;
}

/// Why a row was not handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerError {
    /// An engine that the handler needs is unavailable: the row is retried until the engine is back.
    Unavailable(String),
    /// The failure may be temporary: the row is retried, up to 8 attempts.
    Retryable(String),
    /// A retry cannot help: the row is given up at once.
    Permanent(String),
}

/// A worker. Several may run in a fleet at the same time: a claim gives each row to one of them.
pub struct Worker {
    outbox: Outbox,
    handler: Arc<dyn Handler>,
    stop: CancellationToken,
    progress: ScanProgress,
}

impl Worker {
    pub fn new(outbox: Outbox, handler: Arc<dyn Handler>, stop: CancellationToken) -> Self {
        Self { outbox, handler, stop, progress: ScanProgress::default() }
    }

    /// Handles rows until the process stops: rows in progress are finished, the others are released.
    pub async fn run(mut self) {
        while !self.stop.is_cancelled() {
            let delay = match self.process_batch().await {
                Ok(Some(0)) => POLL_INTERVAL,
                Ok(Some(_)) => Duration::ZERO,
                Ok(None) => UNAVAILABLE_DELAY,
                Err(error) => {
                    tracing::debug!(%error, "failed to claim or finish outbox rows; retrying");
                    UNAVAILABLE_DELAY
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(delay) => {}
                () = self.outbox.0.rows_arrived.notified(), if delay == POLL_INTERVAL => {}
            }
        }
    }

    /// Claims and handles the rows that are available now, and returns how many were claimed. None when an engine that
    /// a row needs is unavailable.
    pub async fn process_batch(&mut self) -> Result<Option<usize>, Error> {
        let claims = self.outbox.claim(&mut self.progress, &*self.handler).await?;
        if claims.is_empty() {
            return Ok(Some(0));
        }
        let count = claims.len();
        let mut targets: HashMap<String, Vec<ClaimedRow>> = HashMap::new();
        for claimed in claims {
            targets.entry(claimed.row.target.clone()).or_default().push(claimed);
        }
        let is_unavailable = AtomicBool::new(false);
        let working: Vec<_> =
            targets.into_values().map(|rows| self.handle_target(rows, &is_unavailable)).collect();
        let outcomes =
            futures_util::stream::iter(working).buffer_unordered(MAX_CONCURRENT_TARGETS).concat().await;
        self.outbox.finish_claims(outcomes).await?;
        Ok((!is_unavailable.into_inner()).then_some(count))
    }

    /// Handles the rows of one target in order. Once a row is parked or its claim is released, the claims of
    /// the later rows are released as well.
    async fn handle_target(&self, rows: Vec<ClaimedRow>, is_unavailable: &AtomicBool) -> Vec<ClaimOutcome> {
        let (clock, mut is_blocked) = (&self.outbox.0.clock, false);
        let mut outcomes = Vec::with_capacity(rows.len());
        for claimed in rows {
            let now = clock.now();
            let is_late = now + millis(CLAIM_LEASE) / 2 > claimed.until;
            if is_blocked || is_late || is_unavailable.load(Ordering::Relaxed) || self.stop.is_cancelled() {
                outcomes.push(claimed.released(now));
                continue;
            }
            match self.handler.handle(&claimed.row).await {
                Ok(()) => outcomes.push(claimed.done(clock.now())),
                Err(HandlerError::Unavailable(reason)) => {
                    tracing::debug!(
                        reason,
                        "an engine that an outbox row needs is unavailable; releasing the row and retrying"
                    );
                    is_unavailable.store(true, Ordering::Relaxed);
                    outcomes.push(claimed.released(clock.now()));
                }
                Err(failure @ (HandlerError::Retryable(_) | HandlerError::Permanent(_))) => {
                    let outcome = failure_outcome(&claimed, failure, clock.now());
                    // A row that is given up does not block the later rows of its target.
                    is_blocked = !outcome.is_failed();
                    outcomes.push(outcome);
                }
            }
        }
        outcomes
    }
}

/// Parks a failed row until its next attempt, or gives it up.
fn failure_outcome(claimed: &ClaimedRow, failure: HandlerError, now: Millis) -> ClaimOutcome {
    let (id, attempts) = (claimed.row.id, claimed.attempts + 1);
    tracing::warn!(
        id,
        attempts,
        ?failure,
        "failed to handle an outbox row; retrying unless permanent or the attempts are used up"
    );
    metrics::counter!("outbox_failures_total").increment(1);
    match failure {
        HandlerError::Permanent(reason) => claimed.failed(attempts, reason, now),
        HandlerError::Retryable(reason) if attempts >= MAX_ATTEMPTS => claimed.failed(attempts, reason, now),
        _ => claimed.parked(attempts, now + millis(RETRY_BACKOFF.delay(attempts))),
    }
}

pub(crate) fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
