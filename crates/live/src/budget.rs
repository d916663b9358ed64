//! The memory limit that all ring buffers of a hub share.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that all ring buffers hold. While the limit is exceeded, a ring buffer that grows drops its own
/// oldest entries.
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { used: AtomicUsize::new(0), limit }
    }

    pub(crate) fn reserve(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit
    }
}
