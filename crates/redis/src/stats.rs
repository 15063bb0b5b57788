//! The counters of a store, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a store since it was opened. Relaxed: they may be read out of order.
#[derive(Debug, Default)]
pub struct Stats {
    /// Calls that were sent.
    pub calls: AtomicU64,
    /// Steps that went with them.
    pub steps: AtomicU64,
    /// Calls that failed or were late.
    pub failures: AtomicU64,
    /// Calls that were not sent, because they could not have been answered in time.
    pub shed: AtomicU64,
    /// Connections that were made.
    pub connects: AtomicU64,
    /// How often a link went from up to down.
    pub falls: AtomicU64,
    /// Denials that were answered from memory.
    pub remembered_denials: AtomicU64,
    /// Decisions that were served from units taken in advance.
    pub leased_decisions: AtomicU64,
    /// Charges that were given back, because another slot denied.
    pub given_back: AtomicU64,
    /// Decisions that met a value which is not the state of their limit.
    pub bad_states: AtomicU64,
    /// States that were repaired, because no version of this program writes them so.
    pub repaired_states: AtomicU64,
    /// Redirects to another server of a cluster.
    pub redirects: AtomicU64,
}

impl Stats {
    pub(crate) fn add(&self, counter: &AtomicU64) {
        self.add_many(counter, 1);
    }

    #[expect(clippy::unused_self, reason = "a counter of these stats")]
    pub(crate) fn add_many(&self, counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
