//! Decides while the store is unavailable, by each rule's `on_store_failure`.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Limit, Micros, Outcome, RemoteStore, Retry, Timestamp};

use super::Gate;
use super::in_force::InForce;
use super::local::{LocalCharge, LocalRequest};
use super::pipeline::{Pipeline, Step, Verb};
use super::rule_decision::{LimitDecision, RuleDecision};
use crate::reason::Reason;
use crate::rules::{OnStoreFailure, Share, add_one};

/// When to retry a request that was denied because the store is unavailable.
const TRY_AGAIN: Micros = Micros::SECOND;

/// This instance's shares of the limits of one rule.
type RuleShares = SmallVec<[Arc<Share>; 2]>;

impl Gate {
    /// Decides a step for which the store gave no answer, as its rules say.
    pub(super) fn decide_without_store(&self, pipeline: &mut Pipeline, step: Step) {
        let (at, permit) = (pipeline.at, pipeline.permit_for(step));
        let (mut verb, is_counted) = (pipeline.verb(step), !pipeline.is_preview);
        let now = at.unwrap_or_else(|| self.clock.now());
        self.end_due_alone(at);
        let (in_force, rules) = pipeline.rules_of_mut(step);
        let policy = |rule: &RuleDecision| match in_force.at(rule.rule).on_store_failure() {
            // A rule that is charged nothing has nothing to deny.
            OnStoreFailure::Deny | OnStoreFailure::Error if rule.is_uncharged => {
                OnStoreFailure::Allow
            }
            policy => policy,
        };
        let mut rules: SmallVec<[(&mut RuleDecision, RuleShares); 2]> = rules
            .filter(|rule| rule.key.is_some() && !rule.is_compared(in_force))
            .map(|rule| {
                let shares = self.shares_of(in_force, rule);
                (rule, shares)
            })
            .collect();
        for (rule, _) in &rules {
            if matches!(policy(rule), OnStoreFailure::Deny | OnStoreFailure::Error) {
                verb = Verb::Peek;
            }
            if is_counted {
                let counts = in_force.state(rule.rule).counts();
                add_one(&counts.degraded[policy(rule) as usize]);
            }
        }
        let charges: SmallVec<[LocalCharge<'_>; 4]> = rules
            .iter()
            .flat_map(|(rule, shares)| {
                let (key, cost) = (rule.key.as_deref().unwrap_or_default(), rule.cost);
                let charge = move |share| LocalCharge { share, key, cost };
                shares.iter().map(charge)
            })
            .collect();
        let request = LocalRequest {
            charges: &charges,
            at,
            permit,
            verb,
        };
        let outcomes = self.local.charge(&request, self.store.remote());
        drop(charges);
        let mut outcomes = outcomes.iter().copied();
        for (rule, shares) in &mut rules {
            let (policy, cost) = (policy(rule), rule.cost);
            let limits = rule.limits(in_force).iter();
            let capacities: SmallVec<[u64; 2]> = limits.map(Limit::capacity).collect();
            let mut shares = shares.drain(..);
            let answer = |capacity: u64| {
                let mut answer = match policy {
                    OnStoreFailure::Allow => LimitDecision::of(unknown(true, capacity, now)),
                    OnStoreFailure::Deny | OnStoreFailure::Error => LimitDecision {
                        failure: Some(Reason::StoreUnavailable),
                        ..LimitDecision::of(unknown(false, capacity, now))
                    },
                    OnStoreFailure::Local => {
                        let outcome = outcomes.next();
                        let answer = outcome.map_or(LimitDecision::blocked(now), LimitDecision::of);
                        // More than the share can ever grant, and no more than the whole limit.
                        let is_never = answer.outcome.retry == Retry::Never && cost <= capacity;
                        LimitDecision {
                            failure: is_never.then_some(Reason::StoreUnavailable),
                            share: shares.next(),
                            ..answer
                        }
                    }
                };
                answer.is_degraded = true;
                answer
            };
            rule.answers = capacities.into_iter().map(answer).collect();
            rule.deny_exceeded(now);
        }
    }

    /// This instance's shares of the limits of a rule; none of a rule that does not decide locally.
    pub(super) fn shares_of(&self, in_force: &InForce, decided: &RuleDecision) -> RuleShares {
        let rule = in_force.at(decided.rule);
        if decided.key.is_none() || rule.on_store_failure() != OnStoreFailure::Local {
            return RuleShares::new();
        }
        if let Some(limit) = &decided.current_limit {
            return std::iter::once(Share::of(rule.scope(), limit, self.instances())).collect();
        }
        let shares = in_force.shares(self.instances());
        let shares = shares.limits(decided.rule, decided.grant).iter();
        shares.map(Arc::clone).collect()
    }

    /// How many instances share the store: as it last said, and at least as many as are configured.
    pub(super) fn instances(&self) -> u64 {
        let known = self.store.remote().and_then(RemoteStore::instances);
        known.unwrap_or(1).max(self.instances).max(1)
    }
}

/// The outcome of a limit whose usage is unknown.
pub(super) fn unknown(allowed: bool, capacity: u64, now: Timestamp) -> Outcome {
    Outcome {
        allowed,
        limit: capacity,
        remaining: if allowed { capacity } else { 0 },
        exceeded: 0,
        retry: if allowed {
            Retry::Now
        } else {
            Retry::After(TRY_AGAIN)
        },
        reset_at: now,
        delay: Micros::ZERO,
        at: now,
        is_remembered: false,
    }
}
