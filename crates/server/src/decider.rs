//! The deciding half of the server, which every front end shares.

use std::sync::Arc;

use tidegate::headers::HeaderSettings;
use tidegate::path::EncodedSlashes;
use tidegate::rules::{DenialAnswer, FrontEnd, Mode, OnStoreFailure, Rule};
use tidegate::{Attributes, Decision, Gate};
use tidegate_codec::grpc::AnswerSettings;
use tidegate_gateway::ReadyCheck;
use tidegate_identity::Identity;
use tidegate_listen::Drain;
use tidegate_ratelimit::EnvoyRatelimit;
use tidegate_redis::Health;
use tidegate_tower::RateLimitLayer;

use crate::access::Access;
use crate::body_memory::BodyMemory;
use crate::config::Config;
use crate::ratelimit_stats::ServerStats;
use crate::store::ServerStore;
use crate::telemetry::DecisionObserver;
use crate::untrusted_proxies::UntrustedProxies;

/// What is opened before requests can be decided.
pub(crate) struct DeciderParts {
    pub(crate) store: ServerStore,
    pub(crate) gate: Arc<Gate>,
    pub(crate) observer: Arc<DecisionObserver>,
    pub(crate) identity: Arc<Identity>,
    /// An error if the rules are not known yet.
    pub(crate) rules_known: ReadyCheck,
    pub(crate) bodies: BodyMemory,
    /// The stats that envoyproxy/ratelimit has, if they are shown.
    pub(crate) stats: Option<Arc<ServerStats>>,
}

/// Decides requests, whatever front end they come through.
pub(crate) struct Decider {
    pub(crate) store: ServerStore,
    pub(crate) gate: Arc<Gate>,
    pub(crate) access: Access,
    /// The memory of request bodies.
    pub(crate) bodies: BodyMemory,
    /// Identifies the clients of proxied requests.
    pub(crate) identity: Arc<Identity>,
    /// Whether `/v1/authorize` answers callers that are no proxies, although tokens are configured.
    pub(crate) open_authorize: bool,
    /// Proxies that ask `/v1/authorize` and are not trusted.
    pub(crate) untrusted_proxies: UntrustedProxies,
    /// How `%2f` in the path of a proxied request is read. `None` refuses such paths.
    pub(crate) encoded_slashes: Option<EncodedSlashes>,
    pub(crate) headers: HeaderSettings,
    /// What answers to Envoy have besides the decision.
    pub(crate) answers: AnswerSettings,
    /// What denied clients get, if it is not the usual answer.
    denied: Option<DenialAnswer>,
    pub(crate) trust_timestamps: bool,
    /// What `CL.THROTTLE` does when the store cannot answer; its limits have no rule for that.
    pub(crate) throttle_on_failure: OnStoreFailure,
    /// Observes every decision of the gate.
    pub(crate) observer: Arc<DecisionObserver>,
    /// Whether, and how, it decides in place of envoyproxy/ratelimit.
    pub(crate) envoy_ratelimit: Option<EnvoyRatelimit>,
    rules_known: ReadyCheck,
    draining: Drain,
    /// The stats that envoyproxy/ratelimit has, if they are shown.
    pub(crate) stats: Option<Arc<ServerStats>>,
}

/// Why envoyproxy/ratelimit would not decide.
const NO_CONFIGURATION: &str = "no rate limit configuration loaded";

impl Decider {
    pub(crate) fn new(config: &Config, parts: DeciderParts) -> Self {
        let DeciderParts {
            store,
            gate,
            observer,
            identity,
            rules_known,
            bodies,
            stats,
        } = parts;
        Self {
            store,
            gate,
            access: Access::new(config.tokens.clone()),
            bodies,
            identity,
            open_authorize: config.open_authorize,
            untrusted_proxies: UntrustedProxies::new(),
            encoded_slashes: config.encoded_slashes,
            headers: config.headers,
            answers: config.answers.clone(),
            denied: config.denied.clone(),
            trust_timestamps: config.trust_timestamps,
            throttle_on_failure: config.throttle_on_store_failure,
            observer,
            envoy_ratelimit: config.envoy_ratelimit,
            rules_known,
            draining: Drain::new(),
            stats,
        }
    }

    /// A middleware layer over the gate.
    pub(crate) fn limits(&self) -> RateLimitLayer {
        let layer = RateLimitLayer::new(Arc::clone(&self.gate)).headers(self.headers);
        match &self.denied {
            Some(answer) => layer.denied(answer.clone()),
            None => layer,
        }
    }

    /// An error if no request can be decided, because the rules are not known yet.
    pub(crate) fn need_rules(&self) -> Result<(), String> {
        let known = (self.rules_known)();
        match self.envoy_ratelimit {
            Some(_) => known.map_err(|_| NO_CONFIGURATION.to_owned()),
            None => known,
        }
    }

    /// Whether calls of Envoy need a token: those to envoyproxy/ratelimit have none.
    pub(crate) fn wants_tokens_of_envoy(&self) -> bool {
        self.envoy_ratelimit.is_none() && self.access.wants_tokens()
    }

    /// The same, for the gateway.
    pub(crate) fn ready_check(&self) -> ReadyCheck {
        Arc::clone(&self.rules_known)
    }

    /// Decides a request of a front end.
    pub(crate) async fn decide(
        &self,
        attributes: &Attributes<'_>,
        front_end: FrontEnd,
    ) -> Decision {
        let rules = self.gate.rules();
        let deciding = self.gate.decide_by(&rules, front_end, attributes);
        deciding.await.into_decision()
    }

    /// How much of the store answers.
    pub(crate) async fn store_health(&self) -> Health {
        self.store.health().await
    }

    /// Whether every rule can decide without the store.
    pub(crate) fn works_without_store(&self) -> bool {
        self.gate
            .rules()
            .iter()
            .all(|rule| works_without_store(&rule))
    }

    /// Whether Envoy and probes should send calls: as envoyproxy/ratelimit does in its place, else as `/readyz` reports.
    pub(crate) async fn is_serving(&self) -> bool {
        match self.envoy_ratelimit {
            Some(mode) => self.is_healthy(mode).await,
            None => self.is_ready().await,
        }
    }

    /// As `/healthcheck` reports. Without rules and without Redis it is healthy, unless the variables say otherwise:
    /// this is a probe of liveness.
    async fn is_healthy(&self, mode: EnvoyRatelimit) -> bool {
        if self.is_draining() {
            return false;
        }
        if !mode.healthy_without_configuration && self.need_rules().is_err() {
            return false;
        }
        if mode.healthy_with_domains_only && !self.gate.rules().has_domains() {
            return false;
        }
        !mode.healthy_with_redis_only || !matches!(self.store_health().await, Health::Down(_))
    }

    /// Whether requests can be decided, as `/readyz` reports.
    pub(crate) async fn is_ready(&self) -> bool {
        if self.is_draining() || self.need_rules().is_err() || self.identity.lacks_keys() {
            return false;
        }
        let is_down = matches!(self.store_health().await, Health::Down(_));
        !is_down || self.works_without_store()
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

fn works_without_store(rule: &Rule) -> bool {
    let stops = matches!(
        rule.on_store_failure(),
        OnStoreFailure::Deny | OnStoreFailure::Error
    );
    !stops || rule.mode() == Mode::Shadow
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decision future is moved with each request into its task.
    #[test]
    fn a_decision_under_way_is_small() {
        async fn decide(decider: &Decider, attributes: &Attributes<'_>) {
            decider.decide(attributes, FrontEnd::Http).await;
        }
        fn size<'s, F: Future>(_: impl FnOnce(&'s Decider, &'s Attributes<'s>) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(decide);
        assert!(size < 4_096, "{size} bytes");
    }
}
