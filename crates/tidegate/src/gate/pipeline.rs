//! The steps of one decision, without I/O: rules that match → calls to the store → outcomes → decisions.
//! `deciding.rs` makes the calls.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Charge, Costs, Limit, Outcome, PermitId, Request, Timestamp};

use super::decision::Decision;
use super::decisions::Decisions;
use super::feedback::note_use;
use super::in_force::InForce;
use super::parts::Part;
use super::receipt::Receipt;
use super::rule_decision::{ChargeEffect, ChargeStage, RuleDecision, RuleDecisions};
use crate::reason::Reason;

/// One request on its way to a decision: all of its enforced limits are charged, or none.
#[derive(Debug, Clone)]
pub(super) struct Pipeline {
    pub(super) in_force: Arc<InForce>,
    /// The rules that apply, in the order of the parts, then of the rules.
    pub(super) rules: RuleDecisions,
    /// The time of the request, if it brings one.
    pub(super) at: Option<Timestamp>,
    pub(super) now: Timestamp,
    /// The id of the permits that the request will hold under concurrency limits, if there are any.
    pub(super) permit: Option<PermitId>,
    /// The parts of the request that it decides; none if the request has no parts.
    pub(super) parts: SmallVec<[PipelinePart; 1]>,
    /// The index of the first of these parts.
    pub(super) first_part: usize,
    /// Whether nothing is to be charged.
    pub(super) is_preview: bool,
    /// Whether shadow rules, too, are charged only if no enforced rule denies.
    pub(super) is_together: bool,
}

/// What matters about a part after its rules have matched.
#[derive(Debug, Clone, Copy)]
pub(super) struct PipelinePart {
    pub(super) cost: u64,
    /// Whether the cost has been spent already.
    pub(super) is_spent: bool,
}

/// The rules that one call to the store is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// All of a stage, together.
    Together(ChargeStage),
    /// The shadow rule with this index among those that apply.
    Shadow(usize),
}

/// What a store is asked to do with charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Take them.
    Charge,
    /// Take them in full without asking, and say whether they would have been allowed.
    Take,
    /// Say whether they would be allowed, over the state as it is.
    Peek,
    /// Answer as if they were taken.
    Preview,
}

/// A call to the store.
pub(super) struct StoreCall<'c> {
    pub(super) charges: SmallVec<[Charge<'c>; 2]>,
    pub(super) verb: Verb,
    pub(super) at: Option<Timestamp>,
    pub(super) permit: Option<PermitId>,
}

impl StoreCall<'_> {
    pub(super) fn request(&self) -> Request<'_> {
        Request {
            charges: &self.charges,
            at: self.at,
            permit: self.permit,
        }
    }
}

impl Step {
    #[inline]
    pub(super) fn is_about(self, index: usize, rule: &RuleDecision) -> bool {
        match self {
            Self::Together(stage) => rule.stage == stage,
            Self::Shadow(only) => index == only,
        }
    }
}

impl Pipeline {
    /// A pipeline without rules. Those that apply are appended, and then [ordered](Self::order).
    #[inline]
    pub(super) fn new(in_force: Arc<InForce>, (at, now): (Option<Timestamp>, Timestamp)) -> Self {
        Self {
            in_force,
            rules: RuleDecisions::new(),
            at,
            now,
            permit: None,
            parts: SmallVec::new(),
            first_part: 0,
            is_preview: false,
            is_together: false,
        }
    }

    /// Decides which rules are charged first, once those that apply are known.
    #[inline]
    pub(super) fn order(&mut self) {
        let is_refused =
            |rule: &RuleDecision| rule.stage == ChargeStage::Enforced && rule.refusal().is_some();
        if self.rules.iter().any(is_refused) {
            for rule in &mut self.rules {
                if counts_guesses(&self.in_force, rule) {
                    rule.stage = ChargeStage::Address;
                }
            }
        }
    }

    /// Charges enforced rules that take a permit before the others, because a record does not have the permit.
    pub(super) fn charge_permits_apart(&mut self) {
        for rule in &mut self.rules {
            if rule.stage == ChargeStage::Enforced && rule.takes_permit(&self.in_force) {
                rule.stage = ChargeStage::Permit;
            }
        }
    }

    /// Whether a rule of a step takes a permit.
    pub(super) fn takes_permit(&self, step: Step) -> bool {
        self.rules_of(step)
            .any(|rule| rule.takes_permit(&self.in_force))
    }

    /// The same pipeline, for these parts of a request.
    pub(super) fn for_parts(self, parts: &[Part<'_>], first_part: usize) -> Self {
        let part = |part: &Part<'_>| PipelinePart {
            cost: part.attributes.costs().plain().unwrap_or(1),
            is_spent: part.is_spent,
        };
        Self {
            parts: parts.iter().map(part).collect(),
            first_part,
            ..self
        }
    }

    /// The steps in which the store is asked, in their order: those for shadow rules come last, and do not depend on
    /// each other.
    #[inline]
    pub(super) fn steps(&self) -> SmallVec<[Step; 2]> {
        let mut steps = SmallVec::new();
        for stage in [
            ChargeStage::Peek,
            ChargeStage::Address,
            ChargeStage::Permit,
            ChargeStage::Enforced,
        ] {
            if self.rules.iter().any(|rule| rule.stage == stage) {
                steps.push(Step::Together(stage));
            }
        }
        let rules = self.rules.iter().enumerate();
        let shadows = rules.filter(|(_, rule)| rule.stage == ChargeStage::Shadow);
        steps.extend(shadows.map(|(index, _)| Step::Shadow(index)));
        steps
    }

    /// The rules of a step.
    #[inline]
    fn rules_of(&self, step: Step) -> impl Iterator<Item = &RuleDecision> {
        let rules = self.rules.iter().enumerate();
        let own = rules.filter(move |(index, rule)| step.is_about(*index, rule));
        own.map(|(_, rule)| rule)
    }

    /// The rules of a step, to be changed, and the set that they are of.
    #[inline]
    pub(super) fn rules_of_mut(
        &mut self,
        step: Step,
    ) -> (&InForce, impl Iterator<Item = &mut RuleDecision>) {
        let rules = self.rules.iter_mut().enumerate();
        let own = rules.filter(move |(index, rule)| step.is_about(*index, rule));
        (&self.in_force, own.map(|(_, rule)| rule))
    }

    /// The call to the store for a step.
    #[inline]
    pub(super) fn call(&self, step: Step) -> StoreCall<'_> {
        let rules = self.rules_of(step);
        StoreCall {
            charges: rules
                .flat_map(|rule| rule.charges(&self.in_force))
                .collect(),
            verb: self.verb(step),
            at: self.at,
            permit: self.permit_for(step),
        }
    }

    /// What is done with the charges of a step. The enforced rules of a request that is denied already are
    /// only peeked.
    pub(super) fn verb(&self, step: Step) -> Verb {
        let denies_outright = || self.rules_of(step).any(|rule| rule.key.is_none());
        let is_peek = match step {
            Step::Together(ChargeStage::Peek) => true,
            Step::Together(ChargeStage::Permit) => !self.is_allowed(),
            Step::Together(ChargeStage::Enforced) => {
                let mut earlier = self
                    .rules
                    .iter()
                    .filter(|rule| rule.stage < ChargeStage::Enforced);
                denies_outright() || !earlier.all(RuleDecision::lets_pass)
            }
            Step::Together(ChargeStage::Address) => denies_outright(),
            Step::Together(ChargeStage::Shadow) | Step::Shadow(_) => self.is_denied_together(),
        };
        let takes = |rule: &RuleDecision| rule.effect == ChargeEffect::InFull;
        let is_taken = || !self.parts.is_empty() && self.rules_of(step).all(takes);
        match is_peek {
            true => Verb::Peek,
            false if self.is_preview => Verb::Preview,
            false if is_taken() => Verb::Take,
            false => Verb::Charge,
        }
    }

    /// Whether the parts are charged as a whole, and nothing is because one of them is denied.
    fn is_denied_together(&self) -> bool {
        let denies =
            |rule: &RuleDecision| rule.stage == ChargeStage::Enforced && !rule.is_allowed();
        self.is_together && self.rules.iter().any(denies)
    }

    /// Records what the store answered to the call of a step.
    #[inline]
    pub(super) fn record(&mut self, step: Step, outcomes: &[Outcome]) {
        let now = self.now;
        let mut outcomes = outcomes.iter().copied();
        let (in_force, rules) = self.rules_of_mut(step);
        for rule in rules {
            rule.record(in_force, &mut outcomes, now);
        }
        if step == Step::Together(ChargeStage::Peek) {
            self.deny_exceeded();
        }
    }

    /// Denies what only asks, of limits that are exceeded.
    pub(super) fn deny_exceeded(&mut self) {
        for rule in &mut self.rules {
            rule.deny_exceeded(self.now);
        }
    }

    /// Says of the concurrency limits of a step that the store has no memory for another permit.
    #[cold]
    pub(super) fn refuse_permits(&mut self, step: Step) {
        let (in_force, rules) = self.rules_of_mut(step);
        for rule in rules {
            let is_concurrency: SmallVec<[bool; 2]> = {
                let limits = rule.limits(in_force).iter();
                limits.map(Limit::is_concurrency).collect()
            };
            for (answer, is_concurrency) in rule.answers.iter_mut().zip(is_concurrency) {
                if is_concurrency && !answer.outcome.allowed {
                    answer.failure = Some(Reason::StoreUnavailable);
                }
            }
        }
    }

    /// Shadow rules hold no permit for a request that is denied.
    pub(super) fn permit_for(&self, step: Step) -> Option<PermitId> {
        let is_shadow = matches!(step, Step::Shadow(_));
        self.permit.filter(|_| !is_shadow || self.is_allowed())
    }

    /// Whether no enforced rule has denied.
    pub(super) fn is_allowed(&self) -> bool {
        self.rules.iter().all(RuleDecision::lets_pass)
    }

    /// The decision that a request would get.
    pub(super) fn into_preview(self) -> Decision {
        Decision::new(self.in_force, self.rules, None)
    }

    /// The decision, of a request without parts.
    #[inline]
    pub(super) fn into_receipt(self, estimate: Costs) -> Receipt {
        note_use(&self.in_force, &self.rules);
        let permit = self.permit.filter(|_| self.is_allowed());
        let decision = Decision::new(self.in_force, self.rules, permit);
        Receipt::new(Decisions::one(decision), self.at, estimate)
    }

    /// The decision about each part.
    pub(super) fn finish_parts(mut self, decisions: &mut SmallVec<[Decision; 1]>) {
        if self.is_denied_together() {
            for rule in &mut self.rules {
                rule.effect = ChargeEffect::Withheld;
            }
        }
        note_use(&self.in_force, &self.rules);
        let permit = self.permit.filter(|_| self.is_allowed());
        let mut rules = self.rules.into_iter().peekable();
        // A part that another one replaces has no rules of its own.
        for part in self.first_part..self.first_part + self.parts.len().max(1) {
            let own = std::iter::from_fn(|| rules.next_if(|rule| rule.part == part));
            let decision = Decision::new(Arc::clone(&self.in_force), own.collect(), permit);
            decisions.push(decision);
        }
    }
}

/// Whether a rule is charged for a request that is denied for its credentials. A permit would not be released.
fn counts_guesses(in_force: &InForce, rule: &RuleDecision) -> bool {
    let mut limits = rule.limits(in_force).iter();
    rule.stage == ChargeStage::Enforced
        && in_force.at(rule.rule).is_by_address()
        && rule.refusal().is_none()
        && !limits.any(Limit::is_concurrency)
}
