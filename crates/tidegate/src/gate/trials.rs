//! Candidates and rollouts: which of a rule's limit and its candidate a request is asked about, and which of the two
//! decides. A candidate takes part in a decision as a rule of its own, after its rule; what only counts is charged like a
//! shadow rule. Sets of rules without any do not come here.

use std::sync::Arc;

use smallvec::SmallVec;
use smol_str::SmolStr;

use super::in_force::InForce;
use super::matching::{NoPart, RuleMatcher};
use super::rule_decision::{ChargeEffect, ChargeStage, LimitDecision, RuleDecision};
use crate::rules::{CounterKey, Grant, GrantSource, KeyShare, Mode, Rule, RuleSet, ValueDigest};

/// The secret of rollouts in a gate that was given none.
const PUBLIC_SECRET: &[u8] = b"tidegate: public rollout secret";

/// What is tried of a set of rules.
#[derive(Debug)]
pub(super) struct Trials {
    /// By the index of the rule; empty if nothing is tried.
    by_rule: Vec<Option<Trial>>,
    has_candidates: bool,
    digest: Arc<ValueDigest>,
}

/// What is tried of one rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    /// The index of its candidate among the members in force.
    pub(super) candidate: Option<usize>,
    pub(super) rollout: Option<KeyShare>,
}

impl Trials {
    /// What is tried of these rules, whose candidates follow them in their order.
    pub(super) fn of(rules: &RuleSet, digest: Option<&Arc<ValueDigest>>) -> Self {
        let mut candidates = rules.len()..;
        let trial = |rule: &Arc<Rule>| {
            let candidate = rule.candidate().and_then(|_| candidates.next());
            let rollout = rule.rollout();
            let is_tried = candidate.is_some() || rollout.is_some();
            is_tried.then_some(Trial { candidate, rollout })
        };
        let mut by_rule: Vec<Option<Trial>> = rules.iter().map(trial).collect();
        let mut tried = by_rule.iter().flatten();
        let has_candidates = tried.any(|trial| trial.candidate.is_some());
        if by_rule.iter().all(Option::is_none) {
            by_rule.clear();
        }
        let public = || Arc::new(ValueDigest::new(PUBLIC_SECRET));
        Self {
            by_rule,
            has_candidates,
            digest: digest.map_or_else(public, Arc::clone),
        }
    }

    /// Of rules and candidates that have been found already.
    pub(super) fn found(members: &[Arc<Rule>]) -> Self {
        Self {
            by_rule: Vec::new(),
            has_candidates: members.iter().any(|rule| rule.is_candidate()),
            digest: Arc::new(ValueDigest::new(PUBLIC_SECRET)),
        }
    }

    /// Whether any rule has a candidate or a rollout.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        !self.by_rule.is_empty()
    }

    /// Whether any rule has a candidate.
    #[inline]
    pub(super) fn has_candidates(&self) -> bool {
        self.has_candidates
    }

    /// What is tried of the rule with this index.
    pub(super) fn get(&self, rule: usize) -> Option<Trial> {
        *self.by_rule.get(rule)?
    }
}

/// A rule that may apply to a request, and its candidate.
pub(super) struct TriedRule {
    /// What the rule itself has to say, or why it takes no part.
    pub(super) own: Result<RuleDecision, NoPart>,
    /// The candidate, if it is asked.
    pub(super) candidate: Option<RuleDecision>,
    /// Whether the rollout has the key; none without one.
    pub(super) is_in: Option<bool>,
}

impl TriedRule {
    /// What takes part in the decision: the rule, then its candidate.
    pub(super) fn decided(self) -> impl Iterator<Item = RuleDecision> {
        self.own.ok().into_iter().chain(self.candidate)
    }

    /// Whether anything takes part in the decision, or why the rule does not.
    pub(super) fn any_or(self) -> Result<(), NoPart> {
        match (self.own, self.candidate) {
            (Ok(_), _) | (_, Some(_)) => Ok(()),
            (Err(no_part), None) => Err(no_part),
        }
    }
}

impl RuleMatcher<'_, '_> {
    /// The rule with this index and its candidate, as far as they take part in the decision.
    pub(super) fn match_tried(&self, index: usize) -> TriedRule {
        let mut tried = TriedRule {
            own: self.match_rule(index),
            candidate: None,
            is_in: None,
        };
        let trials = self.in_force.trials();
        let Some(trial) = trials.get(index) else {
            return tried;
        };
        if let Err(NoPart::Unmet(_)) = tried.own {
            return tried;
        }
        let rule = self.in_force.at(index);
        // Requests that lack an attribute, or whose credentials are not valid, are one key.
        let key = match rule.key(self.attributes) {
            CounterKey::Known(key) => key,
            CounterKey::Denied | CounterKey::Skipped => "".into(),
        };
        let is_in = |rollout: KeyShare| rollout.has_key(&trials.digest, rule.id(), &key);
        tried.is_in = trial.rollout.map(is_in);
        let Some(member) = trial.candidate else {
            if let (Ok(own), Some(false)) = (&mut tried.own, tried.is_in) {
                own.only_count();
            }
            return tried;
        };
        tried.candidate = self.match_candidate(&tried.own, member, &key);
        if let Some(candidate) = &mut tried.candidate {
            let decides = tried.is_in == Some(true);
            match &mut tried.own {
                Ok(own) if decides => own.only_count(),
                _ => {}
            }
            if !decides {
                candidate.only_count();
            }
        }
        tried
    }

    /// The candidate of a rule, if it changes what the request is granted.
    fn match_candidate(
        &self,
        own: &Result<RuleDecision, NoPart>,
        member: usize,
        key: &str,
    ) -> Option<RuleDecision> {
        let in_force = self.in_force;
        let (granted, source) = match own {
            // The request is denied by both.
            Ok(own) if own.lacking.is_some() => return None,
            Ok(own) => (in_force.grant(own.rule, own.grant), own.source),
            Err(NoPart::Unlimited(source)) => (&Grant::Unlimited, *source),
            Err(NoPart::Unmet(_)) => return None,
        };
        if source == GrantSource::Temporary {
            return None;
        }
        let candidate = in_force.at(member);
        let (grant, source) = candidate.grant(self.attributes);
        let tried = in_force.grant(member, grant);
        if tried == granted {
            return None;
        }
        // A cost that cannot be read is counted once, by the rule itself.
        let (unit_cost, _) = candidate.unit_cost(self.attributes);
        let cost = match tried {
            Grant::Limits(_) => unit_cost.saturating_mul(self.costs.of(candidate.unit())),
            Grant::Unlimited | Grant::Blocked => 0,
        };
        let is_blocked = *tried == Grant::Blocked;
        let mut answers = SmallVec::new();
        if is_blocked {
            answers.push(LimitDecision::blocked(self.now));
        }
        Some(RuleDecision {
            rule: member,
            part: 0,
            grant,
            source,
            stage: ChargeStage::Enforced,
            is_shadow: false,
            effect: ChargeEffect::Answered,
            key: (!is_blocked).then(|| SmolStr::new(key)),
            cost,
            unit_cost,
            is_uncharged: cost == 0 && !is_blocked && self.costs.plain().is_none(),
            current_limit: None,
            lacking: None,
            answers,
        })
    }
}

impl RuleDecision {
    /// Makes it count what it would have decided.
    fn only_count(&mut self) {
        self.is_shadow = true;
        self.stage = ChargeStage::Shadow;
    }

    /// Whether it is the candidate of a rule.
    pub(super) fn is_candidate(&self, in_force: &InForce) -> bool {
        in_force.at(self.rule).is_candidate()
    }

    /// Whether it only counts next to what decides for the same rule: then only operators see it.
    pub(super) fn is_compared(&self, in_force: &InForce) -> bool {
        let rule = in_force.at(self.rule);
        let is_replaced = || rule.mode() == Mode::Enforce && rule.candidate().is_some();
        self.is_shadow && (rule.is_candidate() || is_replaced())
    }

    /// Whether it has said anything: it has not if it is only [compared](Self::is_compared) and the store was
    /// unavailable.
    pub(super) fn has_verdict(&self, in_force: &InForce) -> bool {
        !self.answers.is_empty() || self.limits(in_force).is_empty()
    }
}
