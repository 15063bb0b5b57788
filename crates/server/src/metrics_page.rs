//! The metrics page: every owner registers its own metrics.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::server::Server;
use crate::telemetry::{register_rules, register_unreconciled};

/// All metrics of the server, as `OpenMetrics` text.
pub(crate) fn metrics_page(server: &Server) -> String {
    let mut registry = Registry::with_prefix("tidegate");
    let front_ends = &server.front_ends;
    server.metrics.register(&mut registry, front_ends);
    register_rules(&mut registry, &server.gate.rules(), front_ends);
    server.book.register_metrics(&mut registry);
    server.overrides.register_metrics(&mut registry);
    server.gate.store().register_metrics(&mut registry);
    if let Some(kept) = &server.counters {
        kept.register_metrics(&mut registry);
    }
    register_unreconciled(&mut registry, server.gate.unreconciled());
    server.identity.register_metrics(&mut registry);
    server.access.refusals.register(&mut registry, front_ends);
    if let Some(gateway) = &server.gateway {
        gateway.register_metrics(&mut registry);
    }
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = encode(&mut text, &registry);
    text
}
