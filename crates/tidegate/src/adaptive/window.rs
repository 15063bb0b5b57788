//! The measurements of a few requests, about as many as are in flight together: one round trip of the upstream.

use tidegate_core::Micros;

use super::{Ended, Sample};

/// Fewer than these say nothing.
const LEAST: usize = 10;
/// More than these are not needed, however many are in flight.
pub(super) const MOST: usize = 1_000;
/// The upstream is overloaded if it drops one request of this many.
const DROPPED_OF: usize = 20;

/// Requests that have ended since the last summary.
#[derive(Debug, Default)]
pub(super) struct SampleWindow {
    /// The first [`MOST`] of them.
    latencies: Vec<u64>,
    answered: usize,
    dropped: usize,
    peak: u64,
}

/// The measurements of a window, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    /// The median latency of those that were answered. A median, because one request that takes a
    /// hundred times as long as the others says nothing about the load.
    pub(super) latency: Option<Micros>,
    /// Whether too many were dropped.
    pub(super) is_dropping: bool,
    /// The most requests in flight when one of the samples began.
    pub(super) peak: u64,
    /// How many ended.
    pub(super) count: usize,
}

impl SampleWindow {
    /// Adds a request, and returns the summary once there are enough.
    pub(super) fn add(&mut self, sample: Sample) -> Option<Summary> {
        self.push(sample.ended);
        self.peak = self.peak.max(sample.in_flight);
        let wanted = usize::try_from(self.peak).unwrap_or(MOST);
        (self.count() >= wanted.clamp(LEAST, MOST)).then(|| self.close())
    }

    /// Adds how a request ended.
    pub(super) fn push(&mut self, ended: Ended) {
        match ended {
            Ended::Answered(latency) => {
                self.answered += 1;
                if self.latencies.len() < MOST {
                    self.latencies.push(latency.get());
                }
            }
            Ended::Dropped => self.dropped += 1,
        }
    }

    /// How many requests there are in it.
    pub(super) fn count(&self) -> usize {
        self.answered.saturating_add(self.dropped)
    }

    /// Summarises the window and empties it.
    pub(super) fn close(&mut self) -> Summary {
        let count = self.count();
        let middle = self.latencies.len() / 2;
        let latency = (!self.latencies.is_empty())
            .then(|| *self.latencies.select_nth_unstable(middle).1)
            .map(Micros::new);
        let summary = Summary {
            latency,
            is_dropping: self.dropped > 0 && self.dropped.saturating_mul(DROPPED_OF) >= count,
            peak: self.peak,
            count,
        };
        self.latencies.clear();
        (self.answered, self.dropped, self.peak) = (0, 0, 0);
        summary
    }
}
