//! Counts of all requests, which any thread adds to.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counts::OutcomeCounts;
use crate::shard::{Padded, thread_number};

/// More threads share the parts.
const SHARDS: usize = 16;

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct RequestTotals([Padded<[AtomicU64; 6]>; SHARDS]);

impl RequestTotals {
    #[inline]
    pub(crate) fn add(&self, counts: &OutcomeCounts) {
        let totals = &self.0[thread_number() % SHARDS];
        for (total, count) in totals.iter().zip(counts.array()) {
            if count > 0 {
                total.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn sum(&self) -> OutcomeCounts {
        let shard = |totals: &Padded<[AtomicU64; 6]>| {
            let load = |index: usize| totals[index].load(Ordering::Relaxed);
            OutcomeCounts::from_array([0, 1, 2, 3, 4, 5].map(load))
        };
        let sum = |sum: OutcomeCounts, counts: OutcomeCounts| sum.plus(&counts);
        self.0.iter().map(shard).fold(OutcomeCounts::default(), sum)
    }
}
