//! The metrics page: every owner registers its own metrics.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::admin::Admin;
use crate::telemetry::{
    counter, gauge, register_process, register_reservations, register_rules, register_unreconciled,
};

/// All metrics of the server, as `OpenMetrics` text.
pub(crate) async fn metrics_page(admin: &Admin) -> String {
    let is_ready = admin.decider.is_ready().await;
    let mut page = Registry::default();
    register_process(&mut page);
    register_server(page.sub_registry_with_prefix("tidegate"), admin, is_ready);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = encode(&mut text, &page);
    text
}

fn register_server(registry: &mut Registry, admin: &Admin, is_ready: bool) {
    let front_ends = &admin.front_ends;
    admin.metrics.register(registry, front_ends);
    registry.register(
        "ready",
        "Whether requests can be decided, as /readyz reports",
        gauge(u64::from(is_ready)),
    );
    register_rules(registry, &admin.gate.rules(), front_ends);
    admin.book.register_metrics(registry);
    admin.overrides.register_metrics(registry);
    admin.store.register_metrics(registry);
    if let Some(kept) = &admin.counters {
        kept.register_metrics(registry);
    }
    register_reservations(registry, &admin.gate);
    register_unreconciled(registry, admin.gate.unreconciled());
    admin.decider.identity.register_metrics(registry);
    admin.decider.access.refusals.register(registry, front_ends);
    admin.decider.bodies.register_metrics(registry);
    admin.decider.untrusted_proxies.register(registry);
    if let Some(log) = &admin.sinks.log {
        registry.register(
            "access_log_lost",
            "Lines of the access log that were dropped because too many waited to be written",
            counter(log.lost()),
        );
    }
    if let Some(record) = &admin.record {
        let (lines, lost) = record.counts();
        let help = "Decisions that were recorded";
        registry.register("record_lines", help, counter(lines));
        registry.register(
            "record_lost",
            "Decisions that were not recorded because too many waited, or the file could not be written",
            counter(lost),
        );
    }
    if let Some(otlp) = &admin.otlp {
        registry.register(
            "otlp_lost",
            "Traces that were dropped because too many waited to be sent",
            counter(otlp.lost()),
        );
        registry.register(
            "otlp_failures",
            "Messages that the collector did not accept",
            counter(otlp.failures()),
        );
    }
    if let Some(stats) = &admin.decider.stats {
        registry.register(
            "stat_names_full",
            "Whether stats are counted without the values of requests that should name them, because there are too many",
            gauge(u64::from(stats.is_full())),
        );
    }
    if let Some(gateway) = &admin.gateway {
        gateway.register_metrics(registry);
    }
}
