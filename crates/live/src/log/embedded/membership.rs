//! The membership versions, in the memory of the one process that uses the log and that caches members.
//!
//! Subjects share a fixed number of counters, so that memory is bounded. A change of one subject therefore also
//! invalidates the cached members of the subjects that share its counter, which costs one more read of each.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use bongsu_kernel::random;

use crate::SubjectName;

/// Counters that all subjects share.
const COUNTER_COUNT: usize = 1_024;

pub(super) struct MembershipVersions {
    counters: Vec<AtomicU64>,
    hasher: foldhash::fast::RandomState,
}

impl Default for MembershipVersions {
    fn default() -> Self {
        // Random, so that a version of an earlier process is not reused.
        let first = random::between(0, u64::MAX / 2);
        let counters = (0..COUNTER_COUNT).map(|_| AtomicU64::new(first)).collect();
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
        &self.counters[self.hasher.hash_one(subject.as_str()) as usize % COUNTER_COUNT]
    }
}
