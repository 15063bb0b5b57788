//! Telemetry over OTLP/HTTP: traces of sampled requests, and the metrics page. Messages and exporter are our own:
//! `docs/decisions/012-otlp.md` says why.

mod export;
mod metrics;
#[doc(hidden)]
pub mod proto;
mod trace;

pub(crate) use export::parse_otlp_url;
pub(crate) use trace::{SpanEnd, Trace, Tracer};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::{Clock as _, SystemClock, Timestamp};
use tidegate_listen::{HttpUrl, TlsError};
use tokio::sync::mpsc::Receiver;

use export::{BATCH, Collector, take_waiting};
use metrics::{Times, metrics_of};
use proto::{
    InstrumentationScope, KeyValue, MetricsRequest, OtlpSpan, Resource, ResourceMetrics,
    ResourceSpans, ScopeMetrics, ScopeSpans, TraceRequest,
};

/// The settings of telemetry over OTLP.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpSettings {
    /// Where the collector listens.
    pub url: HttpUrl,
    /// The share of requests that are traced, from 0 to 1, if their caller has not decided.
    pub sampling: f64,
    /// What the service is called there.
    pub service: OtlpService,
}

/// What the service is called in telemetry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpService {
    /// Its name.
    pub name: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// The id of this server; a random one if not set.
    pub instance: Option<String>,
}

impl Default for OtlpService {
    fn default() -> Self {
        Self {
            name: "tidegate".to_owned(),
            namespace: None,
            instance: None,
        }
    }
}

/// Counters of sent telemetry.
#[derive(Debug, Clone)]
pub(crate) struct OtlpCounts {
    tracer: Arc<Tracer>,
    failures: Arc<AtomicU64>,
}

impl OtlpCounts {
    /// How many traces were lost because too many waited to be sent.
    pub(crate) fn lost(&self) -> u64 {
        self.tracer.lost()
    }

    /// How many messages the collector did not accept.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

/// Sends traces and metrics.
pub(crate) struct Exporter {
    collector: Collector,
    waiting: Receiver<Vec<OtlpSpan>>,
    started: Timestamp,
    service: OtlpService,
    instance: String,
}

/// A tracer, its counters, and the exporter that sends its traces.
pub(crate) fn open(
    settings: &OtlpSettings,
) -> Result<(Arc<Tracer>, OtlpCounts, Exporter), TlsError> {
    let (tracer, waiting) = Tracer::new(settings.sampling);
    let tracer = Arc::new(tracer);
    let failures = Arc::new(AtomicU64::new(0));
    let counts = OtlpCounts {
        tracer: Arc::clone(&tracer),
        failures: Arc::clone(&failures),
    };
    let exporter = Exporter {
        collector: Collector::new(settings.url.clone(), failures)?,
        waiting,
        started: SystemClock.now(),
        instance: match &settings.service.instance {
            Some(instance) => instance.clone(),
            None => format!("{:016x}", trace::random()),
        },
        service: settings.service.clone(),
    };
    Ok((tracer, counts, exporter))
}

impl Exporter {
    /// Sends the traces that wait.
    pub(crate) async fn send_traces(&mut self) {
        // As many batches as the queue can have filled meanwhile, and no more: others may come all the time.
        for _ in 0..=trace::QUEUE / BATCH {
            let spans = take_waiting(&mut self.waiting);
            if spans.is_empty() {
                return;
            }
            let request = TraceRequest {
                resource_spans: vec![ResourceSpans {
                    resource: Some(self.resource()),
                    scope_spans: vec![ScopeSpans {
                        scope: Some(scope()),
                        spans,
                    }],
                }],
            };
            self.collector.send("/v1/traces", &request).await;
        }
    }

    /// Sends the metrics of a page in the `OpenMetrics` format.
    pub(crate) async fn send_metrics(&mut self, page: &str) {
        let times = Times {
            started: self.started.as_micros().saturating_mul(1_000),
            now: SystemClock.now().as_micros().saturating_mul(1_000),
        };
        let request = MetricsRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope()),
                    metrics: metrics_of(page, times),
                }],
            }],
        };
        self.collector.send("/v1/metrics", &request).await;
    }

    fn resource(&self) -> Resource {
        let mut attributes = vec![
            KeyValue::text("service.name", self.service.name.as_str()),
            KeyValue::text("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::text("service.instance.id", self.instance.as_str()),
        ];
        let namespace = self.service.namespace.as_deref();
        attributes.extend(namespace.map(|name| KeyValue::text("service.namespace", name)));
        Resource { attributes }
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "tidegate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
