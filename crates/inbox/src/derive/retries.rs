//! Records that the database refused: each is left out for a while, so that others have their turn, and tried again a few
//! times.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bongsu_kernel::Backoff;
use bongsu_live::log::Pending;

use crate::dead_letters::digest;

/// A record that was refused so often becomes a dead letter.
pub(super) const MAX_ATTEMPTS: u64 = 3;
/// The delay before the second attempt and before the third.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(2), (100, 125));
/// While so many records wait, a refusal of another one is taken for an outage: the database seems to refuse everything.
const MAX_WAITING: usize = 256;

#[derive(Default)]
pub(super) struct Retries {
    waiting: Vec<Pending>,
    /// When each of them is due.
    due: Vec<Instant>,
    /// By digest. One of a record that another hub saw to stays here, so their number is bounded.
    attempts: HashMap<[u8; 32], u64>,
}

impl Retries {
    /// Those that are not due yet.
    pub(super) fn not_due(&mut self) -> &[Pending] {
        let (now, mut at) = (Instant::now(), 0);
        while at < self.due.len() {
            if self.due[at] > now {
                at += 1;
            } else {
                self.due.swap_remove(at);
                self.waiting.swap_remove(at);
            }
        }
        &self.waiting
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING
    }

    /// Counts an attempt that failed, and gives how many there were.
    pub(super) fn count(&mut self, pending: &Pending) -> u64 {
        if self.attempts.len() >= MAX_WAITING * 4 {
            self.attempts.clear();
        }
        let attempts = self.attempts.entry(digest(pending)).or_default();
        *attempts += 1;
        *attempts
    }

    /// Leaves a record out until it is due again.
    pub(super) fn put_off(&mut self, pending: Pending, attempts: u64) {
        self.due.push(Instant::now() + RETRY.delay(attempts));
        self.waiting.push(pending);
    }

    /// It became a dead letter.
    pub(super) fn forget(&mut self, pending: &Pending) {
        self.attempts.remove(&digest(pending));
    }
}
