//! Settles what parts of a request have spent already although it was not charged: by rules that settle,
//! as far as it fits.

use smallvec::SmallVec;
use tidegate_core::{Charge, Outcome, Store};

use super::Gate;
use super::decision::DecidedLimit;
use super::group::{Group, GroupKind, StoreCall, Verb};
use super::local::LocalCharge;
use super::matching::MatchedRule;
use super::pipeline::Pipeline;
use crate::rules::RuleSet;

impl Pipeline<'_> {
    /// Marks the rules to settle: those that settle and were not charged for a part that has spent its
    /// cost, because the part was denied, or because the whole request was and all of it has been spent.
    /// Whether there are any.
    pub(super) fn mark_spent(&mut self) -> bool {
        if !self.parts.iter().any(|part| part.is_spent) {
            return false;
        }
        let mut taking = self.parts.iter().filter(|part| part.cost > 0);
        let is_whole_uncharged = !self.is_allowed() && taking.all(|part| part.is_spent);
        let mut is_any = false;
        for group in &mut self.groups {
            let limits = group.limits_of_rules();
            let denied: SmallVec<[usize; 4]> = limits
                .filter(|(_, limit)| !limit.outcome.allowed)
                .map(|(rule, _)| rule.part)
                .collect();
            for rule in &mut group.matched {
                let is_uncharged = match group.kind {
                    GroupKind::Peek | GroupKind::Address => false,
                    GroupKind::Enforced => is_whole_uncharged || denied.contains(&rule.part),
                    GroupKind::Shadow => !denied.is_empty(),
                };
                let is_spent = self.parts[rule.part - self.first_part].is_spent;
                rule.is_settled = is_uncharged && is_spent && self.rules.at(rule.rule).settles();
                is_any |= rule.is_settled;
            }
        }
        is_any
    }

    /// The call to the store that settles what is marked.
    pub(super) fn settle_call(&self) -> StoreCall<'_> {
        let limits = self.groups.iter().flat_map(Group::limits_of_rules);
        let settled = limits.filter(|(rule, limit)| is_settled(&self.rules, rule, limit));
        let charges = settled.map(|(rule, decided)| Charge {
            scope: self.rules.at(rule.rule).scope(),
            limit: &rule.limits(&self.rules)[decided.limit],
            key: rule.key.as_deref().unwrap_or_default(),
            cost: rule.cost,
        });
        StoreCall {
            charges: charges.collect(),
            verb: Verb::Charge,
            at: self.at,
            permit: None,
        }
    }

    /// Records what the store answers about the same charges after that. Whether the limits allow the request stays as
    /// it was.
    pub(super) fn record_settled(&mut self, outcomes: &[Outcome]) {
        let rules = &self.rules;
        let groups = self.groups.iter_mut();
        let limits = groups
            .flat_map(Group::limits_by_rule)
            .flat_map(|(rule, limits)| limits.iter_mut().map(move |limit| (rule, limit)));
        let settled = limits.filter(|(rule, limit)| is_settled(rules, rule, limit));
        for ((_, limit), settled) in settled.zip(outcomes) {
            let outcome = &mut limit.outcome;
            outcome.remaining = settled.remaining;
            outcome.reset_at = settled.reset_at;
            // One that fits is counted now, and the request is denied by others.
            if !outcome.allowed {
                outcome.retry = settled.retry.max(outcome.retry);
            }
        }
    }
}

/// Whether a limit is settled in the store. Concurrency has nothing to settle.
fn is_settled(rules: &RuleSet, rule: &MatchedRule<'_>, limit: &DecidedLimit) -> bool {
    let is_counted = || {
        limit
            .limit(rules)
            .is_some_and(|limit| !limit.is_concurrency())
    };
    rule.is_settled && !limit.is_degraded && is_counted()
}

impl<S: Store> Gate<S> {
    /// Settles what was spent: in the store, or locally what the store could not decide.
    pub(super) async fn settle_spent(&self, pipeline: &mut Pipeline<'_>) {
        if !pipeline.mark_spent() {
            return;
        }
        self.settle_locally(pipeline, true);
        let call = pipeline.settle_call();
        if call.charges.is_empty() {
            return;
        }
        match self.store.settle(&call.request()).await {
            Ok(settled) => {
                // How long the request has to wait now, the store knows alone.
                let asked = self.store.peek(&call.request()).await;
                drop(call);
                pipeline.record_settled(&asked.unwrap_or(settled));
            }
            Err(error) if error.left_nothing() => self.settle_locally(pipeline, false),
            // It may have happened.
            Err(_) => {}
        }
    }

    /// Settles locally what was decided without the store, or what was decided by it.
    fn settle_locally(&self, pipeline: &Pipeline<'_>, is_degraded: bool) {
        let limits = pipeline.groups.iter().flat_map(Group::limits_of_rules);
        let settled =
            limits.filter(|(rule, limit)| rule.is_settled && limit.is_degraded == is_degraded);
        for (rule, limit) in settled {
            let shares = self.shares_of(&pipeline.rules, rule);
            let share = shares
                .get(limit.limit)
                .filter(|share| !share.whole.is_concurrency());
            if let (Some(share), Some(key)) = (share, &rule.key) {
                let cost = rule.cost;
                self.local
                    .settle(&LocalCharge { share, key, cost }, pipeline.at);
            }
        }
    }
}
