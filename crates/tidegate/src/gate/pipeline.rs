//! The steps of one decision, without I/O: matched rules → groups → calls to the store → outcomes →
//! decisions. `deciding.rs` makes the calls.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Limit, PermitId, Timestamp};

use super::decision::Decision;
use super::feedback::note_use;
use super::group::{DecidedLimits, Group, GroupKind, StoreCall, Verb};
use super::matching::{MatchedRule, MatchedRules};
use super::parts::Part;
use super::receipt::Receipt;
use crate::reason::Reason;
use crate::rules::RuleSet;

/// One request on its way to a decision: all of its enforced limits are charged, or none.
#[derive(Debug)]
pub(super) struct Pipeline<'a> {
    pub(super) rules: Arc<RuleSet>,
    /// In the order of their kinds.
    pub(super) groups: SmallVec<[Group<'a>; 1]>,
    /// The time of the request, if it brings one.
    pub(super) at: Option<Timestamp>,
    /// The id of the permits that the request will hold under concurrency limits, if there are any.
    pub(super) permit: Option<PermitId>,
    /// The parts of the request that it decides; none if the request has no parts.
    pub(super) parts: SmallVec<[PipelinePart; 1]>,
    /// The index of the first of these parts.
    pub(super) first_part: usize,
    /// Whether nothing is to be charged.
    pub(super) is_preview: bool,
    /// The first group that the store has not been asked for.
    next: usize,
}

/// What matters about a part after its rules have matched.
#[derive(Debug, Clone, Copy)]
pub(super) struct PipelinePart {
    pub(super) cost: u64,
    /// Whether the cost has been spent already.
    pub(super) is_spent: bool,
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(
        rules: Arc<RuleSet>,
        matched: MatchedRules<'a>,
        (at, now): (Option<Timestamp>, Timestamp),
        permit: Option<PermitId>,
    ) -> Self {
        let mut pipeline = Self {
            groups: SmallVec::new(),
            rules,
            at,
            permit,
            parts: SmallVec::new(),
            first_part: 0,
            is_preview: false,
            next: 0,
        };
        pipeline.add_groups(matched, now);
        pipeline
    }

    /// Sorts the rules that apply to the request into groups, each in the order of the rules.
    fn add_groups(&mut self, mut matched: MatchedRules<'a>, now: Timestamp) {
        let mut shadows = MatchedRules::new();
        let is_apart =
            |rule: &MatchedRule<'_>| rule.is_peek || rule.is_shadow || rule.refusal.is_some();
        if matched.iter().any(is_apart) {
            let peeked: MatchedRules<'a>;
            (peeked, matched) = matched.into_iter().partition(|rule| rule.is_peek);
            (shadows, matched) = matched.into_iter().partition(|rule| rule.is_shadow);
            self.add_group(GroupKind::Peek, peeked, now);
            if matched.iter().any(|rule| rule.refusal.is_some()) {
                let by_address: MatchedRules<'a>;
                (by_address, matched) = matched
                    .into_iter()
                    .partition(|rule| counts_guesses(&self.rules, rule));
                self.add_group(GroupKind::Address, by_address, now);
            }
        }
        self.add_group(GroupKind::Enforced, matched, now);
        for shadow in shadows {
            let alone = std::iter::once(shadow).collect();
            self.add_group(GroupKind::Shadow, alone, now);
        }
    }

    fn add_group(&mut self, kind: GroupKind, matched: MatchedRules<'a>, now: Timestamp) {
        if !matched.is_empty() {
            let group = Group::new(kind, matched, &self.rules, now);
            self.groups.push(group);
        }
    }

    /// The same pipeline, for these parts of a request.
    pub(super) fn for_parts(self, parts: &[Part<'_>], first_part: usize) -> Self {
        let part = |part: &Part<'_>| PipelinePart {
            cost: part.attributes.cost(),
            is_spent: part.is_spent,
        };
        Self {
            parts: parts.iter().map(part).collect(),
            first_part,
            ..self
        }
    }

    /// The groups to call the store for next: they do not depend on each other. None are left at the end.
    pub(super) fn next_groups(&mut self) -> Range<usize> {
        let start = self.next;
        self.next = match self.groups.get(start).map(|group| group.kind) {
            Some(GroupKind::Peek | GroupKind::Address | GroupKind::Enforced) => start + 1,
            Some(GroupKind::Shadow) | None => self.groups.len(),
        };
        start..self.next
    }

    /// The call to the store for a group.
    pub(super) fn call(&self, index: usize) -> StoreCall<'_> {
        let group = &self.groups[index];
        StoreCall {
            charges: group.charges(&self.rules),
            verb: self.verb(index),
            at: self.at,
            permit: self.permit_for(index),
        }
    }

    /// What is done with the charges of a group. The enforced rules of a request that is denied already are
    /// only peeked.
    pub(super) fn verb(&self, index: usize) -> Verb {
        let group = &self.groups[index];
        let is_peek = match group.kind {
            GroupKind::Peek => true,
            GroupKind::Enforced => {
                group.denies_outright() || !self.groups[..index].iter().all(Group::is_allowed)
            }
            GroupKind::Address => group.denies_outright(),
            GroupKind::Shadow => false,
        };
        match is_peek {
            true => Verb::Peek,
            false if self.is_preview => Verb::Preview,
            false => Verb::Charge,
        }
    }

    /// Says of the concurrency limits of a group that the store has no memory for another permit.
    #[cold]
    pub(super) fn refuse_permits(&mut self, index: usize) {
        let rules = &self.rules;
        for limit in &mut self.groups[index].limits {
            let is_concurrency = limit.limit(rules).is_some_and(Limit::is_concurrency);
            if limit.is_charged && is_concurrency && !limit.outcome.allowed {
                limit.failure = Some(Reason::StoreUnavailable);
            }
        }
    }

    /// Shadow rules hold no permit for a request that is denied.
    pub(super) fn permit_for(&self, index: usize) -> Option<PermitId> {
        let is_shadow = self.groups[index].kind == GroupKind::Shadow;
        self.permit.filter(|_| !is_shadow || self.is_allowed())
    }

    /// Whether no enforced rule has denied.
    pub(super) fn is_allowed(&self) -> bool {
        self.groups.iter().all(Group::is_allowed)
    }

    /// The decision that a request would get.
    pub(super) fn into_preview(mut self) -> Decision {
        let limits = in_order(&mut self.groups, |_| true);
        Decision::new(self.rules, limits, None)
    }

    /// The decision, of a request without parts.
    pub(super) fn into_receipt(mut self) -> Receipt<'a> {
        self.note_use();
        let is_allowed = self.is_allowed();
        let limits = in_order(&mut self.groups, |_| true);
        let permit = self.permit.filter(|_| is_allowed);
        let decision = Decision::new(self.rules, limits, permit);
        let matched = match &mut self.groups[..] {
            [group] => std::mem::take(&mut group.matched),
            groups => matched_of(groups),
        };
        Receipt::new(decision, matched, self.at)
    }

    /// The decision about each part, and the rules that were charged for it.
    pub(super) fn finish_parts(
        mut self,
        decisions: &mut SmallVec<[Decision; 1]>,
        matched: &mut MatchedRules<'a>,
    ) {
        self.note_use();
        let permit = self.permit.filter(|_| self.is_allowed());
        // A part that another one replaces has no limits of its own.
        for part in self.first_part..self.first_part + self.parts.len().max(1) {
            let limits = in_order(&mut self.groups, |of| of == part);
            decisions.push(Decision::new(Arc::clone(&self.rules), limits, permit));
        }
        matched.append(&mut matched_of(&mut self.groups));
    }

    fn note_use(&self) {
        for group in &self.groups {
            note_use(&self.rules, &group.limits);
        }
    }
}

/// Whether a rule is charged for a request that is denied for its credentials. A permit would not be released.
fn counts_guesses(rules: &RuleSet, rule: &MatchedRule<'_>) -> bool {
    let limits = rule.limits(rules);
    rules.at(rule.rule).is_by_address()
        && rule.refusal.is_none()
        && !limits.iter().any(Limit::is_concurrency)
}

fn matched_of<'a>(groups: &mut [Group<'a>]) -> MatchedRules<'a> {
    let matched = groups.iter_mut().flat_map(|group| group.matched.drain(..));
    matched.collect()
}

/// The limits of the chosen parts, in the order of their rules.
fn in_order(groups: &mut [Group<'_>], is_chosen: impl Fn(usize) -> bool) -> DecidedLimits {
    if let [group] = groups
        && group.matched.iter().all(|rule| is_chosen(rule.part))
    {
        return std::mem::take(&mut group.limits);
    }
    let limits = groups.iter().flat_map(Group::limits_of_rules);
    let chosen = limits.filter(|(rule, _)| is_chosen(rule.part));
    let mut all: DecidedLimits = chosen.map(|(_, limit)| limit.clone()).collect();
    all.sort_by_key(|limit| limit.rule);
    all
}
