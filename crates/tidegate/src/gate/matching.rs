//! Which rules apply to a request, and what each of them charges.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use smallvec::SmallVec;
use smol_str::SmolStr;
use tidegate_core::{Costs, Timestamp};

use super::in_force::InForce;
use super::rule_decision::{
    ChargeEffect, Lacking, LimitDecision, RuleDecision, RuleDecisions, stage_of,
};
use super::{Gate, RulesInForce};
use crate::attributes::{Attributes, MONEY};
use crate::credentials::InvalidCredentials;
use crate::rules::{CounterKey, Facts, Grant, GrantSource, Mode, RuleCounts, Unmet, add_one};

/// What rules are matched by, apart from the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchTerms {
    pub(super) now: Timestamp,
    pub(super) invalid_credentials: InvalidCredentials,
}

/// Appends the rules that apply to a request. They are large to move, so that they are made where they stay.
pub(super) fn match_rules(
    in_force: &InForce,
    attributes: &Attributes<'_>,
    costs: &Costs,
    terms: MatchTerms,
    matched: &mut RuleDecisions,
) {
    let asked = RuleMatcher {
        in_force,
        facts: &Facts::of(attributes, costs, terms.invalid_credentials),
        attributes,
        costs,
        now: terms.now,
        is_counted: true,
    };
    let candidates = in_force.candidates(attributes);
    if in_force.trials().has_any() {
        for index in candidates {
            matched.extend(asked.match_tried(index as usize).decided());
        }
        return;
    }
    for index in candidates {
        if let Ok(rule) = asked.match_rule(index as usize) {
            matched.push(rule);
        }
    }
}

impl Gate {
    /// Whether any rule in force has permits that clients share: if not, no request
    /// [takes one](Self::takes_shared_permit).
    pub fn has_shared_permits(&self) -> bool {
        self.in_force.load().has_shared_permits()
    }

    /// Whether a request would take a permit of a concurrency limit that clients share. Charges and counts
    /// nothing. A front end that can wait for the body of such a request decides it afterwards: a client that
    /// sends slowly would hold the permit meanwhile.
    pub fn takes_shared_permit(&self, rules: &RulesInForce, attributes: &Attributes<'_>) -> bool {
        if !rules.has_shared_permits() {
            return false;
        }
        self.matching(rules, attributes, |asked| {
            let takes = |index: usize| {
                rules.at(index).has_shared_permits()
                    && asked.match_tried(index).decided().any(|matched| {
                        let is_shared = rules.0.at(matched.rule).has_shared_permits();
                        is_shared && !matched.is_shadow && matched.cost > 0
                    })
            };
            let mut candidates = rules.candidates(attributes).into_iter();
            candidates.any(|index| takes(index as usize))
        })
    }
}

impl Gate {
    /// Whether a rule that a request would be charged by gives back what is not settled. Charges and counts nothing.
    pub(super) fn matches_give_back(
        &self,
        rules: &RulesInForce,
        attributes: &Attributes<'_>,
        costs: &Costs,
    ) -> bool {
        let in_force = &*rules.0;
        let asked = RuleMatcher {
            in_force,
            facts: &Facts::of(attributes, costs, self.invalid_credentials),
            attributes,
            costs,
            now: self.time_of(attributes),
            is_counted: false,
        };
        let candidates = rules.candidates(attributes).into_iter();
        let mut matched = candidates.flat_map(|index| asked.match_tried(index as usize).decided());
        matched.any(|matched| {
            let mut charges = matched.charges(in_force);
            charges.any(|charge| charge.cost > 0 && charge.scope.gives_back())
        })
    }
}

/// Matches rules with one request.
pub(super) struct RuleMatcher<'m, 'b> {
    pub(super) in_force: &'m InForce,
    pub(super) facts: &'m Facts<'m, 'b>,
    pub(super) attributes: &'m Attributes<'b>,
    /// What the request costs.
    pub(super) costs: &'m Costs,
    pub(super) now: Timestamp,
    /// Whether conditions and costs that cannot be read are counted.
    pub(super) is_counted: bool,
}

/// Why a rule takes no part in a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPart {
    /// It does not apply.
    Unmet(Unmet),
    /// It applies, and grants everything.
    Unlimited(GrantSource),
}

impl RuleMatcher<'_, '_> {
    /// The rule with this index, if it takes part in the decision.
    #[inline]
    pub(super) fn match_rule(&self, index: usize) -> Result<RuleDecision, NoPart> {
        let (in_force, attributes) = (self.in_force, self.attributes);
        let rule = in_force.at(index);
        let count = |counter: fn(&RuleCounts) -> &AtomicU64| {
            if self.is_counted {
                add_one(counter(in_force.state(index).counts()));
            }
        };
        let check = rule.check(self.facts, self.now);
        if check.has_failed {
            count(|counts| &counts.condition_failures);
        }
        check.result.map_err(NoPart::Unmet)?;
        if let Some(refused) = self.facts.refused()
            && let Some(refusal) = refused.reason(|name| rule.reads(name))
        {
            return Ok(RuleDecision::refused((index, rule), refusal, self.now));
        }
        let (grant, source) = in_force.grant_for(index, attributes, self.now);
        let mut lacking = None;
        let (mut cost, mut unit_cost, mut current_limit) = (0, 0, None);
        let key = match (rule.key(attributes), in_force.grant(index, grant)) {
            (CounterKey::Skipped, _) => return Err(NoPart::Unmet(Unmet::Missing)),
            (CounterKey::Known(_), Grant::Unlimited) => return Err(NoPart::Unlimited(source)),
            (CounterKey::Denied, _) => {
                lacking = Some(Arc::new(Lacking::Missing(rule.missing_of(attributes))));
                None
            }
            (CounterKey::Known(_), Grant::Blocked) => None,
            (CounterKey::Known(_), Grant::Limits(_))
                if attributes.is_unpriced() && rule.unit().as_str() == MONEY =>
            {
                let model = attributes.get("model").map(str::to_owned);
                lacking = Some(Arc::new(Lacking::Unpriced { model }));
                None
            }
            (CounterKey::Known(key), Grant::Limits(_)) => {
                let is_unread;
                (unit_cost, is_unread) = rule.unit_cost(attributes);
                if is_unread {
                    count(|counts| &counts.unread_costs);
                }
                cost = unit_cost.saturating_mul(self.costs.of(rule.unit()));
                current_limit = in_force.current_limit(index);
                Some(SmolStr::new(key))
            }
        };
        let mut answers = SmallVec::new();
        let is_charged = key.is_some();
        if !is_charged {
            answers.push(LimitDecision::blocked(self.now));
        }
        Ok(RuleDecision {
            rule: index,
            part: 0,
            grant,
            source,
            stage: stage_of(rule),
            is_shadow: rule.mode() == Mode::Shadow,
            effect: ChargeEffect::Answered,
            key,
            cost,
            unit_cost,
            is_uncharged: cost == 0 && is_charged && self.costs.plain().is_none(),
            current_limit,
            lacking,
            answers,
        })
    }
}
