//! The server's own state, shared by everything that answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate::gate::Decision;
use tidegate::headers::HeaderSettings;
use tidegate::path::EncodedSlashes;
use tidegate::rules::{FrontEnd, Mode, OnStoreFailure, Rule, RuleSet};
use tidegate::{Attributes, Gate, Timestamp};
use tidegate_gateway::{Gateway, ReadyCheck};
use tidegate_identity::Identity;
use tidegate_listen::clock::Stopwatch;
use tidegate_redis::Health;

use crate::access::Access;
use crate::config::Config;
use crate::data_dir::LockedDir;
use crate::kept_counters::KeptCounters;
use crate::rulebook::RuleBook;
use crate::store::AnyStore;
use crate::telemetry::{DenialLog, Measured, Metrics};
use tidegate_tower::RateLimitLayer;

/// What every reply is made from.
pub(crate) struct Server {
    pub(crate) gate: Arc<Gate<Measured<AnyStore>>>,
    pub(crate) book: RuleBook,
    pub(crate) access: Access,
    /// Who the clients of others are.
    pub(crate) identity: Arc<Identity>,
    pub(crate) headers: HeaderSettings,
    /// What `%2f` in the path of a proxied request is. None: such paths are refused.
    pub(crate) encoded_slashes: Option<EncodedSlashes>,
    pub(crate) trust_timestamps: bool,
    /// What `CL.THROTTLE` does when the store cannot answer: its limits have no rule to say it.
    pub(crate) throttle_on_failure: OnStoreFailure,
    pub(crate) metrics: Arc<Metrics>,
    /// The front ends that are on.
    pub(crate) front_ends: Vec<FrontEnd>,
    /// The gateway, if there is one.
    pub(crate) gateway: Option<Arc<Gateway>>,
    /// Where small files are kept over restarts, if there is such a place.
    pub(crate) data: Option<Arc<LockedDir>>,
    /// How the counters of the in-memory store are kept over restarts, if they are.
    pub(crate) counters: Option<KeptCounters>,
    denials: DenialLog,
    /// The latest time that a request brought, in microseconds; zero if none has.
    latest_time: AtomicU64,
    is_draining: AtomicBool,
}

impl Server {
    pub(crate) fn new(config: &Config, store: AnyStore, book: RuleBook, rules: RuleSet) -> Self {
        let metrics = Arc::new(Metrics::new());
        let store = Measured::new(store, Arc::clone(&metrics));
        Self {
            gate: Arc::new(Gate::new(store, rules).with_instances(config.instances)),
            book,
            access: Access::new(config.tokens.clone()),
            identity: Arc::default(),
            headers: config.headers,
            encoded_slashes: config.encoded_slashes,
            trust_timestamps: config.trust_timestamps,
            throttle_on_failure: config.throttle_on_store_failure,
            metrics,
            front_ends: front_ends(config),
            gateway: None,
            data: None,
            counters: None,
            denials: DenialLog::new(config.key_secret.as_ref()),
            latest_time: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
        }
    }

    /// The same server, which knows its clients.
    pub(crate) fn with_identity(self, identity: Arc<Identity>) -> Self {
        Self { identity, ..self }
    }

    /// A layer that puts requests to the gate, and counts and logs what it decides.
    pub(crate) fn limits(self: &Arc<Self>) -> RateLimitLayer<Measured<AnyStore>> {
        let observing = Arc::clone(self);
        RateLimitLayer::new(Arc::clone(&self.gate))
            .headers(self.headers)
            .on_decision(move |decision, attributes| observing.observe(decision, attributes))
    }

    /// Says why no request can be decided, if none can.
    pub(crate) fn ready_check(self: &Arc<Self>) -> ReadyCheck {
        let server = Arc::clone(self);
        Arc::new(move || server.book.missing_rules().map_or(Ok(()), Err))
    }

    /// Counts and logs what the middleware has decided, but for what it counts itself.
    pub(crate) fn observe(&self, decision: &Decision, attributes: &Attributes<'_>) {
        if decision.answers().len() == 0 {
            self.metrics.unmatched();
        }
        if decision.is_denied() {
            self.denials.denied(decision, attributes);
        }
    }

    /// Decides one request of a front end, and counts and logs what was decided.
    pub(crate) async fn decide(
        &self,
        attributes: &Attributes<'_>,
        front_end: FrontEnd,
    ) -> Decision {
        if let Some(at) = attributes.time() {
            let at = at.as_micros();
            self.latest_time.fetch_max(at, Ordering::Relaxed);
        }
        let start = Stopwatch::start();
        let decision = self.gate.decide(attributes).await;
        self.metrics.decided(start.elapsed());
        decision.count(front_end);
        self.observe(&decision, attributes);
        decision
    }

    /// The latest time that a request brought: the present of a replay.
    pub(crate) fn latest_time(&self) -> Option<Timestamp> {
        let micros = self.latest_time.load(Ordering::Relaxed);
        (micros > 0).then(|| Timestamp::from_micros(micros))
    }

    /// A key as it is logged.
    pub(crate) fn hashed(&self, key: &str) -> String {
        self.denials.hashed(key)
    }

    /// How much of the store answers.
    pub(crate) async fn store_health(&self) -> Health {
        self.gate.store().inner().health().await
    }

    /// What is wrong although requests can be decided.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.gate.store().inner().warnings();
        warnings.extend(self.counters.as_ref().and_then(KeptCounters::warning));
        warnings.extend(self.identity.warnings());
        warnings
    }

    /// Whether requests can be decided, as `/readyz` says.
    pub(crate) async fn is_ready(&self) -> bool {
        if self.is_draining() || !self.book.has_rules() {
            return false;
        }
        let is_down = matches!(self.store_health().await, Health::Down(_));
        !is_down || self.gate.rules().iter().all(works_without_store)
    }

    /// From now on the server says that it is not ready.
    pub(crate) fn begin_to_drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }
}

/// Whether a rule answers without the store, too.
pub(crate) fn works_without_store(rule: &Arc<Rule>) -> bool {
    rule.on_store_failure() != OnStoreFailure::Deny || rule.mode() == Mode::Shadow
}

/// The front ends that a configuration turns on.
fn front_ends(config: &Config) -> Vec<FrontEnd> {
    FrontEnd::ALL
        .into_iter()
        .filter(|front_end| match front_end {
            FrontEnd::Library => false,
            FrontEnd::Http | FrontEnd::Authorize => true,
            FrontEnd::Grpc => config.grpc.is_some(),
            FrontEnd::Resp => config.resp.is_some(),
            FrontEnd::Gateway => config.gateway.is_some(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is decided in memory is moved about with each request, on its way to a task of its own.
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
