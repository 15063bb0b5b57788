//! Counts what became of the usage of requests.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_usage::UsageResult;

/// How often the usage of requests ended in each way.
#[derive(Debug, Default)]
pub struct UsageResults([AtomicU64; UsageResult::ALL.len()]);

impl UsageResults {
    pub(super) fn count(&self, result: UsageResult) {
        let index = UsageResult::ALL.iter().position(|known| *known == result);
        if let Some(count) = index.and_then(|index| self.0.get(index)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each way by its name, with how often that was.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        UsageResult::ALL
            .iter()
            .map(|result| result.name())
            .zip(counts)
    }
}
