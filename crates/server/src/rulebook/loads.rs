//! Counts how often rules were loaded from a file or a management server.

use std::sync::atomic::{AtomicU64, Ordering};

/// Loads that were good, and others.
#[derive(Debug, Default)]
pub(super) struct Loads {
    good: AtomicU64,
    failed: AtomicU64,
}

impl Loads {
    pub(super) fn count(&self, is_good: bool) {
        let count = if is_good { &self.good } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> (u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.good), get(&self.failed))
    }
}
