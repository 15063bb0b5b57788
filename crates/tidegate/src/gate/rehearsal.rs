//! Decides one request by several gates whose rules differ in their limits alone: its rules are matched once. For
//! simulations of recorded traffic; every limit is charged by the code that decides live requests.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Costs, PermitId, Store};

use super::deciding::{StoreIsRemote, run_in_memory};
use super::matching::{NoPart, RuleMatcher};
use super::pipeline::Pipeline;
use super::rule_decision::RuleDecision;
use super::{Asked, Decisions, Gate, Observed, ObservedPart, ObservedRule, Receipt, RulesInForce};
use crate::attributes::Attributes;
use crate::rules::{Facts, FrontEnd, GrantSource, Unmet};

/// A request and the rules that apply to it, by their indexes.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct MatchedRequest {
    pipeline: Pipeline,
    costs: Costs,
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

impl MatchedRequest {
    /// The indexes of the rules that apply.
    pub fn rules(&self) -> impl Iterator<Item = usize> {
        self.own().map(|rule| rule.rule)
    }

    /// Without what candidates would charge.
    fn own(&self) -> impl Iterator<Item = &RuleDecision> {
        let matched = self.pipeline.rules.iter();
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

    /// Whether the gate that [decided it last](Gate::decide_again) allows it.
    pub fn is_allowed(&self) -> bool {
        self.pipeline.is_allowed()
    }

    /// What the limit of each rule said to that: the index of the rule, and whether it denies.
    pub fn verdicts(&self) -> impl Iterator<Item = (usize, bool)> {
        self.own().map(|rule| (rule.rule, !rule.is_allowed()))
    }
}

impl Gate {
    /// The rules that apply to a request.
    #[doc(hidden)]
    pub fn match_request(
        &self,
        rules: &RulesInForce,
        attributes: &Attributes<'_>,
    ) -> MatchedRequest {
        let (costs, now) = (attributes.costs(), self.time_of(attributes));
        let asked = RuleMatcher {
            in_force: &rules.0,
            facts: &Facts::of(attributes, costs, self.invalid_credentials),
            attributes,
            costs,
            now,
            is_counted: true,
        };
        let times = (attributes.time(), now);
        let mut request = MatchedRequest {
            pipeline: Pipeline::new(Arc::clone(&rules.0), times),
            costs: costs.clone(),
            escaped: SmallVec::new(),
            rules: rules.len(),
        };
        for index in rules.candidates(attributes) {
            let tried = asked.match_tried(index as usize);
            if let Err(NoPart::Unmet(Unmet::Missing)) = tried.own {
                request.escaped.push(index);
            }
            request.pipeline.rules.extend(tried.decided());
        }
        request
    }

    /// Decides a request whose rules were matched by this gate. An error if the store is remote.
    #[doc(hidden)]
    pub fn decide_matched(
        &self,
        rules: &RulesInForce,
        request: &MatchedRequest,
    ) -> Result<Receipt, StoreIsRemote> {
        let mut decided = request.clone();
        self.decide_again(rules, &mut decided)?;
        Ok(decided.pipeline.into_receipt(decided.costs))
    }

    /// Decides a request whose rules were matched, by this gate or by one whose rules differ from these in nothing
    /// but the numbers of their limits. What they say replaces what those of another gate said before. Returns the
    /// permit that the request holds. An error if the store is remote.
    #[doc(hidden)]
    pub fn decide_again(
        &self,
        rules: &RulesInForce,
        request: &mut MatchedRequest,
    ) -> Result<Option<PermitId>, StoreIsRemote> {
        let Store::Memory(store) = &self.store else {
            return Err(StoreIsRemote);
        };
        let pipeline = &mut request.pipeline;
        if !Arc::ptr_eq(&pipeline.in_force, &rules.0) {
            pipeline.in_force = Arc::clone(&rules.0);
        }
        for rule in &mut pipeline.rules {
            if rule.current_limit.is_some() {
                rule.current_limit = rules.0.current_limit(rule.rule);
            }
            // Those that deny outright have said so.
            if rule.key.is_some() {
                rule.answers.clear();
            }
        }
        pipeline.permit = self.new_permit(&rules.0, &pipeline.rules);
        pipeline.order();
        run_in_memory(pipeline, store);
        let permit = pipeline.permit.filter(|_| pipeline.is_allowed());
        let holds = |rule: &RuleDecision| rule.holds_permit(&pipeline.in_force);
        Ok(permit.filter(|_| pipeline.rules.iter().any(holds)))
    }
}

impl<'o, 'b> ObservedPart<'o, 'b> {
    /// What the limit of each rule said that applies to it, also if only its candidate decides.
    #[doc(hidden)]
    pub fn own_limits(&self) -> impl Iterator<Item = ObservedRule<'o, 'b>> + use<'o, 'b> {
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
