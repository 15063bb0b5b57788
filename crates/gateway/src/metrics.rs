//! The metrics of the servers behind the gateway. Exported only with one.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tidegate_listen::{Labels, Timing};

use crate::Gateway;
use crate::capacity::Shortage;
use crate::upstream::{ForwardResult, Upstream};

impl Gateway {
    /// Registers the metrics of the servers behind it.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let requests = Family::<Labels<2>, Counter>::default();
        let retries = Family::<Labels<1>, Counter>::default();
        let up = Family::<Labels<1>, Gauge>::default();
        let in_flight = Family::<Labels<1>, Gauge>::default();
        for upstream in &self.upstreams {
            let labels = [label(upstream)];
            for outcome in ForwardResult::ALL {
                let labels = [label(upstream), ("status", outcome.name().to_owned())];
                let count = upstream.outcomes(outcome);
                requests.get_or_create(&labels).inc_by(count);
            }
            retries.get_or_create(&labels).inc_by(upstream.retries());
            up.get_or_create(&labels).set(i64::from(upstream.is_up()));
            let busy = i64::try_from(upstream.in_flight()).unwrap_or(i64::MAX);
            in_flight.get_or_create(&labels).set(busy);
        }
        registry.register(
            "upstream_requests",
            "Requests that the gateway forwarded, by server and class of status",
            requests,
        );
        let usage = Family::<Labels<1>, Counter>::default();
        for (result, count) in self.usage.results().counts() {
            let labels = [("result", result.to_owned())];
            usage.get_or_create(&labels).inc_by(count);
        }
        registry.register(
            "usage",
            "Requests to language models, by what became of their usage",
            usage,
        );
        registry.register("upstream_retries", "Requests that were sent again", retries);
        registry.register("upstream_up", "1 if requests are sent to this server", up);
        registry.register(
            "upstream_in_flight",
            "Requests in flight at this server, until the end of their answers",
            in_flight,
        );
        let connections = Gauge::<i64>::default();
        connections.set(i64::try_from(self.capacity.connections()).unwrap_or(i64::MAX));
        registry.register(
            "upstream_connections",
            "Connections to servers behind the gateway, including idle ones",
            connections,
        );
        let refused = Family::<Labels<1>, Counter>::default();
        for (limit, count) in Shortage::NAMES.into_iter().zip(self.capacity.refused()) {
            refused
                .get_or_create(&[("limit", limit.to_owned())])
                .inc_by(count);
        }
        registry.register(
            "upstream_connections_refused",
            "Requests that got 503 because no connection to a server was available",
            refused,
        );
        let background = Gauge::<i64>::default();
        background.set(i64::try_from(self.background.running()).unwrap_or(i64::MAX));
        registry.register(
            "background_requests",
            "Requests that hold permits and continue although their client has left",
            background,
        );
        let abandoned = Counter::<u64>::default();
        abandoned.inc_by(self.background.refused());
        registry.register(
            "background_requests_refused",
            "Requests that were given up when their client left, because too many continued without theirs",
            abandoned,
        );
        registry.register_with_unit(
            "upstream",
            "Time from a request to the head of its answer",
            Unit::Seconds,
            seconds(self),
        );
    }
}

/// The existing histograms, by server.
#[derive(Debug)]
struct ByUpstream(Vec<(Labels<1>, Timing)>);

impl EncodeMetric for ByUpstream {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (labels, histogram) in &self.0 {
            histogram.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn seconds(gateway: &Gateway) -> ByUpstream {
    let all = gateway.upstreams.iter();
    let labelled = all.map(|upstream| ([label(upstream)], upstream.seconds.clone()));
    ByUpstream(labelled.collect())
}

fn label(upstream: &Upstream) -> (&'static str, String) {
    ("upstream", upstream.url.to_string())
}
