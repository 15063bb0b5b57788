//! What happens to a request while the store is unavailable: what each of its rules says.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Limit, Micros, Outcome, Retry, SharedStore, Store, Timestamp};

use super::Gate;
use super::group::Verb;
use super::local::{LocalCharge, LocalRequest};
use super::matching::MatchedRule;
use super::pipeline::Pipeline;
use crate::reason::Reason;
use crate::rules::{OnStoreFailure, RuleSet, Share, add_one};

/// When to retry a request that was denied because the store is unavailable.
const TRY_AGAIN: Micros = Micros::SECOND;

/// This instance's shares of the limits of one rule.
type RuleShares = SmallVec<[Arc<Share>; 2]>;

impl<S: Store> Gate<S> {
    /// Decides a group for which the store gave no answer, as its rules say.
    pub(super) fn decide_without_store(&self, pipeline: &mut Pipeline<'_>, index: usize) {
        let (at, permit) = (pipeline.at, pipeline.permit_for(index));
        let mut verb = pipeline.verb(index);
        let is_counted = !pipeline.is_preview;
        let (rules, group) = (&pipeline.rules, &mut pipeline.groups[index]);
        let now = at.unwrap_or_else(|| self.clock.now());
        let policy = |matched: &MatchedRule<'_>| rules.at(matched.rule).on_store_failure();
        for matched in group.matched.iter().filter(|rule| rule.key.is_some()) {
            if policy(matched) == OnStoreFailure::Deny {
                verb = Verb::Peek;
            }
            if is_counted {
                add_one(&rules.at(matched.rule).counts().degraded[policy(matched) as usize]);
            }
        }
        let shares: SmallVec<[RuleShares; 2]> = group
            .matched
            .iter()
            .map(|matched| self.shares_of(rules, matched))
            .collect();
        let rules_and_shares = group.matched.iter().zip(&shares);
        let charges: SmallVec<[LocalCharge<'_>; 4]> = rules_and_shares
            .flat_map(|(matched, shares)| {
                let (key, cost) = (matched.key.as_deref().unwrap_or_default(), matched.cost);
                shares
                    .iter()
                    .map(move |share| LocalCharge { share, key, cost })
            })
            .collect();
        let request = LocalRequest {
            charges: &charges,
            at,
            permit,
            verb,
        };
        let outcomes = self.local.charge(&request, self.store.shared());
        drop(charges);
        let mut outcomes = outcomes.into_iter();
        for ((matched, limits), shares) in group.limits_by_rule().zip(shares) {
            let mut shares = shares.into_iter();
            for limit in limits.iter_mut().filter(|limit| limit.is_charged) {
                limit.is_degraded = true;
                let capacity = limit.limit(rules).map_or(0, Limit::capacity);
                match policy(matched) {
                    OnStoreFailure::Allow => limit.outcome = unknown(true, capacity, now),
                    OnStoreFailure::Deny => {
                        limit.outcome = unknown(false, capacity, now);
                        limit.failure = Some(Reason::StoreUnavailable);
                    }
                    OnStoreFailure::Local => {
                        limit.outcome = outcomes.next().unwrap_or(limit.outcome);
                        limit.share = shares.next();
                        // More than the share can ever grant, and no more than the whole limit.
                        if limit.outcome.retry == Retry::Never && matched.cost <= capacity {
                            limit.failure = Some(Reason::StoreUnavailable);
                        }
                    }
                }
            }
        }
    }

    /// This instance's shares of the limits of a rule; none of a rule that does not decide locally.
    pub(super) fn shares_of(&self, rules: &RuleSet, matched: &MatchedRule<'_>) -> RuleShares {
        let rule = rules.at(matched.rule);
        if matched.key.is_none() || rule.on_store_failure() != OnStoreFailure::Local {
            return RuleShares::new();
        }
        if let Some(limit) = &matched.current_limit {
            return std::iter::once(Share::of(rule.scope(), limit, self.instances())).collect();
        }
        let shares = rules.shares(self.instances());
        let shares = shares.limits(matched.rule, matched.grant).iter();
        shares.map(Arc::clone).collect()
    }

    /// How many instances share the store: as it last said, and at least as many as are configured.
    pub(super) fn instances(&self) -> u64 {
        let known = self.store.shared().and_then(SharedStore::instances);
        known.unwrap_or(1).max(self.instances).max(1)
    }
}

/// The outcome of a limit whose usage is unknown.
pub(super) fn unknown(allowed: bool, capacity: u64, now: Timestamp) -> Outcome {
    Outcome {
        allowed,
        limit: capacity,
        remaining: if allowed { capacity } else { 0 },
        retry: if allowed {
            Retry::Now
        } else {
            Retry::After(TRY_AGAIN)
        },
        reset_at: now,
        delay: Micros::ZERO,
        at: now,
    }
}
