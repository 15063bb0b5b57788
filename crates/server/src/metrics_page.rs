//! The metrics page: every owner registers its own metrics.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::server::Server;
use crate::telemetry::{counter, gauge, register_process, register_rules, register_unreconciled};

/// All metrics of the server, as `OpenMetrics` text.
pub(crate) async fn metrics_page(server: &Server) -> String {
    let is_ready = server.is_ready().await;
    let mut page = Registry::default();
    register_process(&mut page);
    register_server(page.sub_registry_with_prefix("tidegate"), server, is_ready);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = encode(&mut text, &page);
    text
}

fn register_server(registry: &mut Registry, server: &Server, is_ready: bool) {
    let front_ends = &server.front_ends;
    server.metrics.register(registry, front_ends);
    registry.register(
        "ready",
        "Whether requests can be decided, as /readyz reports",
        gauge(u64::from(is_ready)),
    );
    register_rules(registry, &server.gate.rules(), front_ends);
    server.book.register_metrics(registry);
    server.overrides.register_metrics(registry);
    server.gate.store().register_metrics(registry);
    if let Some(kept) = &server.counters {
        kept.register_metrics(registry);
    }
    register_unreconciled(registry, server.gate.unreconciled());
    server.identity.register_metrics(registry);
    server.access.refusals.register(registry, front_ends);
    server.bodies.register_metrics(registry);
    server.untrusted_proxies.register(registry);
    if let Some(log) = &server.sinks.log {
        registry.register(
            "access_log_lost",
            "Lines of the access log that were dropped because too many waited to be written",
            counter(log.lost()),
        );
    }
    if let Some(otlp) = &server.otlp {
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
    if let Some(gateway) = &server.gateway {
        gateway.register_metrics(registry);
    }
}
