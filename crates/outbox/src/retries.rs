//! Retries of the loops that use the database: with growing delays, at most two log lines for a failure that lasts, and
//! a line in `/health`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bongsu_kernel::Backoff;
use bongsu_sql::Error;

use crate::Outbox;

/// The delay before the next attempt.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5), (50, 100));

/// Whether a loop of the outbox fails.
pub(crate) struct LoopHealth {
    /// The value of the label `part` of the metric.
    label: &'static str,
    /// The line in `/health` while the loop fails.
    failure: &'static str,
    is_failing: AtomicBool,
}

impl LoopHealth {
    pub(crate) fn tail() -> Self {
        Self::new("tail", "the outbox cannot be read: streams of events receive no rows; see the log")
    }

    pub(crate) fn sequencer() -> Self {
        Self::new("sequencer", "outbox rows get no positions, so streams receive no new rows; see the log")
    }

    fn new(label: &'static str, failure: &'static str) -> Self {
        let health = Self { label, failure, is_failing: AtomicBool::new(false) };
        health.set_failing(false);
        health
    }

    fn set_failing(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
        metrics::gauge!("outbox_failing", "part" => self.label).set(if is_failing { 1.0 } else { 0.0 });
    }
}

/// The retries of one run of a loop. Dropping this value clears the failure, because the loop then runs on
/// another instance or has stopped.
pub(crate) struct Retries<'a> {
    health: &'a LoopHealth,
    /// Consecutive failures.
    failures: u64,
}

impl<'a> Retries<'a> {
    pub(crate) fn new(health: &'a LoopHealth) -> Self {
        Self { health, failures: 0 }
    }

    pub(crate) fn record_success(&mut self) {
        if std::mem::take(&mut self.failures) > 0 {
            self.health.set_failing(false);
        }
    }

    /// Records a failure, and waits until the next attempt is due.
    pub(crate) async fn record_failure(&mut self, error: &Error) {
        // A single failure does not show in /health. The second consecutive failure is logged, too, because its cause
        // may differ.
        let is_repeated = self.failures > 0;
        if !self.health.is_failing.load(Ordering::Relaxed) {
            tracing::warn!(%error, part = self.health.label, is_repeated, "failed to read or sequence outbox rows; retrying");
        }
        if is_repeated {
            self.health.set_failing(true);
        }
        self.failures += 1;
        tokio::time::sleep(RETRY_BACKOFF.delay(self.failures)).await;
    }
}

impl Drop for Retries<'_> {
    fn drop(&mut self) {
        self.health.set_failing(false);
    }
}

impl Outbox {
    /// The `/health` line of the first loop that fails.
    pub fn failing_loop(&self) -> Option<&'static str> {
        let loops = [&self.0.sequencer_health, &self.0.tail_health];
        loops
            .into_iter()
            .find(|health| health.is_failing.load(Ordering::Relaxed))
            .map(|health| health.failure)
    }
}
