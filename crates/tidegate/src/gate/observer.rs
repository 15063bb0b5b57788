//! Sees every decision in one place: for metrics, logs and live activity.

use std::borrow::Cow;
use std::sync::Arc;

use tidegate_core::{Charge, Costs, Limit, Micros, Timestamp};

use super::in_force::RuleState;
use super::rule_decision::{ChargeEffect, ChargeStage, RuleDecision};
use super::{Asked, Charged, Decision, Decisions, ObservedCandidate, UseCounter, WarnedLimit};
use crate::attributes::Attributes;
use crate::reason::Reason;
use crate::rules::{CounterKey, FrontEnd, Grant, GrantSource, Rule, RuleSet, Verdict};

/// Sees every decision of the gate that it is [given to](super::Gate::with_observer), whatever front end
/// asked. Called on the path of the request: it should be quick.
pub trait Observer: Send + Sync + 'static {
    /// A decision begins. Returns a reading of the observer's own clock, which it gets back at the end.
    fn begin(&self) -> u64 {
        0
    }

    /// These rules are in force from now on, or were put in force again with other temporary overrides.
    fn rules_changed(&self, _rules: &RuleSet) {}

    /// A request was decided.
    fn decided(&self, observed: &Observed<'_, '_>);

    /// A request of this process was allowed whose cost is an estimate: what it cost is [reported](Self::settled) once,
    /// when that is known.
    fn reserved(&self, observed: &Observed<'_, '_>) {
        self.decided(observed);
    }

    /// What a request cost after all that was [reserved](Self::reserved): all costs, or one. If it was not settled, the
    /// estimate.
    fn settled(&self, _costs: &Costs) {}

    /// A limit that the caller brought was charged.
    fn charged(&self, _began: u64, _charge: &Charge<'_>, _charged: &Charged) {}

    /// A charge or a settlement took a counter to `warn_at` of its limit.
    fn warned(&self, _warned: &WarnedLimit<'_>) {}

    /// What it keeps with a rule, for as long as a rule with this id is in force.
    fn watch(&self, _rule: &Rule) -> Option<Arc<dyn RuleWatch>> {
        None
    }
}

/// What an [observer](Observer) keeps with one rule.
pub trait RuleWatch: Send + Sync + 'static {
    /// The rule took part in a decision.
    fn decided(&self, rule: &ObservedRule<'_, '_>);

    /// The rule took part in a decision that allows a request whose cost is an estimate. What it returns is called when
    /// the cost is known.
    fn reserved(&self, rule: &ObservedRule<'_, '_>) -> Option<UseCounter> {
        self.decided(rule);
        None
    }

    /// Its candidate was asked about a request.
    fn tried(&self, _candidate: &ObservedCandidate<'_, '_>) {}
}

/// A request that was decided.
#[derive(Debug)]
pub struct Observed<'o, 'b> {
    /// What [`Observer::begin`] returned.
    pub began: u64,
    /// Who asked.
    pub front_end: FrontEnd,
    /// What was decided about each of its parts.
    pub decisions: &'o Decisions,
    pub(super) asked: Asked<'o, 'b>,
}

impl<'o, 'b> Observed<'o, 'b> {
    /// Each decision, with the attributes that it is about.
    pub fn parts(&self) -> impl Iterator<Item = ObservedPart<'o, 'b>> {
        let is_whole = match self.decisions.only() {
            Some(decision) => decision.is_allowed(),
            None => self.decisions.iter().all(Decision::is_allowed),
        };
        let parts = self.decisions.iter().zip(self.asked.parts());
        let front_end = self.front_end;
        parts.map(move |(decision, (attributes, costs))| ObservedPart {
            front_end,
            decision,
            attributes,
            costs,
            is_admitted: is_whole
                || (decision.is_allowed() && decision.in_force().is_by_descriptors()),
        })
    }
}

/// A part of a request; most requests have one.
#[derive(Debug, Clone, Copy)]
pub struct ObservedPart<'o, 'b> {
    /// Who asked.
    pub front_end: FrontEnd,
    /// What was decided about it.
    pub decision: &'o Decision,
    /// What is known of it.
    pub attributes: &'o Attributes<'b>,
    /// What it costs.
    pub costs: &'o Costs,
    /// Whether its enforced rules were charged.
    is_admitted: bool,
}

impl<'o, 'b> ObservedPart<'o, 'b> {
    /// What each rule said that applies to it, in their order. What was only compared with it is among the
    /// [candidates](Self::candidates).
    pub fn rules(&self) -> impl Iterator<Item = ObservedRule<'o, 'b>> {
        let part = *self;
        let in_force = part.decision.in_force();
        let has_candidates = in_force.trials().has_candidates();
        let rules = part.decision.rules().iter();
        let speaking =
            rules.filter(move |decided| !has_candidates || !decided.is_compared(in_force));
        speaking.map(move |decided| ObservedRule { decided, part })
    }
}

/// What a rule said to a request.
#[derive(Debug, Clone, Copy)]
pub struct ObservedRule<'o, 'b> {
    decided: &'o RuleDecision,
    part: ObservedPart<'o, 'b>,
}

impl<'o, 'b> ObservedRule<'o, 'b> {
    pub(super) fn new(decided: &'o RuleDecision, part: ObservedPart<'o, 'b>) -> Self {
        Self { decided, part }
    }

    /// The rule.
    pub fn rule(&self) -> &'o Rule {
        self.part.decision.in_force().at(self.decided.rule)
    }

    /// Its index among the rules in force; of a candidate, that of its rule.
    #[doc(hidden)]
    pub fn index(&self) -> usize {
        let in_force = self.part.decision.in_force();
        if !self.decided.is_candidate(in_force) {
            return self.decided.rule;
        }
        let is_its = |rule: &Arc<Rule>| rule.id() == self.rule().id();
        let own = in_force.iter().position(is_its);
        own.unwrap_or(self.decided.rule)
    }

    /// The index of what it grants to the request.
    #[doc(hidden)]
    pub fn grant_index(&self) -> usize {
        self.decided.grant
    }

    pub(super) fn state(&self) -> &'o RuleState {
        self.part.decision.in_force().state(self.decided.rule)
    }

    /// The part of the request that it is about.
    pub fn part(&self) -> ObservedPart<'o, 'b> {
        self.part
    }

    /// Whether any rule in force reads this attribute.
    #[doc(hidden)]
    pub fn is_read(&self, attribute: &str) -> bool {
        self.part.decision.in_force().reads(attribute)
    }

    /// What it said.
    pub fn verdict(&self) -> Verdict {
        self.decided.verdict()
    }

    /// The time as of which it was decided.
    pub fn at(&self) -> Option<Timestamp> {
        Some(self.decided.decisive()?.outcome.at)
    }

    /// Why it denies the request, or would if it were enforced.
    pub fn reason(&self) -> Option<Reason> {
        let decisive = self.decided.decisive()?;
        self.decided.reason(decisive, self.part.decision.in_force())
    }

    /// What it grants to the request, and where that comes from. Of an adaptive rule, whatever its current limit is.
    pub fn grant(&self) -> (&'o Grant, GrantSource) {
        let RuleDecision {
            rule,
            grant,
            source,
            ..
        } = self.decided;
        let grant = self.part.decision.in_force().grant(*rule, *grant);
        (grant, *source)
    }

    /// The current limit of an adaptive rule.
    pub fn current_limit(&self) -> Option<&'o Limit> {
        self.decided.current_limit.as_deref()
    }

    /// Whether it allows the request to go on only after a while, and no other rule denies it.
    pub fn is_delayed(&self) -> bool {
        let mut answers = self.decided.answers.iter();
        answers.any(|answer| answer.outcome.delay > Micros::ZERO) && self.is_admitted()
    }

    fn is_admitted(&self) -> bool {
        match self.verdict() {
            Verdict::Allowed => {
                self.part.is_admitted && self.decided.effect != ChargeEffect::Withheld
            }
            Verdict::ShadowAllowed => true,
            _ => false,
        }
    }

    /// Whether the store was unavailable.
    pub fn is_degraded(&self) -> bool {
        let decisive = self.decided.decisive();
        decisive.is_some_and(|answer| answer.is_degraded)
    }

    /// Gives it to what the observer [keeps](Observer::watch) with the rule.
    pub fn watch(&self) {
        if let Some(watch) = self.state().watch() {
            watch.decided(self);
        }
    }

    /// Counts it, with its cost.
    pub fn count(&self) {
        self.count_reserved();
        let admitted = self.admitted();
        if admitted > 0 {
            self.state().counts().count_admitted(admitted);
        }
    }

    /// Counts it without its cost, which is an estimate.
    pub fn count_reserved(&self) {
        let ObservedPart {
            front_end,
            is_admitted,
            ..
        } = self.part;
        let in_force = self.part.decision.in_force();
        self.decided.count(in_force, front_end, is_admitted);
        if self.is_delayed() {
            self.state().counts().count_delayed();
        }
    }

    /// The cost that the rule was charged; zero if the request is denied.
    pub fn admitted(&self) -> u64 {
        if self.is_admitted() && self.decided.stage != ChargeStage::Peek {
            self.decided.cost
        } else {
            0
        }
    }

    /// What the rule is charged for each of its unit. None if settling does not change what it was charged.
    pub(super) fn unit_cost(&self) -> Option<u64> {
        let mut charges = self.decided.charges(self.part.decision.in_force());
        let is_held = charges.any(|charge| charge.limit.is_concurrency());
        (!is_held).then_some(self.decided.unit_cost)
    }

    /// The name of the counter that the request belongs to, also if it is blocked; none if an attribute is
    /// missing, or the credentials are not valid.
    pub fn key(&self) -> Option<Cow<'o, str>> {
        if self.decided.refusal().is_some() {
            return None;
        }
        if let Some(key) = self.decided.key.as_deref() {
            return Some(Cow::Borrowed(key));
        }
        match self.rule().key(self.part.attributes) {
            CounterKey::Known(key) => Some(key),
            CounterKey::Denied | CounterKey::Skipped => None,
        }
    }

    /// The attributes and values of the [key](Self::key).
    pub fn key_values(&self) -> Vec<(&'o str, Cow<'o, str>)> {
        self.rule().key_values(self.part.attributes)
    }

    /// Whether the limit came with the request, and the rule is made for it alone.
    pub fn is_ad_hoc(&self) -> bool {
        self.rule().is_ad_hoc()
    }

    /// Whether the rule only counts, for all keys or for this one.
    pub fn is_shadow(&self) -> bool {
        self.decided.is_shadow
    }
}
