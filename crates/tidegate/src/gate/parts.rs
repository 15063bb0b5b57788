//! What is asked of a gate: one request, or one of several parts, such as the descriptors that Envoy
//! sends in one call.
//!
//! By rules, the parts are one request: all of them are charged or none is. By descriptors, each is
//! charged on its own. What a part has spent already is taken as far as it fits, by rules that settle.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Store, Timestamp};

use super::matching::{MatchTerms, MatchedRule, MatchedRules, match_rules};
use super::pipeline::Pipeline;
use super::{Gate, RulesInForce};
use crate::attributes::Attributes;
use crate::rules::{Grant, GrantSource, Rule, RuleSet};

/// What a front end asks.
#[derive(Debug, Clone, Copy)]
pub enum Asked<'a, 'b> {
    /// About one request.
    Request(&'a Attributes<'b>),
    /// About a request of several parts. By rules, every limit of every part is charged, or none; parts
    /// that are about the same state are charged the sum of their costs. By descriptors, each part is
    /// charged on its own.
    Parts(&'a [Part<'b>]),
}

impl<'a, 'b> Asked<'a, 'b> {
    /// The attributes of each part.
    pub fn attributes(self) -> impl Iterator<Item = &'a Attributes<'b>> {
        let (request, parts) = match self {
            Self::Request(attributes) => (Some(attributes), &[][..]),
            Self::Parts(parts) => (None, parts),
        };
        let parts = parts.iter().map(|part| &part.attributes);
        request.into_iter().chain(parts)
    }
}

impl<'a, 'b> From<&'a Attributes<'b>> for Asked<'a, 'b> {
    fn from(attributes: &'a Attributes<'b>) -> Self {
        Self::Request(attributes)
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
    /// What is known of it. A cost of zero asks, and is denied when nothing remains.
    pub attributes: Attributes<'a>,
    /// What the caller grants, in the place of what the rules say.
    pub grant: Option<Grant>,
    /// Whether the cost has been spent already. What does not fit is then taken as far as it goes, by
    /// rules that [settle](Rule::settles).
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

    /// Whether it is decided like a request of its own.
    fn is_plain(&self) -> bool {
        self.grant.is_none() && !self.is_spent && self.attributes.cost() > 0
    }
}

/// A pipeline for all parts by rules, one for each part by descriptors.
pub(super) fn pipelines_of<'a, S: Store>(
    gate: &Gate<S>,
    rules: &RulesInForce,
    parts: &'a [Part<'_>],
) -> Vec<Pipeline<'a>> {
    if !rules.is_by_descriptors() || parts.is_empty() {
        return vec![pipeline(gate, rules, parts, 0)];
    }
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
    let alone = parts.chunks(1).zip(found).enumerate();
    let pipelines = alone.map(|(index, (part, rule))| {
        let name = rule.map_or("", Rule::limit_name);
        // A limit that another one replaces does not apply.
        if !name.is_empty() && replaced.contains(&name) {
            let times = (None, Timestamp::EPOCH);
            return Pipeline::new(Arc::clone(&rules.0), MatchedRules::new(), times, None);
        }
        pipeline(gate, rules, part, index)
    });
    pipelines.collect()
}

/// A pipeline that decides these parts together.
fn pipeline<'a, S: Store>(
    gate: &Gate<S>,
    rules: &RulesInForce,
    parts: &'a [Part<'_>],
    first_part: usize,
) -> Pipeline<'a> {
    let at = parts.iter().find_map(|part| part.attributes.time());
    let now = at.unwrap_or_else(|| gate.clock.now());
    let (rules, matched) = match_parts(&rules.0, parts, gate.terms(now), first_part);
    let permit = gate.new_permit(&rules, &matched);
    Pipeline::new(rules, matched, (at, now), permit).for_parts(parts, first_part)
}

/// The rules that apply to each part, and the limits that the caller brings; with the rule set that they
/// are in.
fn match_parts<'a>(
    rules: &Arc<RuleSet>,
    parts: &'a [Part<'_>],
    terms: MatchTerms,
    first_part: usize,
) -> (Arc<RuleSet>, MatchedRules<'a>) {
    let mut all = MatchedRules::new();
    // If the caller brings limits: those, and the rules that apply.
    let mut ad_hoc: Vec<Arc<Rule>> = Vec::new();
    let has_brought = parts.iter().any(|part| part.grant.is_some());
    for (index, part) in parts.iter().enumerate() {
        let mut matched = match &part.grant {
            Some(_) if !rules.knows_domain(&part.attributes) => MatchedRules::new(),
            Some(grant) => {
                let (rule, key) = rules.ad_hoc(grant, &part.attributes);
                ad_hoc.push(Arc::new(rule));
                let rule = ad_hoc.len() - 1;
                let matched = match_ad_hoc(rule, grant, key, part.attributes.cost());
                matched.into_iter().collect()
            }
            None => {
                let mut matched = match_rules(rules, &part.attributes, terms);
                for rule in matched.iter_mut().filter(|_| has_brought) {
                    ad_hoc.push(Arc::clone(rules.shared(rule.rule)));
                    rule.rule = ad_hoc.len() - 1;
                }
                matched
            }
        };
        for rule in &mut matched {
            rule.part = first_part + index;
            rule.is_peek = part.attributes.cost() == 0;
            if rule.is_peek {
                rule.cost = 1;
            }
        }
        all.append(&mut matched);
    }
    if has_brought {
        return (Arc::new(RuleSet::unindexed(ad_hoc)), all);
    }
    (Arc::clone(rules), all)
}

/// The rule of a limit that the caller brings, unless everything is allowed.
fn match_ad_hoc(
    rule: usize,
    grant: &Grant,
    key: String,
    cost: u64,
) -> Option<MatchedRule<'static>> {
    let key = match grant {
        Grant::Unlimited => return None,
        Grant::Blocked => None,
        Grant::Limits(_) => Some(Cow::Owned(key)),
    };
    Some(MatchedRule {
        rule,
        grant: 0,
        source: GrantSource::Limit,
        key,
        cost,
        unit_cost: 1,
        is_shadow: false,
        is_peek: false,
        is_settled: false,
        current_limit: None,
        part: 0,
        lacking: None,
        refusal: None,
    })
}
