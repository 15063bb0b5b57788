//! Settles what parts of a request have spent already although it was not charged: by rules that settle,
//! as far as it fits.

use smallvec::SmallVec;
use tidegate_core::{Charge, Outcome, Store};

use super::Gate;
use super::group::{Group, GroupKind, StoreCall};
use super::local::{LocalCharge, is_concurrency};
use super::pipeline::Pipeline;

/// A limit that is settled for what was spent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpentLimit {
    group: usize,
    /// The index of its rule among those of the group.
    matched: usize,
    /// Its index among the limits of the group.
    decided: usize,
    /// Its index among the limits of the rule.
    limit: usize,
}

type SpentLimits = SmallVec<[SpentLimit; 4]>;

impl Pipeline<'_> {
    /// The limits to settle: of rules that settle and were not charged for a part that has spent its cost,
    /// because the part was denied, or because the whole request was and all of it has been spent.
    pub(super) fn spent(&self) -> SpentLimits {
        let mut spent = SpentLimits::new();
        if !self.parts.iter().any(|part| part.is_spent) {
            return spent;
        }
        let mut taking = self.parts.iter().filter(|part| part.cost > 0);
        let is_whole_uncharged = !self.is_allowed() && taking.all(|part| part.is_spent);
        for (index, group) in self.groups.iter().enumerate() {
            let denied = denied_parts(group);
            let is_uncharged = |part: usize| match group.kind {
                GroupKind::Peek => false,
                GroupKind::Enforced => is_whole_uncharged || denied.contains(&part),
                GroupKind::Shadow => !denied.is_empty(),
            };
            let mut decided = 0;
            for (matched, rule) in group.matched.iter().enumerate() {
                let limits = rule.limits(&self.rules);
                let is_settled = self.rules.at(rule.rule).settles()
                    && self.part(rule.part).is_spent
                    && is_uncharged(rule.part);
                let settled = limits.iter().enumerate().filter(|_| is_settled);
                for (limit, _) in settled.filter(|(_, limit)| !is_concurrency(limit)) {
                    spent.push(SpentLimit {
                        group: index,
                        matched,
                        decided: decided + limit,
                        limit,
                    });
                }
                decided += limits.len().max(1);
            }
        }
        spent
    }

    fn charge(&self, spent: &SpentLimit) -> Charge<'_> {
        let rule = &self.groups[spent.group].matched[spent.matched];
        Charge {
            scope: self.rules.at(rule.rule).scope(),
            limit: &rule.limits(&self.rules)[spent.limit],
            key: rule.key.as_deref().unwrap_or_default(),
            cost: rule.cost,
        }
    }

    /// The call to the store that settles them.
    pub(super) fn settle_call(&self, spent: &[SpentLimit]) -> StoreCall<'_> {
        StoreCall {
            charges: spent.iter().map(|spent| self.charge(spent)).collect(),
            is_peek: false,
            at: self.at,
            permit: None,
        }
    }

    /// Records what is left after they were settled. Whether they allow the request stays as it was.
    pub(super) fn record_settled(&mut self, spent: &[SpentLimit], outcomes: &[Outcome]) {
        for (spent, settled) in spent.iter().zip(outcomes) {
            let outcome = &mut self.groups[spent.group].limits[spent.decided].outcome;
            outcome.remaining = settled.remaining;
            outcome.reset_at = settled.reset_at;
            // One that fits is counted now, and the request is denied by others.
            if !outcome.allowed {
                outcome.retry = settled.retry.max(outcome.retry);
            }
        }
    }

    fn is_degraded(&self, spent: &SpentLimit) -> bool {
        self.groups[spent.group].limits[spent.decided].is_degraded
    }
}

/// The parts that a limit of the group denies.
fn denied_parts(group: &Group<'_>) -> SmallVec<[usize; 4]> {
    let denied = group
        .limits_of_parts()
        .filter(|(_, limit)| !limit.outcome.allowed);
    denied.map(|(part, _)| part).collect()
}

impl<S: Store> Gate<S> {
    /// Settles what was spent: in the store, or locally what the store could not decide.
    pub(super) async fn settle_spent(&self, pipeline: &mut Pipeline<'_>) {
        let (degraded, spent): (SpentLimits, SpentLimits) = pipeline
            .spent()
            .into_iter()
            .partition(|spent| pipeline.is_degraded(spent));
        for spent in &degraded {
            self.settle_locally(pipeline, spent);
        }
        if spent.is_empty() {
            return;
        }
        let call = pipeline.settle_call(&spent);
        match self.store.settle(&call.request()).await {
            Ok(outcomes) => {
                drop(call);
                pipeline.record_settled(&spent, &outcomes);
            }
            Err(error) if error.left_nothing() => {
                for spent in &spent {
                    self.settle_locally(pipeline, spent);
                }
            }
            // It may have happened.
            Err(_) => {}
        }
    }

    fn settle_locally(&self, pipeline: &Pipeline<'_>, spent: &SpentLimit) {
        let rule = &pipeline.groups[spent.group].matched[spent.matched];
        let shares = self.shares_of(&pipeline.rules, rule);
        if let (Some(share), Some(key)) = (shares.get(spent.limit), &rule.key) {
            let cost = rule.cost;
            self.local
                .settle(&LocalCharge { share, key, cost }, pipeline.at);
        }
    }
}
