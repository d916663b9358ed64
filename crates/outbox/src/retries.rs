//! Trying again while the database does not do what it is asked: after longer each time, said once, and shown to who looks
//! after the hub.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bongsu_kernel::Backoff;
use bongsu_sql::Error;

use crate::Outbox;

/// The delay before the next attempt.
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5), (50, 100));

/// Something that goes on all the time, and whether it does.
pub(crate) struct Part {
    label: &'static str,
    trouble: &'static str,
    fails: AtomicBool,
}

impl Part {
    pub(crate) fn tail() -> Self {
        Self::new("tail", "the outbox cannot be read: streams of events stand still; the log says why")
    }

    pub(crate) fn sequencer() -> Self {
        Self::new(
            "sequencer",
            "rows of the outbox get no positions: nobody is told of them; the log says why",
        )
    }

    fn new(label: &'static str, trouble: &'static str) -> Self {
        let part = Self { label, trouble, fails: AtomicBool::new(false) };
        part.set(false);
        part
    }

    fn set(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
        metrics::gauge!("outbox_failing", "part" => self.label).set(if fails { 1.0 } else { 0.0 });
    }
}

/// One who does it. When it is dropped, it is somebody else's matter whether it works.
pub(crate) struct Retries<'a> {
    part: &'a Part,
    /// In a row.
    failures: u64,
}

impl<'a> Retries<'a> {
    pub(crate) fn of(part: &'a Part) -> Self {
        Self { part, failures: 0 }
    }

    pub(crate) fn worked(&mut self) {
        if std::mem::take(&mut self.failures) > 0 {
            self.part.set(false);
        }
    }

    /// Returns when it may be tried again.
    pub(crate) async fn failed(&mut self, error: &Error) {
        // What passes at once troubles nobody. What stays may be something else than what came first.
        let stays = self.failures > 0;
        if !self.part.fails.load(Ordering::Relaxed) {
            tracing::warn!(%error, part = self.part.label, stays, "the outbox does not go on");
        }
        if stays {
            self.part.set(true);
        }
        self.failures += 1;
        tokio::time::sleep(RETRY.delay(self.failures)).await;
    }
}

impl Drop for Retries<'_> {
    fn drop(&mut self) {
        self.part.set(false);
    }
}

impl Outbox {
    /// What does not work here, in words.
    pub fn trouble(&self) -> Option<&'static str> {
        let parts = [&self.0.sequencer, &self.0.tail];
        parts.into_iter().find(|part| part.fails.load(Ordering::Relaxed)).map(|part| part.trouble)
    }
}
