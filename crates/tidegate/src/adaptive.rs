//! A concurrency limit that follows what the upstream can bear.
//!
//! [`AdaptiveLimit`] is the live side, one for each rule of this instance: it hands out the limit of the
//! moment and hears how requests ended. The estimate itself is pure and in `adaptive/estimator.rs`.

mod baseline;
mod estimator;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_core::{Limit, Micros, Rate};

use estimator::Estimator;

/// The limit that an adaptive rule begins with if it names none, where its bounds allow it.
pub(crate) const DEFAULT_START: u64 = 20;

/// Within which bounds a limit moves, and what it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adaptive {
    /// It is never lower.
    pub min: u64,
    /// It is never higher.
    pub max: u64,
    /// The latency that the typical request may have; without one, the limit follows how latency
    /// changes with load.
    pub target: Option<Micros>,
}

/// How a request ended that was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The upstream answered it, after this time.
    Answered(Micros),
    /// The upstream could not: it refused, failed or was too late.
    Dropped,
}

/// One request that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// How it ended.
    pub(crate) ended: Ended,
    /// How many places were held when it began, its own among them.
    pub(crate) in_flight: u64,
}

/// A concurrency limit that moves.
#[derive(Debug)]
pub struct AdaptiveLimit {
    settings: Adaptive,
    start: Limit,
    /// The limit of the moment, exchanged whole, so that a decision keeps the one it was made by.
    current: ArcSwap<Limit>,
    estimator: Mutex<Estimator>,
    /// In microseconds; zero before there is one.
    latency: AtomicU64,
}

impl AdaptiveLimit {
    /// Begins with `start`, which is a concurrency limit within the bounds.
    pub(crate) fn new(settings: Adaptive, start: Limit) -> Self {
        Self {
            settings,
            current: ArcSwap::from_pointee(start.clone()),
            estimator: Mutex::new(Estimator::new(settings, start.rate().count)),
            start,
            latency: AtomicU64::new(0),
        }
    }

    /// Its bounds, as written.
    pub fn settings(&self) -> Adaptive {
        self.settings
    }

    /// The limit of the moment.
    pub fn limit(&self) -> u64 {
        self.current.load().rate().count
    }

    /// The latency of the typical request lately; none before enough have ended.
    pub fn latency(&self) -> Option<Micros> {
        let latency = self.latency.load(Ordering::Relaxed);
        (latency > 0).then(|| Micros::new(latency))
    }

    /// Whether another one would begin the same way and move within the same bounds.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.settings == other.settings && self.start == other.start
    }

    /// The limit of the moment, to decide by.
    pub(crate) fn current(&self) -> Arc<Limit> {
        self.current.load_full()
    }

    /// Hears of a request that has ended.
    pub(crate) fn observe(&self, sample: Sample) {
        let mut estimator = self.estimator.lock();
        if !estimator.observe(sample) {
            return;
        }
        // Under the lock, so that an older limit never replaces a newer one.
        if let Some(latency) = estimator.latency() {
            self.latency.store(latency.get().max(1), Ordering::Relaxed);
        }
        let count = estimator.limit();
        if count == self.limit() {
            return;
        }
        let rate = Rate {
            count,
            ..self.start.rate()
        };
        if let Ok(limit) = Limit::new(rate, self.start.algorithm()) {
            self.current.store(Arc::new(limit));
        }
    }
}
