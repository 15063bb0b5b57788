//! The state that all front ends share.

use std::sync::Arc;

use tidegate::gate::Observer;
use tidegate::headers::HeaderSettings;
use tidegate::path::EncodedSlashes;
use tidegate::rules::{DenialAnswer, FrontEnd, Mode, OnStoreFailure, Rule, RuleSet, ValueDigest};
use tidegate::{Attributes, Decision, Gate};
use tidegate_gateway::{Gateway, ReadyCheck};
use tidegate_identity::Identity;
use tidegate_listen::Drain;
use tidegate_listen::clock::Stopwatch;
use tidegate_listen::{ExchangeObserver, Exchanges};
use tidegate_redis::Health;
use tokio::sync::Semaphore;

use crate::access::Access;
use crate::activity::ServerActivity;
use crate::body_memory::BodyMemory;
use crate::config::Config;
use crate::data_dir::LockedDir;
use crate::digest_secret;
use crate::kept_counters::{self, KeptCounters};
use crate::open_streams::OpenStreams;
use crate::otlp::OtlpCounts;
use crate::overrides::OverrideBook;
use crate::rulebook::RuleBook;
use crate::store::AnyStore;
use crate::telemetry::{DecisionObserver, ExchangeSinks, Metrics, ServerExchanges};
use crate::turns::Turns;
use crate::untrusted_proxies::UntrustedProxies;
use tidegate_tower::RateLimitLayer;

/// The most streams of activity at a time.
pub(crate) const MOST_STREAMS: usize = 32;

/// What is opened before a server can be made.
pub(crate) struct Opened {
    pub(crate) store: AnyStore,
    pub(crate) book: RuleBook,
    pub(crate) rules: RuleSet,
    /// The data directory, if there is one.
    pub(crate) data: Option<Arc<LockedDir>>,
    /// The access log and the tracer, if there are any.
    pub(crate) sinks: ExchangeSinks,
}

/// The state that all front ends share.
pub(crate) struct Server {
    pub(crate) gate: Arc<Gate<AnyStore>>,
    pub(crate) book: RuleBook,
    /// The temporary overrides of rules.
    pub(crate) overrides: OverrideBook,
    pub(crate) access: Access,
    /// The memory of request bodies.
    pub(crate) bodies: BodyMemory,
    /// Whether the console is served.
    pub(crate) has_console: bool,
    /// Identifies the clients of proxied requests.
    pub(crate) identity: Arc<Identity>,
    /// Whether `/v1/authorize` answers callers that are no proxies, although tokens are configured.
    pub(crate) open_authorize: bool,
    /// Proxies that ask `/v1/authorize` and are not trusted.
    pub(crate) untrusted_proxies: UntrustedProxies,
    pub(crate) headers: HeaderSettings,
    /// What denied clients get, if it is not the usual answer.
    denied: Option<DenialAnswer>,
    /// How `%2f` in the path of a proxied request is read. `None` refuses such paths.
    pub(crate) encoded_slashes: Option<EncodedSlashes>,
    pub(crate) trust_timestamps: bool,
    /// What `CL.THROTTLE` does when the store cannot answer; its limits have no rule for that.
    pub(crate) throttle_on_failure: OnStoreFailure,
    pub(crate) metrics: Arc<Metrics>,
    /// The front ends that are on.
    pub(crate) front_ends: Vec<FrontEnd>,
    /// The gateway, if there is one.
    pub(crate) gateway: Option<Arc<Gateway>>,
    /// The data directory, if there is one.
    pub(crate) data: Option<Arc<LockedDir>>,
    /// Snapshots of the in-memory store, if they are on.
    pub(crate) counters: Option<KeptCounters>,
    /// The access log and the tracer, if there are any.
    pub(crate) sinks: ExchangeSinks,
    /// What is counted about telemetry that is sent over OTLP, if it is.
    pub(crate) otlp: Option<OtlpCounts>,
    /// Shows values of secret attributes.
    pub(crate) digest: Arc<ValueDigest>,
    /// Observes every decision of the gate.
    pub(crate) observer: Arc<DecisionObserver>,
    /// When it started, to measure its uptime.
    pub(crate) started: Stopwatch,
    /// Live activity, if it is on.
    pub(crate) activity: Option<Arc<ServerActivity>>,
    /// Documents of callers are read, and versions of the rules compared, one at a time.
    pub(crate) turns: Turns,
    /// Streams of gRPC health and of reflection that are open without a token.
    pub(crate) watches: OpenStreams,
    pub(crate) reflections: OpenStreams,
    /// Streams of activity that may still be opened.
    pub(crate) streams: Arc<Semaphore>,
    draining: Drain,
}

impl Server {
    pub(crate) fn new(config: &Config, opened: Opened) -> Self {
        let Opened {
            store,
            book,
            rules,
            data,
            sinks,
        } = opened;
        let digest = Arc::new(digest_secret::open(config, data.as_deref()));
        let metrics = Arc::new(Metrics::new());
        let activity = ServerActivity::new(config, &digest).map(Arc::new);
        let key_secret = config.key_secret.as_ref();
        let observer = DecisionObserver::new(Arc::clone(&metrics), key_secret, activity.clone());
        let observer = Arc::new(observer.with_exchanges(sinks.is_any()));
        let gate = Gate::new(store, rules)
            .with_instances(config.instances)
            .with_local_counters(kept_counters::builder(config))
            .with_invalid_credentials(config.invalid_credentials)
            .with_digest(Arc::clone(&digest))
            .with_observer(Arc::clone(&observer) as Arc<dyn Observer>);
        let overrides = OverrideBook::open(data.as_ref(), gate.store().redis(), config.history);
        overrides.begin(&gate);
        Self {
            gate: Arc::new(gate),
            book,
            overrides,
            access: Access::new(config.tokens.clone()),
            bodies: BodyMemory::of(config.body_memory),
            has_console: config.console,
            identity: Arc::default(),
            open_authorize: config.open_authorize,
            untrusted_proxies: UntrustedProxies::new(),
            headers: config.headers,
            denied: config.denied.clone(),
            encoded_slashes: config.encoded_slashes,
            trust_timestamps: config.trust_timestamps,
            throttle_on_failure: config.throttle_on_store_failure,
            metrics,
            front_ends: front_ends(config),
            gateway: None,
            data,
            counters: None,
            sinks,
            otlp: None,
            digest,
            observer,
            started: Stopwatch::start(),
            activity,
            turns: Turns::new(),
            watches: OpenStreams::default(),
            reflections: OpenStreams::default(),
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
            draining: Drain::new(),
        }
    }

    /// Sets how clients are identified.
    pub(crate) fn with_identity(self, identity: Arc<Identity>) -> Self {
        Self { identity, ..self }
    }

    /// A middleware layer over the gate.
    pub(crate) fn limits(&self) -> RateLimitLayer<AnyStore> {
        let layer = RateLimitLayer::new(Arc::clone(&self.gate)).headers(self.headers);
        match &self.denied {
            Some(answer) => layer.denied(answer.clone()),
            None => layer,
        }
    }

    /// What is done with each request of the API or the gateway: it gets an id, and is logged and traced.
    pub(crate) fn exchanges(&self, front_end: FrontEnd) -> Exchanges {
        Exchanges {
            has_ids: true,
            is_forwarding: front_end == FrontEnd::Gateway,
            observer: observer(front_end, self.sinks.clone()),
        }
    }

    /// What is done with each request of gRPC, if anything: it is traced.
    pub(crate) fn grpc_exchanges(&self) -> Option<Exchanges> {
        let sinks = ExchangeSinks {
            log: None,
            ..self.sinks.clone()
        };
        let observer = Some(observer(FrontEnd::Grpc, sinks)?);
        Some(Exchanges {
            observer,
            ..Exchanges::default()
        })
    }

    /// An error if no request can be decided yet.
    pub(crate) fn ready_check(self: &Arc<Self>) -> ReadyCheck {
        let server = Arc::clone(self);
        Arc::new(move || server.book.need_rules())
    }

    /// Decides a request of a front end.
    pub(crate) async fn decide(
        &self,
        attributes: &Attributes<'_>,
        front_end: FrontEnd,
    ) -> Decision {
        let deciding = self
            .gate
            .decide_by(self.gate.rules(), front_end, attributes);
        deciding.wait().await.into_decision()
    }

    /// The value of an attribute as answers show it: that of a secret attribute as a digest.
    pub(crate) fn shown(&self, attribute: &str, value: &str) -> String {
        if self.book.settings().is_secret(attribute) {
            return self.digest.shown(value);
        }
        value.to_owned()
    }

    /// How much of the store answers.
    pub(crate) async fn store_health(&self) -> Health {
        self.gate.store().health().await
    }

    /// Problems that do not prevent decisions.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.gate.store().warnings();
        warnings.extend(self.counters.as_ref().and_then(KeptCounters::warning));
        warnings.extend(self.identity.warnings());
        warnings.extend(self.untrusted_proxies.warnings());
        warnings
    }

    /// Whether requests can be decided, as `/readyz` reports.
    pub(crate) async fn is_ready(&self) -> bool {
        if self.is_draining() || !self.book.has_rules() || self.identity.lacks_keys() {
            return false;
        }
        let is_down = matches!(self.store_health().await, Health::Down(_));
        !is_down
            || self
                .gate
                .rules()
                .iter()
                .all(|rule| works_without_store(&rule))
    }

    /// Reads the document of a caller in its [turn](Turns), on a thread that may block, because it can be large.
    /// None if the server ends meanwhile.
    pub(crate) async fn read_document<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let server = Arc::clone(self);
        self.turns.take_blocking(move || read(&server)).await
    }

    /// Makes `/readyz` report that the server is not ready.
    pub(crate) fn begin_to_drain(&self) {
        self.draining.begin();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.has_begun()
    }

    /// Waits until the server drains.
    pub(crate) async fn drains(&self) {
        self.draining.begun().await;
    }
}

/// An observer of requests, if there is anything to record.
fn observer(front_end: FrontEnd, sinks: ExchangeSinks) -> Option<Arc<dyn ExchangeObserver>> {
    let is_any = sinks.is_any();
    is_any.then(|| Arc::new(ServerExchanges { front_end, sinks }) as Arc<dyn ExchangeObserver>)
}

/// Whether a rule can decide without the store.
pub(crate) fn works_without_store(rule: &Rule) -> bool {
    rule.on_store_failure() != OnStoreFailure::Deny || rule.mode() == Mode::Shadow
}

/// The front ends that a configuration turns on.
fn front_ends(config: &Config) -> Vec<FrontEnd> {
    FrontEnd::ALL
        .into_iter()
        .filter(|front_end| match front_end {
            FrontEnd::Http | FrontEnd::Authorize => true,
            FrontEnd::Grpc => config.grpc.is_some(),
            FrontEnd::Resp => config.resp.is_some(),
            FrontEnd::Gateway => config.gateway.is_some(),
            _ => false,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decision future is moved with each request into its task.
    #[test]
    fn a_decision_under_way_is_small() {
        async fn decide(server: &Server, attributes: &Attributes<'_>) {
            server.decide(attributes, FrontEnd::Http).await;
        }
        fn size<'s, F: Future>(_: impl FnOnce(&'s Server, &'s Attributes<'s>) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(decide);
        assert!(size < 4_096, "{size} bytes");
    }
}
