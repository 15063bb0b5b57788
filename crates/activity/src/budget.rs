//! The memory that all activity may use together.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes in use, and the most there may be.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    used: AtomicUsize,
    pub(crate) most: usize,
}

impl MemoryBudget {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            most,
        }
    }

    /// Takes bytes, unless that would be too many.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|used| *used <= self.most)
            });
        taken.is_ok()
    }

    /// Takes bytes even if the budget is exhausted. For the few hundred bytes of a rule without
    /// room.
    pub(crate) fn take_all(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives bytes back.
    pub(crate) fn give(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more memory is given back than was taken");
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}
