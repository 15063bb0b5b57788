//! Limits that follow the capacity of the upstream: a number of concurrent requests, or a rate.
//!
//! [`AdaptiveLimit`] is the live side, one for each rule of this instance: it returns the limit in force and records
//! how requests end. The estimates are pure: concurrent requests in `adaptive/estimator.rs`, rates in
//! `adaptive/pace.rs`.

mod baseline;
mod estimator;
mod pace;
#[cfg(test)]
mod pace_tests;
#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
mod tests;
mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_core::{Clock, Limit, LimitError, Micros, Outcome, Window};

use estimator::Estimator;
use pace::Pace;

/// The number of requests at once that an adaptive rule begins with if it names none, where its bounds
/// allow it.
pub(crate) const DEFAULT_START: u64 = 20;

/// Within which bounds a limit moves, and what it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Adaptive {
    /// It is never lower: requests at once, or per window.
    pub(crate) min: u64,
    /// It is never higher.
    pub(crate) max: u64,
    /// The latency that the typical request may have; without one, the limit follows how latency
    /// changes with load.
    pub(crate) target: Option<Micros>,
}

/// How a request ended that was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
    /// How many permits were held when it began, its own among them.
    pub(crate) in_flight: u64,
}

/// Within which bounds the limit of a rule moves, and what it begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdaptiveBounds {
    settings: Adaptive,
    start: Limit,
}

impl AdaptiveBounds {
    /// Begins with `start`, which is a concurrency limit or a bucket within the bounds.
    pub(crate) fn new(settings: Adaptive, start: Limit) -> Self {
        Self { settings, start }
    }

    /// The bounds, as written.
    pub(crate) fn settings(&self) -> Adaptive {
        self.settings
    }

    /// The limit is never lower: requests at once, or per window.
    pub fn min(&self) -> u64 {
        self.settings.min
    }

    /// The limit is never higher.
    pub fn max(&self) -> u64 {
        self.settings.max
    }

    /// The latency that the typical request may have; without one, the limit follows how latency changes with load.
    pub fn target(&self) -> Option<Duration> {
        self.settings.target.map(Duration::from)
    }

    /// The limit that it begins with.
    pub fn start(&self) -> &Limit {
        &self.start
    }

    /// The highest limit that it may be.
    pub fn highest(&self) -> Limit {
        // What can be counted at both bounds was checked when the rule was read.
        self.at(self.settings.max)
            .unwrap_or_else(|_| self.start.clone())
    }

    /// The window of a rate; none for requests at once.
    pub fn window(&self) -> Option<Window> {
        self.start.window()
    }

    fn at(&self, count: u64) -> Result<Limit, LimitError> {
        let rate = self.start.rate().with_count(count);
        Limit::new(rate, self.start.algorithm())
    }
}

/// A limit that moves.
pub struct AdaptiveLimit {
    bounds: AdaptiveBounds,
    /// The limit in force, exchanged whole, so that a decision keeps the one it was made by.
    current: ArcSwap<Limit>,
    estimate: Estimate,
    /// In microseconds; zero before there is one.
    latency: AtomicU64,
    clock: Arc<dyn Clock>,
}

/// What the limit goes by, and what decisions show of its use.
#[derive(Debug)]
enum Estimate {
    /// Of requests at once.
    Places {
        estimator: Mutex<Estimator>,
        /// How many permits were held after the last decision.
        in_flight: AtomicU64,
    },
    /// Of requests per window.
    Rate {
        pace: Mutex<Pace>,
        /// Whether the rate has held requests back since the last estimate.
        is_used: AtomicBool,
    },
}

impl AdaptiveLimit {
    /// Begins with the start of its bounds.
    pub(crate) fn new(bounds: AdaptiveBounds, clock: Arc<dyn Clock>) -> Self {
        let AdaptiveBounds { settings, start } = &bounds;
        let (settings, count) = (*settings, start.rate().count);
        let estimate = match start.window() {
            Some(Window::Span(window)) => Estimate::Rate {
                pace: Mutex::new(Pace::new(settings, window, count)),
                is_used: AtomicBool::new(false),
            },
            _ => Estimate::Places {
                estimator: Mutex::new(Estimator::new(settings, count)),
                in_flight: AtomicU64::new(0),
            },
        };
        Self {
            current: ArcSwap::from_pointee(start.clone()),
            estimate,
            bounds,
            latency: AtomicU64::new(0),
            clock,
        }
    }

    /// Its bounds.
    pub fn bounds(&self) -> &AdaptiveBounds {
        &self.bounds
    }

    /// The limit in force: requests at once, or per [window](AdaptiveBounds::window).
    pub fn limit(&self) -> u64 {
        self.current.load().rate().count
    }

    /// The latency of the typical request lately; none before enough have ended.
    pub fn latency(&self) -> Option<Duration> {
        let latency = self.latency.load(Ordering::Relaxed);
        (latency > 0).then(|| Duration::from_micros(latency))
    }

    /// The limit in force, to decide by.
    pub(crate) fn current(&self) -> Arc<Limit> {
        self.current.load_full()
    }

    /// Takes note of a decision, for what it shows of the limit's use.
    pub(crate) fn decided(&self, limit: &Limit, outcome: &Outcome) {
        match &self.estimate {
            Estimate::Places { in_flight, .. } => {
                in_flight.store(places_held(limit, outcome), Ordering::Relaxed);
            }
            Estimate::Rate { is_used, .. } => {
                let is_low = outcome.remaining.saturating_mul(2) < outcome.limit;
                let has_room = outcome.limit > 1;
                if !outcome.allowed || !outcome.delay.is_zero() || (is_low && has_room) {
                    is_used.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Takes in how a request ended that `outcome` is about.
    pub(crate) fn observe(&self, ended: Ended, limit: &Limit, outcome: &Outcome) {
        match &self.estimate {
            Estimate::Places { estimator, .. } => {
                let in_flight = places_held(limit, outcome);
                self.observe_places(&mut estimator.lock(), Sample { ended, in_flight });
            }
            // One that only counts has let it through without admitting it.
            Estimate::Rate { .. } if !outcome.allowed => {}
            Estimate::Rate { .. } => self.report(&[ended]),
        }
    }

    /// Takes in how requests ended of which no more is known.
    pub(crate) fn report(&self, ended: &[Ended]) {
        match &self.estimate {
            Estimate::Places {
                estimator,
                in_flight,
            } => {
                let in_flight = in_flight.load(Ordering::Relaxed);
                let mut estimator = estimator.lock();
                for ended in ended.iter().copied() {
                    self.observe_places(&mut estimator, Sample { ended, in_flight });
                }
            }
            Estimate::Rate { pace, is_used } => {
                let now = self.clock.now();
                let mut pace = pace.lock();
                if pace.add(ended, now) {
                    pace.close(is_used.swap(false, Ordering::Relaxed));
                    self.exchange(pace.limit(), pace.latency());
                }
            }
        }
    }

    fn observe_places(&self, estimator: &mut Estimator, sample: Sample) {
        if estimator.observe(sample) {
            self.exchange(estimator.limit(), estimator.latency);
        }
    }

    /// Puts another limit in force. Called under the lock of the estimate, so that an older limit never
    /// replaces a newer one.
    fn exchange(&self, count: u64, latency: Option<Micros>) {
        if let Some(latency) = latency {
            self.latency.store(latency.get().max(1), Ordering::Relaxed);
        }
        if count == self.limit() {
            return;
        }
        if let Ok(limit) = self.bounds.at(count) {
            self.current.store(Arc::new(limit));
        }
    }
}

impl std::fmt::Debug for AdaptiveLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdaptiveLimit")
            .field("bounds", &self.bounds)
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}

/// How many permits of the whole limit were held. A share of it that was used as far stands for the whole.
fn places_held(limit: &Limit, outcome: &Outcome) -> u64 {
    let held = outcome.limit.saturating_sub(outcome.remaining);
    estimator::scaled(held, limit.capacity(), outcome.limit.max(1))
}
