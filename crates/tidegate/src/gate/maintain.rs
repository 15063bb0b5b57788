//! What a program does in the background for its gate.

use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_core::Store;
use tokio::time::MissedTickBehavior;

use super::Gate;

/// How often there is maintenance.
const EVERY: Duration = Duration::from_millis(100);

/// In how many steps all counters are looked at: in ten seconds.
const SWEEP_STEPS: NonZeroUsize = NonZeroUsize::new(100).unwrap();

impl Gate {
    /// Does what a gate needs done in the background, for as long as the future is polled: ten times a second
    /// it [charges the store](Self::reconcile) for what was admitted while the store was unavailable, and frees
    /// the memory of idle counters in this process, a part at a time. Spawn it once for each gate:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use std::sync::Arc;
    ///
    /// use tidegate::rules::RuleSet;
    /// use tidegate::{Gate, MemoryStore};
    ///
    /// let gate = Arc::new(Gate::new(MemoryStore::new(), RuleSet::empty()));
    /// let maintained = Arc::clone(&gate);
    /// tokio::spawn(async move { maintained.maintain().await });
    /// # }
    /// ```
    ///
    /// Without it every decision is still right: a request about a key reconciles that key, and decisions sweep
    /// a little. But what other keys owe is charged late, and memory is kept while there are no requests. A
    /// program that shares a store calls [`reconcile`](Self::reconcile) once more before it ends.
    pub async fn maintain(&self) {
        let mut times = tokio::time::interval(EVERY);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            self.reconcile().await;
            self.local.sweep_part(SWEEP_STEPS);
            if let Store::Memory(store) = &self.store {
                store.sweep_part(SWEEP_STEPS);
            }
        }
    }
}
