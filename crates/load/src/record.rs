//! The answers of a run, and their latencies.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::protocol::LoadAnswer;

/// Latencies are kept from a microsecond to ten minutes, with three digits.
const LOWEST_NANOS: u64 = 1_000;
const HIGHEST_NANOS: u64 = 600_000_000_000;
const DIGITS: u8 = 3;
/// How many kinds of errors are listed; further ones are counted together.
const MAX_KINDS: usize = 16;

/// The answers of a run, and their latencies.
pub(crate) struct LoadRecord {
    pub(crate) latencies: Histogram<u64>,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Requests without a decision, by kind of error.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl LoadRecord {
    pub(crate) fn new() -> Self {
        let latencies = Histogram::new_with_bounds(LOWEST_NANOS, HIGHEST_NANOS, DIGITS);
        Self {
            // The bounds are constants that fit. Without bounds the histogram grows by itself.
            latencies: latencies.unwrap_or_else(|_| unbounded()),
            allowed: 0,
            denied: 0,
            errors: BTreeMap::new(),
        }
    }

    pub(crate) fn answered(&mut self, answer: LoadAnswer, latency: Duration) {
        match answer {
            LoadAnswer::Allowed => self.allowed += 1,
            LoadAnswer::Denied => self.denied += 1,
            LoadAnswer::Other(kind) => self.failed(kind, 1),
        }
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(nanos);
    }

    /// Requests that were not answered.
    pub(crate) fn failed(&mut self, kind: String, requests: u64) {
        let is_known = self.errors.contains_key(&kind);
        let kind = if is_known || self.errors.len() < MAX_KINDS {
            kind
        } else {
            "other".to_owned()
        };
        *self.errors.entry(kind).or_default() += requests;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // All histograms have the same bounds.
        let _ = self.latencies.add(&other.latencies);
        self.allowed += other.allowed;
        self.denied += other.denied;
        for (kind, count) in &other.errors {
            self.failed(kind.clone(), *count);
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.allowed + self.denied + self.errors.values().sum::<u64>()
    }
}

#[expect(
    clippy::expect_used,
    reason = "three digits are valid, by the documentation of the crate"
)]
fn unbounded() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("three digits are valid")
}
