//! What is known of the rules for a request before its cost is: whether they count units that its body has, whether
//! they deny it outright, and how much of each unit they can grant.

use tidegate_core::{CostUnit, Costs, Store};

use super::matching::{NoPart, RuleMatcher};
use super::pipeline::{Step, Verb};
use super::rule_decision::{ChargeStage, RuleDecision};
use super::{Gate, Receipt, RulesInForce};
use crate::attributes::Attributes;
use crate::rules::{Facts, FrontEnd, Unmet};

/// How much of a unit a rule can ever grant to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnitLimit {
    /// The id of the rule.
    pub rule: String,
    /// What it counts.
    pub unit: CostUnit,
    /// The largest cost in the unit that it can grant.
    pub most: u64,
    /// Whether it only counts.
    pub is_shadow: bool,
}

impl Gate {
    /// Whether a rule may apply to a request that counts another unit than requests. `unknown` is an attribute that the
    /// request will have and has not yet. Charges and counts nothing.
    pub fn may_count_units(
        &self,
        rules: &RulesInForce,
        attributes: &Attributes<'_>,
        unknown: &str,
    ) -> bool {
        let mut counting = (0..rules.len()).filter(|index| !rules.at(*index).unit().is_requests());
        self.matching(rules, attributes, |asked| {
            counting.any(|index| match asked.match_tried(index).any_or() {
                // A condition may be about the cost.
                Ok(()) | Err(NoPart::Unmet(Unmet::When | Unmet::Unevaluable)) => true,
                Err(NoPart::Unmet(unmet)) if unmet.is_about_route() => false,
                Err(_) => rules.at(index).reads(unknown),
            })
        })
    }

    /// Whether a rule denies a request without asking the store: it grants nothing, or an attribute is missing. Rules
    /// that read `unknown`, an attribute that the request will have and has not yet, are left out.
    pub fn denies_outright(
        &self,
        rules: &RulesInForce,
        attributes: &Attributes<'_>,
        unknown: &str,
    ) -> bool {
        self.matching(rules, attributes, |asked| {
            let mut candidates = rules.candidates(attributes).into_iter();
            candidates.any(|index| {
                let rule = rules.at(index as usize);
                !rule.reads(unknown)
                    && asked
                        .match_tried(index as usize)
                        .decided()
                        .any(|matched| !matched.is_shadow && matched.key.is_none())
            })
        })
    }

    /// The decision about a request whose costs in other units than requests are not known yet, if it is denied by what
    /// is known without a call of a remote store: all of a store in memory, and denials that a remote one remembers.
    /// Nothing is charged. Rules that read `unknown` are left out.
    pub fn denied_already(
        &self,
        rules: &RulesInForce,
        front_end: FrontEnd,
        attributes: &Attributes<'_>,
        unknown: &str,
    ) -> Option<Receipt> {
        let (began, costs) = (self.begin(), Costs::by_unit([]).ok()?);
        let mut pipeline = self.pipeline(rules, attributes, &costs);
        let is_asked = |rule: &mut RuleDecision| {
            rule.stage == ChargeStage::Enforced && !rules.at(rule.rule).reads(unknown)
        };
        pipeline.rules.retain(is_asked);
        let step = Step::Together(ChargeStage::Enforced);
        let outcomes = {
            let call = pipeline.call(step);
            if call.verb != Verb::Charge || call.charges.is_empty() {
                return None;
            }
            match &self.store {
                Store::Memory(store) => store.peek(&call.request()),
                Store::Remote(store) => store.remembered_denial(&call.request())?,
            }
        };
        if outcomes.iter().all(|outcome| outcome.allowed) {
            return None;
        }
        pipeline.record(step, &outcomes);
        let receipt = pipeline.into_receipt(costs.clone());
        self.observe(began, front_end, (attributes, &costs).into(), &receipt);
        Some(receipt)
    }

    /// How much rules that count other units than requests can grant to a request. Charges and counts nothing.
    pub fn unit_limits(&self, rules: &RulesInForce, attributes: &Attributes<'_>) -> Vec<UnitLimit> {
        self.matching(rules, attributes, |asked| {
            let candidates = rules.candidates(attributes).into_iter();
            let counting = candidates
                .map(|index| index as usize)
                .filter(|index| !rules.at(*index).unit().is_requests());
            let matched = counting.flat_map(|index| asked.match_tried(index).decided());
            let limits = matched.filter_map(|matched| {
                let rule = rules.0.at(matched.rule);
                let limits = matched.limits(&rules.0).iter();
                let most = limits.map(tidegate_core::Limit::capacity).min()?;
                Some(UnitLimit {
                    rule: rule.id().to_owned(),
                    unit: rule.unit().clone(),
                    most: most / matched.unit_cost.max(1),
                    is_shadow: matched.is_shadow,
                })
            });
            limits.collect()
        })
    }

    pub(super) fn matching<T>(
        &self,
        rules: &RulesInForce,
        attributes: &Attributes<'_>,
        ask: impl FnOnce(&RuleMatcher<'_, '_>) -> T,
    ) -> T {
        ask(&RuleMatcher {
            in_force: &rules.0,
            facts: &Facts::of(attributes, attributes.costs(), self.invalid_credentials),
            attributes,
            costs: attributes.costs(),
            now: self.time_of(attributes),
            is_counted: false,
        })
    }
}
