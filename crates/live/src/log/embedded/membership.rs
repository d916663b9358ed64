//! The versions of memberships, in the memory of the one process that uses the log: whoever caches members does so there, too.
//!
//! Subjects share counters, so that memory is bounded however many there are. A change then makes the members of a few other
//! subjects be read again, which does no harm.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use bongsu_kernel::random;

use crate::SubjectName;

/// Counters that all subjects share.
const COUNTERS: usize = 1_024;

pub(super) struct MembershipVersions {
    counters: Vec<AtomicU64>,
    hasher: foldhash::fast::RandomState,
}

impl Default for MembershipVersions {
    fn default() -> Self {
        // None of an earlier process comes back.
        let first = random::between(0, u64::MAX / 2);
        let counters = (0..COUNTERS).map(|_| AtomicU64::new(first)).collect();
        Self { counters, hasher: Default::default() }
    }
}

impl MembershipVersions {
    pub(super) fn current(&self, subject: &SubjectName) -> u64 {
        self.counter(subject).load(Ordering::Acquire)
    }

    pub(super) fn change(&self, subject: &SubjectName) {
        self.counter(subject).fetch_add(1, Ordering::AcqRel);
    }

    fn counter(&self, subject: &SubjectName) -> &AtomicU64 {
        &self.counters[self.hasher.hash_one(subject.as_str()) as usize % COUNTERS]
    }
}
