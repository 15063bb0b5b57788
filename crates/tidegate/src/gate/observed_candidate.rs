//! What the candidates of rules said, for metrics and live activity.

use std::borrow::Cow;

use tidegate_core::Timestamp;

use super::in_force::{InForce, RuleState};
use super::rule_decision::{RuleDecision, RuleDecisions};
use super::{ObservedPart, ObservedRule};
use crate::rules::{CandidateChange, CounterKey, FrontEnd, Rule, RuleCounts, Verdict};

/// What the candidate of a rule said to a request, whether or not it decided.
#[derive(Debug, Clone, Copy)]
pub struct ObservedCandidate<'o, 'b> {
    answer: CandidateAnswer<'o>,
    part: ObservedPart<'o, 'b>,
}

/// A candidate that was asked, and what the limit of its rule said.
#[derive(Debug, Clone, Copy)]
struct CandidateAnswer<'o> {
    decided: &'o RuleDecision,
    /// None if the rule grants everything.
    own: Option<&'o RuleDecision>,
}

impl<'o> CandidateAnswer<'o> {
    /// The answers among these decisions, in which a candidate follows its rule.
    fn among(
        in_force: &'o InForce,
        rules: &'o [RuleDecision],
    ) -> impl Iterator<Item = Self> + use<'o> {
        let has_candidates = in_force.trials().has_candidates();
        let rules = if has_candidates { rules } else { &[] };
        let asked = rules.iter().enumerate().filter(move |(_, decided)| {
            decided.is_candidate(in_force) && decided.has_verdict(in_force)
        });
        asked.map(move |(index, decided)| {
            let own = index.checked_sub(1).and_then(|before| rules.get(before));
            let is_of_it = |own: &&RuleDecision| {
                let (own_rule, candidate) = (in_force.at(own.rule), in_force.at(decided.rule));
                let is_same = own_rule.id() == candidate.id() && own.part == decided.part;
                is_same && !own_rule.is_candidate()
            };
            Self {
                decided,
                own: own.filter(is_of_it),
            }
        })
    }

    fn is_denied(&self) -> bool {
        !self.decided.is_allowed()
    }

    fn change(&self, in_force: &InForce) -> Option<CandidateChange> {
        if self.own.is_some_and(|own| !own.has_verdict(in_force)) {
            return None;
        }
        let was_denied = self.own.is_some_and(|own| !own.is_allowed());
        match (was_denied, self.is_denied()) {
            (false, true) => Some(CandidateChange::NewlyDenied),
            (true, false) => Some(CandidateChange::NewlyAllowed),
            _ => None,
        }
    }

    fn count(&self, in_force: &InForce, front_end: FrontEnd) {
        let counts: &RuleCounts = in_force.state(self.decided.rule).counts();
        let verdict = if self.is_denied() {
            Verdict::CandidateDenied
        } else {
            Verdict::CandidateAllowed
        };
        counts.count(front_end, verdict, true);
        if let Some(change) = self.change(in_force) {
            counts.count_change(change);
        }
    }
}

/// Counts what candidates said, for a request of this front end.
pub(super) fn count_candidates(in_force: &InForce, rules: &RuleDecisions, front_end: FrontEnd) {
    for answer in CandidateAnswer::among(in_force, rules) {
        answer.count(in_force, front_end);
    }
}

impl<'o, 'b> ObservedPart<'o, 'b> {
    /// What each candidate said that was asked about it, in the order of their rules.
    pub fn candidates(&self) -> impl Iterator<Item = ObservedCandidate<'o, 'b>> {
        let part = *self;
        let decision = part.decision;
        let answers = CandidateAnswer::among(decision.in_force(), decision.rules());
        answers.map(move |answer| ObservedCandidate { answer, part })
    }
}

impl<'o, 'b> ObservedCandidate<'o, 'b> {
    fn in_force(&self) -> &'o InForce {
        self.part.decision.in_force()
    }

    fn state(&self) -> &'o RuleState {
        self.in_force().state(self.answer.decided.rule)
    }

    /// The candidate, which has the id of its rule.
    pub fn rule(&self) -> &'o Rule {
        self.in_force().at(self.answer.decided.rule)
    }

    /// The part of the request that it is about.
    pub fn part(&self) -> ObservedPart<'o, 'b> {
        self.part
    }

    /// What it said as a rule of its own.
    pub fn as_rule(&self) -> ObservedRule<'o, 'b> {
        ObservedRule::new(self.answer.decided, self.part)
    }

    /// Whether it denies the request, or would if it decided.
    pub fn is_denied(&self) -> bool {
        self.answer.is_denied()
    }

    /// Whether it decides for this key.
    pub fn decides(&self) -> bool {
        !self.answer.decided.is_shadow
    }

    /// What it changes for the request, compared with the limit of its rule.
    pub fn change(&self) -> Option<CandidateChange> {
        self.answer.change(self.in_force())
    }

    /// The time as of which it was decided; none if it grants everything.
    pub fn at(&self) -> Option<Timestamp> {
        Some(self.answer.decided.decisive()?.outcome.at)
    }

    /// The name of the counter that the request belongs to.
    pub fn key(&self) -> Option<Cow<'o, str>> {
        if let Some(key) = self.answer.decided.key.as_deref() {
            return Some(Cow::Borrowed(key));
        }
        match self.rule().key(self.part.attributes) {
            CounterKey::Known(key) => Some(key),
            CounterKey::Denied | CounterKey::Skipped => None,
        }
    }

    /// Gives it to what the observer [keeps](super::Observer::watch) with the rule.
    pub fn watch(&self) {
        if let Some(watch) = self.state().watch() {
            watch.tried(self);
        }
    }

    /// Counts it.
    pub fn count(&self) {
        self.answer.count(self.in_force(), self.part.front_end);
    }
}
