//! Metrics of decisions, and the functions with which each owner of metrics registers its own.
//!
//! Names and labels are an interface; a test checks them. No label has a value that a client can choose.
//! A decision increments plain atomics; a scrape reads them.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate::gate::{Charged, Unreconciled};
use tidegate::rules::FrontEnd;
use tidegate_listen::{Labels, Timing};

use super::throttled::ThrottledCounts;
/// Bucket bounds in seconds, for durations that are normally microseconds.
pub(crate) const BOUNDS: [f64; 14] = [
    0.000_001,
    0.000_002_5,
    0.000_005,
    0.000_01,
    0.000_025,
    0.000_05,
    0.000_1,
    0.000_25,
    0.000_5,
    0.001,
    0.005,
    0.015,
    0.05,
    0.25,
];

/// The metrics of decisions.
pub(crate) struct Metrics {
    decision_seconds: Timing,
    unmatched: AtomicU64,
    throttled: ThrottledCounts,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            decision_seconds: Timing::new(&BOUNDS),
            unmatched: AtomicU64::new(0),
            throttled: ThrottledCounts::default(),
        }
    }

    /// Records the duration of a decision.
    pub(crate) fn decided(&self, took: Duration) {
        self.decision_seconds.note(took);
    }

    /// Counts a request to which no rule applied.
    pub(crate) fn unmatched(&self) {
        self.unmatched.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer of `CL.THROTTLE`.
    #[inline]
    pub(crate) fn throttled(&self, charged: &Charged) {
        self.throttled.count(charged);
    }

    /// Registers these metrics, and the version of the program.
    pub(crate) fn register(&self, registry: &mut Registry, front_ends: &[FrontEnd]) {
        let version = Family::<Labels<1>, Gauge>::default();
        version
            .get_or_create(&[("version", env!("CARGO_PKG_VERSION").to_owned())])
            .set(1);
        registry.register("build_info", "The version of the running program", version);

        registry.register_with_unit(
            "decision",
            "Time from a request's attributes to the decision",
            Unit::Seconds,
            self.decision_seconds.clone(),
        );
        register_counter(
            registry,
            "unmatched",
            "Decisions to which no rule applied",
            &self.unmatched,
        );
        let is_on = front_ends.contains(&FrontEnd::Resp);
        self.throttled.register(registry, is_on);
    }
}

pub(crate) fn register_counter(registry: &mut Registry, name: &str, help: &str, value: &AtomicU64) {
    registry.register(name, help, counter(value.load(Ordering::Relaxed)));
}

pub(crate) fn counter(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}

pub(crate) fn gauge(value: u64) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge
}

/// Registers the units that the gate admitted without the store and has not reconciled yet.
pub(crate) fn register_unreconciled(registry: &mut Registry, unreconciled: Unreconciled) {
    registry.register(
        "unreconciled",
        "Counters with charges admitted without the store and not reconciled yet",
        gauge(unreconciled.waiting as u64),
    );
    registry.register(
        "unreconciled_lost",
        "Counters whose charges were dropped because too many waited to be reconciled",
        counter(unreconciled.lost),
    );
}
