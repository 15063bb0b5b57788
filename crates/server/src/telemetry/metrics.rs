//! Every metric that the server exports, named in one place.
//!
//! Names and labels are an interface: a test holds them fast. No label carries a value that a client
//! can choose. What a decision counts is counted in plain atomics by whoever decides; a scrape reads
//! them.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate::MemoryStats;
use tidegate::rules::FrontEnd;

use super::Timing;
use super::throttled::{Throttled, ThrottledCounts};
use super::{gateway_metrics, redis_metrics, rule_metrics, snapshot_metrics};
use crate::identity::Refusals;
use crate::server::Server;
use crate::store::AnyStore;

/// Bounds of the buckets for what takes microseconds when all is well, in seconds.
const BOUNDS: [f64; 14] = [
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

pub(crate) type Labels<const N: usize> = [(&'static str, String); N];

/// What is measured as it happens.
pub(crate) struct Metrics {
    decision_seconds: Timing,
    store_seconds: Timing,
    store_errors: AtomicU64,
    unmatched: AtomicU64,
    throttled: ThrottledCounts,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            decision_seconds: Timing::new(&BOUNDS),
            store_seconds: Timing::new(&BOUNDS),
            store_errors: AtomicU64::new(0),
            unmatched: AtomicU64::new(0),
            throttled: ThrottledCounts::default(),
        }
    }

    /// A decision took so long.
    pub(crate) fn decided(&self, took: Duration) {
        self.decision_seconds.note(took);
    }

    /// A question to the store took so long.
    pub(crate) fn asked(&self, took: Duration, is_error: bool) {
        self.store_seconds.note(took);
        if is_error {
            self.store_errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// No rule applied to a request.
    pub(crate) fn unmatched(&self) {
        self.unmatched.fetch_add(1, Ordering::Relaxed);
    }

    /// `CL.THROTTLE` gave these answers.
    pub(crate) fn throttled(&self, throttled: &Throttled) {
        self.throttled.add(throttled);
    }

    /// Everything, in the text form of `OpenMetrics`.
    pub(crate) fn encode(&self, server: &Server) -> String {
        let mut registry = Registry::with_prefix("tidegate");
        self.register_measured(&mut registry, &server.front_ends);
        rule_metrics::register(&mut registry, &server.gate.rules(), &server.front_ends);
        register_book(&mut registry, server);
        register_store(&mut registry, server);
        register_identity(&mut registry, server);
        let refusals = &server.access.refusals;
        refusals.register(&mut registry, &server.front_ends);
        gateway_metrics::register(&mut registry, server);
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }

    fn register_measured(&self, registry: &mut Registry, front_ends: &[FrontEnd]) {
        let version = Family::<Labels<1>, Gauge>::default();
        version
            .get_or_create(&[("version", env!("CARGO_PKG_VERSION").to_owned())])
            .set(1);
        registry.register(
            "build_info",
            "The version of the program that runs",
            version,
        );

        registry.register_with_unit(
            "decision",
            "Time from a request's attributes to the decision",
            Unit::Seconds,
            self.decision_seconds.clone(),
        );
        registry.register_with_unit(
            "store",
            "Time for one question to Redis",
            Unit::Seconds,
            self.store_seconds.clone(),
        );
        register_counter(
            registry,
            "store_errors",
            "Questions that the store could not answer",
            &self.store_errors,
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

pub(super) fn register_counter(registry: &mut Registry, name: &str, help: &str, value: &AtomicU64) {
    registry.register(name, help, counter(value.load(Ordering::Relaxed)));
}

pub(super) fn counter(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}

pub(super) fn gauge(value: u64) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge
}

fn register_book(registry: &mut Registry, server: &Server) {
    let (reloads, failures) = server.book.reloads();
    registry.register(
        "rules_version",
        "Which version of the rules is in force",
        gauge(server.book.version()),
    );
    registry.register(
        "rule_reloads",
        "How often the file of the rules was read again",
        counter(reloads),
    );
    registry.register(
        "rule_reload_failures",
        "How often that failed, and the rules stayed as they were",
        counter(failures),
    );
    let is_stale = u64::from(server.book.problem().is_some());
    registry.register(
        "rules_stale",
        "1 if the file of the rules cannot be used as it is now",
        gauge(is_stale),
    );
}

fn register_identity(registry: &mut Registry, server: &Server) {
    let refused = Family::<Labels<1>, Counter>::default();
    let refusals = server.identity.refusals();
    for (reason, count) in refusals.into_iter().flat_map(Refusals::iter) {
        refused
            .get_or_create(&[("reason", reason.to_owned())])
            .inc_by(count);
    }
    registry.register(
        "jwt_refused",
        "Tokens of clients that were not believed, by reason",
        refused,
    );
    if let Some((fetched, failed)) = server.identity.fetches() {
        let fetches = Family::<Labels<1>, Counter>::default();
        for (result, count) in [("ok", fetched), ("failed", failed)] {
            let labels = [("result", result.to_owned())];
            fetches.get_or_create(&labels).inc_by(count);
        }
        registry.register(
            "jwks_fetches",
            "Fetches of the keys of tokens, by what came of them",
            fetches,
        );
    }
}

fn register_store(registry: &mut Registry, server: &Server) {
    match server.gate.store().inner() {
        AnyStore::Memory(store) => register_memory(registry, &store.stats()),
        AnyStore::Redis(store) => redis_metrics::register(registry, store),
    }
    if let Some(kept) = &server.counters {
        snapshot_metrics::register(registry, kept);
    }
    let unsettled = server.gate.unsettled();
    registry.register(
        "unsettled",
        "Counters with something admitted without the store that is still to be settled in it",
        gauge(unsettled.waiting as u64),
    );
    registry.register(
        "unsettled_lost",
        "Counters of which that was forgotten, because too many waited",
        counter(unsettled.lost),
    );
}

fn register_memory(registry: &mut Registry, stats: &MemoryStats) {
    registry.register(
        "keys",
        "Keys that the store holds",
        gauge(stats.keys as u64),
    );
    registry.register(
        "keys_max",
        "Keys that the store can hold",
        gauge(stats.max_keys as u64),
    );
    registry.register(
        "leases",
        "Concurrency leases that are held",
        gauge(stats.leases as u64),
    );
    registry.register(
        "keys_expired",
        "Keys that went because they were as good as new",
        counter(stats.expired),
    );
    registry.register(
        "keys_evicted",
        "Keys that had to go for others, each of which got its whole limit back",
        counter(stats.evicted),
    );
}
