//! What is asked of a gate: one request, or one of several parts, such as the descriptors that Envoy
//! sends in one call.
//!
//! By rules, the parts are one request: all of them are charged or none is. By descriptors, each is
//! charged on its own, unless the settings say that a call is charged as a whole. What a part has spent already is taken
//! as far as it fits, by rules that settle; by descriptors in full, where the limit counts what is beyond it.

use std::sync::Arc;

use smallvec::SmallVec;
use smol_str::SmolStr;
use tidegate_core::{Costs, Limit, Timestamp};

use super::in_force::{InForce, RuleState};
use super::matching::{MatchTerms, match_rules};
use super::pipeline::Pipeline;
use super::rule_decision::{ChargeEffect, ChargeStage, LimitDecision, RuleDecision, RuleDecisions};
use super::{Gate, RulesInForce};
use crate::attributes::Attributes;
use crate::rules::{Grant, GrantSource, Rule};

/// What a front end asks.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Asked<'a, 'b> {
    /// About one request.
    Request(&'a Attributes<'b>),
    /// About one request, with these costs in place of its own.
    Costing(&'a Attributes<'b>, &'a Costs),
    /// About a request of several parts. By rules, every limit of every part is charged, or none; parts
    /// that are about the same state are charged the sum of their costs. By descriptors, each part is
    /// charged on its own.
    Parts(&'a [Part<'b>]),
}

impl<'a, 'b> Asked<'a, 'b> {
    /// The attributes and the costs of each part.
    pub fn parts(self) -> impl Iterator<Item = (&'a Attributes<'b>, &'a Costs)> {
        let (request, parts) = match self {
            Self::Request(attributes) => (Some((attributes, attributes.costs())), &[][..]),
            Self::Costing(attributes, costs) => (Some((attributes, costs)), &[][..]),
            Self::Parts(parts) => (None, parts),
        };
        let parts = parts.iter().map(|part| {
            let attributes = &part.attributes;
            (attributes, attributes.costs())
        });
        request.into_iter().chain(parts)
    }
}

impl Asked<'_, '_> {
    /// The costs of the request; of several parts, those of the first.
    pub(super) fn costs(self) -> Costs {
        let first = self.parts().next();
        first.map_or_else(|| Costs::from(1), |(_, costs)| costs.clone())
    }
}

impl<'a, 'b> From<&'a Attributes<'b>> for Asked<'a, 'b> {
    fn from(attributes: &'a Attributes<'b>) -> Self {
        Self::Request(attributes)
    }
}

impl<'a, 'b> From<(&'a Attributes<'b>, &'a Costs)> for Asked<'a, 'b> {
    fn from((attributes, costs): (&'a Attributes<'b>, &'a Costs)) -> Self {
        Self::Costing(attributes, costs)
    }
}

impl<'a, 'b> From<&'a [Part<'b>]> for Asked<'a, 'b> {
    fn from(parts: &'a [Part<'b>]) -> Self {
        match parts {
            [part] if part.is_plain() => Self::Request(&part.attributes),
            parts => Self::Parts(parts),
        }
    }
}

/// One part of a request.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    /// What is known of it. A cost of zero asks, and is denied when nothing remains; by descriptors, of a window of the
    /// clock, when more is used than it grants.
    pub attributes: Attributes<'a>,
    /// The limit that the caller brings, instead of those of the rules.
    pub grant: Option<Grant>,
    /// Whether the cost has been spent already. What does not fit is then taken as far as it goes, by
    /// rules that [settle](Rule::settles); by descriptors in full.
    pub is_spent: bool,
}

impl<'a> Part<'a> {
    /// A part that the rules decide and that has spent nothing yet.
    pub fn new(attributes: Attributes<'a>) -> Self {
        Self {
            attributes,
            grant: None,
            is_spent: false,
        }
    }

    /// Whether it has a cost of its own, apart from that of the whole call.
    fn has_own_cost(&self) -> bool {
        self.is_spent || self.attributes.costs().plain() == Some(0)
    }

    /// Whether it is decided like a request of its own.
    fn is_plain(&self) -> bool {
        self.grant.is_none() && !self.has_own_cost()
    }
}

/// A pipeline for all parts by rules. By descriptors one for each part, unless a call is charged as a whole.
pub(super) fn pipelines_of(gate: &Gate, rules: &RulesInForce, parts: &[Part<'_>]) -> Vec<Pipeline> {
    if !rules.is_by_descriptors() || parts.is_empty() {
        return vec![pipeline(gate, rules, parts, 0)];
    }
    let is_replaced = replaced_parts(rules, parts);
    if rules.is_all_or_nothing() && !parts.iter().any(Part::has_own_cost) {
        let mut together = pipeline(gate, rules, parts, 0);
        together.rules.retain(|rule| !is_replaced[rule.part]);
        together.is_together = true;
        let in_force = Arc::clone(&together.in_force);
        for rule in &mut together.rules {
            // A quota that is used up does not deny the request while another has room.
            if in_force.at(rule.rule).is_quota() {
                rule.stage = ChargeStage::Shadow;
            }
        }
        return vec![together];
    }
    let alone = parts.chunks(1).zip(is_replaced).enumerate();
    let pipelines = alone.map(|(index, (part, is_replaced))| {
        if is_replaced {
            let times = (None, Timestamp::EPOCH);
            return Pipeline::new(Arc::clone(&rules.0), times);
        }
        pipeline(gate, rules, part, index)
    });
    pipelines.collect()
}

/// Of which parts the limit does not apply, because that of another part replaces it.
fn replaced_parts(rules: &RulesInForce, parts: &[Part<'_>]) -> SmallVec<[bool; 4]> {
    let mut replaced: SmallVec<[&str; 4]> = SmallVec::new();
    let found: SmallVec<[Option<&Rule>; 4]> = parts
        .iter()
        // A limit that the caller brings has no name, and replaces nothing.
        .map(|part| match part.grant {
            Some(_) => None,
            None => rules.descriptor_rule(&part.attributes),
        })
        .inspect(|rule| {
            let names = rule.iter().flat_map(|rule| rule.replaces());
            replaced.extend(names.map(String::as_str));
        })
        .collect();
    let is_replaced = |rule: Option<&Rule>| {
        let name = rule.map_or("", Rule::limit_name);
        !name.is_empty() && replaced.contains(&name)
    };
    found.into_iter().map(is_replaced).collect()
}

/// A pipeline that decides these parts together.
fn pipeline(gate: &Gate, rules: &RulesInForce, parts: &[Part<'_>], first_part: usize) -> Pipeline {
    let at = parts.iter().find_map(|part| part.attributes.time());
    let now = at.unwrap_or_else(|| gate.clock.now());
    let (in_force, mut matched) = match_parts(&rules.0, parts, gate.terms(now), first_part);
    for rule in &mut matched {
        let part = &parts[rule.part - first_part];
        let mut limits = rule.limits(&in_force).iter();
        let scope = in_force.at(rule.rule).scope();
        let counts_excess = scope.is_charged_in_full() && limits.all(Limit::holds_excess);
        if part.attributes.costs().plain() == Some(0) {
            rule.stage = ChargeStage::Peek;
            // Of a limit that is not exceeded what asks for nothing is allowed; of others, if one more would be.
            rule.cost = u64::from(!counts_excess);
        }
        // Units that were taken in advance are used first.
        if part.is_spent && counts_excess && !scope.is_leased() && rule.key.is_some() {
            rule.effect = ChargeEffect::InFull;
        }
    }
    let mut pipeline = Pipeline::new(in_force, (at, now)).for_parts(parts, first_part);
    pipeline.permit = gate.new_permit(&pipeline.in_force, &matched);
    pipeline.rules = matched;
    pipeline.order();
    pipeline
}

/// The rules that apply to each part, and the limits that the caller brings; with the rule set that they
/// are in.
fn match_parts(
    in_force: &Arc<InForce>,
    parts: &[Part<'_>],
    terms: MatchTerms,
    first_part: usize,
) -> (Arc<InForce>, RuleDecisions) {
    let mut all = RuleDecisions::new();
    // If the caller brings limits: those, and the rules that apply.
    let mut found: Vec<(Arc<Rule>, RuleState)> = Vec::new();
    let has_brought = parts.iter().any(|part| part.grant.is_some());
    for (index, part) in parts.iter().enumerate() {
        let mut matched = match &part.grant {
            Some(_) if !in_force.knows_domain(&part.attributes) => RuleDecisions::new(),
            Some(grant) => {
                let (rule, key) = in_force.ad_hoc(grant, &part.attributes);
                found.push((Arc::new(rule), RuleState::default()));
                let rule = found.len() - 1;
                let matched = match_ad_hoc(rule, grant, &key, part.attributes.cost(), terms.now);
                matched.into_iter().collect()
            }
            None => {
                let (mut matched, costs) = (RuleDecisions::new(), part.attributes.costs());
                match_rules(in_force, &part.attributes, costs, terms, &mut matched);
                for rule in matched.iter_mut().filter(|_| has_brought) {
                    let state = in_force.state(rule.rule).clone();
                    found.push((Arc::clone(in_force.shared(rule.rule)), state));
                    rule.rule = found.len() - 1;
                }
                matched
            }
        };
        for rule in &mut matched {
            rule.part = first_part + index;
        }
        all.append(&mut matched);
    }
    if has_brought {
        return (Arc::new(InForce::found(found)), all);
    }
    (Arc::clone(in_force), all)
}

/// The rule of a limit that the caller brings, unless everything is allowed.
fn match_ad_hoc(
    rule: usize,
    grant: &Grant,
    key: &str,
    cost: u64,
    now: Timestamp,
) -> Option<RuleDecision> {
    let mut answers = SmallVec::new();
    let key = match grant {
        Grant::Unlimited => return None,
        Grant::Blocked => {
            answers.push(LimitDecision::blocked(now));
            None
        }
        Grant::Limits(_) => Some(SmolStr::new(key)),
    };
    Some(RuleDecision {
        rule,
        part: 0,
        grant: 0,
        source: GrantSource::Limit,
        stage: ChargeStage::Enforced,
        is_shadow: false,
        effect: ChargeEffect::Answered,
        key,
        cost,
        unit_cost: 1,
        is_uncharged: false,
        current_limit: None,
        lacking: None,
        answers,
    })
}
