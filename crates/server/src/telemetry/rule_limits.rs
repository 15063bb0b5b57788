//! Metrics of adaptive rules.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use tidegate::gate::RulesInForce;

use tidegate_listen::Labels;

pub(super) fn register(registry: &mut Registry, rules: &RulesInForce) {
    let limits = Family::<Labels<1>, Gauge>::default();
    let latencies = Family::<Labels<1>, Gauge<f64, AtomicU64>>::default();
    for rule in rules.iter() {
        let Some(adaptive) = rule.adaptive() else {
            continue;
        };
        let labels = [("rule", rule.id().to_owned())];
        let limit = i64::try_from(adaptive.limit()).unwrap_or(i64::MAX);
        limits.get_or_create(&labels).set(limit);
        if let Some(latency) = adaptive.latency() {
            latencies.get_or_create(&labels).set(latency.as_secs_f64());
        }
    }
    registry.register(
        "adaptive_limit",
        "The current limit of an adaptive rule",
        limits,
    );
    registry.register_with_unit(
        "adaptive_latency",
        "The recent typical latency of requests, as an adaptive rule sees it",
        Unit::Seconds,
        latencies,
    );
}
