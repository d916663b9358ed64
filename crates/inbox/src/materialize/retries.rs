//! Retries of records that the database refused: a refused record is parked, so that other records are handled
//! meanwhile, and is given up after [`MAX_ATTEMPTS`] attempts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bongsu_kernel::Backoff;
use bongsu_live::log::PendingFollowUp;

use crate::dead_letters::digest;

/// Failed attempts after which a record becomes a dead letter.
pub(super) const MAX_ATTEMPTS: u64 = 3;
/// The delay before the second attempt and before the third.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(2), (100, 125));
/// While this many records are parked, a further refusal counts as an outage: the database probably refuses every
/// record.
const MAX_PARKED: usize = 256;

#[derive(Default)]
pub(super) struct Retries {
    parked: Vec<PendingFollowUp>,
    /// When each parked record is due, in the order of `parked`.
    due: Vec<Instant>,
    /// Failed attempts by the digest of the record. Records that another instance has finished are not removed, so the
    /// map is cleared when it is too large.
    attempts: HashMap<[u8; 32], u64>,
}

impl Retries {
    /// Unparks the records that are due, and returns those that are still parked.
    pub(super) fn parked(&mut self) -> &[PendingFollowUp] {
        let (now, mut at) = (Instant::now(), 0);
        while at < self.due.len() {
            if self.due[at] > now {
                at += 1;
            } else {
                self.due.swap_remove(at);
                self.parked.swap_remove(at);
            }
        }
        &self.parked
    }

    pub(super) fn is_full(&self) -> bool {
        self.parked.len() >= MAX_PARKED
    }

    /// Counts a failed attempt, and returns how many attempts of the record have failed.
    pub(super) fn count_attempt(&mut self, pending: &PendingFollowUp) -> u64 {
        if self.attempts.len() >= MAX_PARKED * 4 {
            self.attempts.clear();
        }
        let attempts = self.attempts.entry(digest(pending)).or_default();
        *attempts += 1;
        *attempts
    }

    /// Parks a record until its next attempt.
    pub(super) fn park(&mut self, pending: PendingFollowUp, attempts: u64) {
        self.due.push(Instant::now() + RETRY_BACKOFF.delay(attempts));
        self.parked.push(pending);
    }

    /// Forgets the attempts of a record that became a dead letter.
    pub(super) fn forget_attempts(&mut self, pending: &PendingFollowUp) {
        self.attempts.remove(&digest(pending));
    }
}
