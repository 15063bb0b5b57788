//! Decides one request by several gates whose rules differ in their limits alone: its rules are matched once. For
//! simulations of recorded traffic; every limit is charged by the code that decides live requests.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Store, Timestamp};

use super::deciding::{StoreIsRemote, run_in_memory};
use super::matching::{NoPart, RuleMatcher};
use super::pipeline::Pipeline;
use super::rule_decision::{RuleDecision, RuleDecisions};
use super::{Asked, Decisions, Gate, Observed, ObservedPart, ObservedRule, Receipt, RulesInForce};
use crate::attributes::Attributes;
use crate::rules::{Facts, FrontEnd, GrantSource, Unmet};

/// A request and the rules that apply to it, by their indexes.
#[doc(hidden)]
#[derive(Debug)]
pub struct MatchedRequest<'a, 'b> {
    attributes: &'a Attributes<'b>,
    now: Timestamp,
    matched: RuleDecisions,
    escaped: SmallVec<[u32; 2]>,
    /// How many rules there are; candidates have higher indexes.
    rules: usize,
}

/// What a rule would charge for a request.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct MatchedCharge<'m> {
    /// The index of the rule.
    pub rule: usize,
    /// The index of what it grants, among its grants.
    pub grant: usize,
    /// Where that comes from.
    pub source: GrantSource,
    /// Whose counter is charged.
    pub key: &'m str,
    /// How much.
    pub cost: u64,
}

impl MatchedRequest<'_, '_> {
    /// The indexes of the rules that apply.
    pub fn rules(&self) -> impl Iterator<Item = usize> {
        self.own().map(|rule| rule.rule)
    }

    /// Without what candidates would charge.
    fn own(&self) -> impl Iterator<Item = &RuleDecision> {
        let matched = self.matched.iter();
        matched.filter(|rule| rule.rule < self.rules)
    }

    /// What each rule that applies would charge.
    pub fn charges(&self) -> impl Iterator<Item = MatchedCharge<'_>> {
        self.own().filter_map(|rule| {
            let key = rule.key.as_deref()?;
            let RuleDecision {
                rule,
                grant,
                source,
                cost,
                ..
            } = *rule;
            Some(MatchedCharge {
                rule,
                grant,
                source,
                key,
                cost,
            })
        })
    }

    /// The indexes of the rules that would apply if the request had the attributes of their `per`.
    pub fn escaped(&self) -> &[u32] {
        &self.escaped
    }
}

impl Gate {
    /// The rules that apply to a request.
    #[doc(hidden)]
    pub fn match_request<'a, 'b>(
        &self,
        rules: &RulesInForce,
        attributes: &'a Attributes<'b>,
    ) -> MatchedRequest<'a, 'b> {
        let (costs, now) = (attributes.costs(), self.time_of(attributes));
        let asked = RuleMatcher {
            in_force: &rules.0,
            facts: &Facts::of(attributes, costs, self.invalid_credentials),
            attributes,
            costs,
            now,
            is_counted: true,
        };
        let mut request = MatchedRequest {
            attributes,
            now,
            matched: RuleDecisions::new(),
            escaped: SmallVec::new(),
            rules: rules.len(),
        };
        for index in rules.candidates(attributes) {
            let tried = asked.match_tried(index as usize);
            if let Err(NoPart::Unmet(Unmet::Missing)) = tried.own {
                request.escaped.push(index);
            }
            request.matched.extend(tried.decided());
        }
        request
    }

    /// Decides a request whose rules were matched, by this gate or by one whose rules differ from these in nothing
    /// but the numbers of their limits. An error if the store is remote.
    #[doc(hidden)]
    pub fn decide_matched(
        &self,
        rules: &RulesInForce,
        request: &MatchedRequest<'_, '_>,
    ) -> Result<Receipt, StoreIsRemote> {
        let Store::Memory(store) = &self.store else {
            return Err(StoreIsRemote);
        };
        let mut matched = request.matched.clone();
        for rule in &mut matched {
            if rule.current_limit.is_some() {
                rule.current_limit = rules.0.current_limit(rule.rule);
            }
        }
        let times = (request.attributes.time(), request.now);
        let mut pipeline = Pipeline::new(Arc::clone(&rules.0), times);
        pipeline.permit = self.new_permit(&rules.0, &matched);
        pipeline.rules = matched;
        pipeline.order();
        run_in_memory(&mut pipeline, store);
        Ok(pipeline.into_receipt(request.attributes.costs().clone()))
    }
}

impl<'o, 'b> ObservedPart<'o, 'b> {
    /// What the limit of each rule said that applies to it, also if only its candidate decides.
    #[doc(hidden)]
    pub fn own_limits(&self) -> impl Iterator<Item = ObservedRule<'o, 'b>> {
        let part = *self;
        let in_force = part.decision.in_force();
        let rules = part.decision.rules().iter();
        let own = rules.filter(move |decided| !decided.is_candidate(in_force));
        own.map(move |decided| ObservedRule::new(decided, part))
    }
}

impl<'o, 'b> Observed<'o, 'b> {
    /// What was decided about a request of a program.
    #[doc(hidden)]
    pub fn new(decisions: &'o Decisions, asked: impl Into<Asked<'o, 'b>>) -> Self {
        Self {
            began: 0,
            front_end: FrontEnd::Library,
            decisions,
            asked: asked.into(),
        }
    }
}
