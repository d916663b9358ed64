//! The memory that all rings together may take.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that rings hold. Over the limit, a ring that grows gives up its own oldest frames.
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { used: AtomicUsize::new(0), limit }
    }

    pub(crate) fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit
    }
}
