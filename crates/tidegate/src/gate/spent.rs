//! Settles what parts of a request have spent already although it was not charged: by rules that settle,
//! as far as it fits.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Charge, Outcome, RemoteStore};

use super::Gate;
use super::local::LocalCharge;
use super::pipeline::{Pipeline, StoreCall, Verb};
use super::rule_decision::{ChargeEffect, ChargeStage, RuleDecision};

impl Pipeline {
    /// Marks the rules to settle: those that settle and were not charged for a part that has spent its
    /// cost, because the part was denied, or because the whole request was and all of it has been spent.
    /// Whether there are any.
    pub(super) fn mark_spent(&mut self) -> bool {
        if !self.parts.iter().any(|part| part.is_spent) {
            return false;
        }
        let mut taking = self.parts.iter().filter(|part| part.cost > 0);
        let is_whole_uncharged = !self.is_allowed() && taking.all(|part| part.is_spent);
        let enforced = self
            .rules
            .iter()
            .filter(|rule| rule.stage == ChargeStage::Enforced);
        let denied: SmallVec<[usize; 4]> = enforced
            .filter(|rule| !rule.is_allowed())
            .map(|rule| rule.part)
            .collect();
        let mut is_any = false;
        let rules = self.rules.iter_mut();
        for rule in rules.filter(|rule| rule.effect != ChargeEffect::InFull) {
            let is_uncharged = match rule.stage {
                ChargeStage::Peek | ChargeStage::Address | ChargeStage::Permit => false,
                ChargeStage::Enforced => is_whole_uncharged || denied.contains(&rule.part),
                ChargeStage::Shadow => !rule.is_allowed(),
            };
            let is_spent = self.parts[rule.part - self.first_part].is_spent;
            if is_uncharged && is_spent && self.in_force.at(rule.rule).settles() {
                rule.effect = ChargeEffect::Settled;
                is_any = true;
            }
        }
        is_any
    }

    /// The call to the store that settles what is marked.
    pub(super) fn settle_call(&self) -> StoreCall<'_> {
        let settled = self.rules.iter().filter(|rule| is_settled(rule));
        let charges = settled.flat_map(|rule| rule.charges(&self.in_force));
        StoreCall {
            charges: charges.filter(is_counted).collect(),
            verb: Verb::Charge,
            at: self.at,
            permit: None,
        }
    }

    /// Records what the store answers about the same charges after that. Whether the limits allow the request stays as
    /// it was.
    pub(super) fn record_settled(&mut self, outcomes: &[Outcome]) {
        let mut outcomes = outcomes.iter();
        for rule in self.rules.iter_mut().filter(|rule| is_settled(rule)) {
            let charges = rule.charges(&self.in_force);
            let are_counted: SmallVec<[bool; 2]> =
                charges.map(|charge| is_counted(&charge)).collect();
            let answers = rule.answers.iter_mut().zip(are_counted);
            for (answer, _) in answers.filter(|(_, is_counted)| *is_counted) {
                let Some(settled) = outcomes.next() else {
                    return;
                };
                record_settled(&mut answer.outcome, settled);
            }
        }
    }
}

/// Records what a limit answers to the same charge after it was settled.
fn record_settled(outcome: &mut Outcome, settled: &Outcome) {
    outcome.remaining = settled.remaining;
    outcome.exceeded = settled.exceeded;
    outcome.reset_at = settled.reset_at;
    // One that fits is counted now, and the request is denied by others.
    if !outcome.allowed {
        outcome.retry = settled.retry.max(outcome.retry);
    }
}

/// Whether a rule is settled in the store.
fn is_settled(rule: &RuleDecision) -> bool {
    rule.effect == ChargeEffect::Settled && !rule.is_degraded()
}

/// Concurrency has nothing to settle.
fn is_counted(charge: &Charge<'_>) -> bool {
    !charge.limit.is_concurrency()
}

impl Gate {
    /// Settles what was spent: in the store, or locally what the store could not decide.
    pub(super) async fn settle_spent(&self, store: &dyn RemoteStore, pipeline: &mut Pipeline) {
        if !pipeline.mark_spent() {
            return;
        }
        self.settle_locally(pipeline, true);
        let call = pipeline.settle_call();
        if call.charges.is_empty() {
            return;
        }
        match store.settle(&call.request()).await {
            Ok(settled) => {
                // How long the request has to wait now, the store knows alone.
                let asked = store.peek(&call.request()).await;
                drop(call);
                pipeline.record_settled(&asked.unwrap_or(settled));
            }
            Err(error) if error.left_nothing() => {
                drop(call);
                self.settle_locally(pipeline, false);
            }
            // It may have happened.
            Err(_) => {}
        }
    }

    /// Settles locally what was decided without the store, or what was decided by it. Of the first, records what is
    /// left here after that.
    fn settle_locally(&self, pipeline: &mut Pipeline, is_degraded: bool) {
        let (in_force, at) = (Arc::clone(&pipeline.in_force), pipeline.at);
        let rules = pipeline.rules.iter_mut();
        let rules = rules.filter(|rule| rule.effect == ChargeEffect::Settled);
        for rule in rules.filter(|rule| rule.is_degraded() == is_degraded) {
            let (shares, cost) = (self.shares_of(&in_force, rule), rule.cost);
            let Some(key) = rule.key.as_deref() else {
                continue;
            };
            let counted = shares.iter().zip(&mut rule.answers);
            for (share, answer) in counted.filter(|(share, _)| !share.whole.is_concurrency()) {
                let charge = LocalCharge { share, key, cost };
                self.local.settle(&charge, at);
                if is_degraded && let Some(settled) = self.local.peek(&charge, at) {
                    record_settled(&mut answer.outcome, &settled);
                }
            }
        }
    }
}
