//! Limits that are charged together, and what each of them answered.

use smallvec::SmallVec;
use tidegate_core::{Charge, Micros, Outcome, PermitId, Request, Retry, Timestamp};

use super::decision::DecidedLimit;
use super::matching::{MatchedRule, MatchedRules};
use crate::rules::RuleSet;

pub(super) type DecidedLimits = SmallVec<[DecidedLimit; 2]>;

/// Rules whose limits are charged together: all or none.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) kind: GroupKind,
    pub(super) matched: MatchedRules<'a>,
    /// One for each limit of each rule, in their order; one for a rule that denies outright.
    pub(super) limits: DecidedLimits,
}

/// What a group is for, in the order in which the store is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupKind {
    /// Everything that is only peeked.
    Peek,
    /// Enforced rules that count by address alone, of a request that is denied for its credentials: they are
    /// charged, so that guesses are limited.
    Address,
    /// All enforced rules, or the others.
    Enforced,
    /// One shadow rule.
    Shadow,
}

/// What a store is asked to do with charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Take them.
    Charge,
    /// Say whether they would be allowed, over the state as it is.
    Peek,
    /// Answer as if they were taken.
    Preview,
}

/// A call to the store for one group.
pub(super) struct StoreCall<'c> {
    pub(super) charges: SmallVec<[Charge<'c>; 2]>,
    pub(super) verb: Verb,
    pub(super) at: Option<Timestamp>,
    pub(super) permit: Option<PermitId>,
}

impl StoreCall<'_> {
    pub(super) fn request(&self) -> Request<'_> {
        Request {
            charges: &self.charges,
            at: self.at,
            permit: self.permit,
        }
    }
}

impl<'a> Group<'a> {
    /// A group that the store has not been asked for yet. A rule that denies outright needs no store.
    pub(super) fn new(
        kind: GroupKind,
        matched: MatchedRules<'a>,
        rules: &RuleSet,
        now: Timestamp,
    ) -> Self {
        let mut limits = DecidedLimits::new();
        for rule in &matched {
            let count = rule.limits(rules).len();
            for limit in 0..count.max(1) {
                limits.push(DecidedLimit {
                    rule: rule.rule,
                    grant: rule.grant,
                    limit,
                    outcome: blocked(now),
                    is_charged: count > 0,
                    is_shadow: rule.is_shadow,
                    is_degraded: false,
                    failure: rule.refusal,
                    share: None,
                    current_limit: rule.current_limit.clone(),
                    lacking: rule.lacking.clone(),
                });
            }
        }
        Self {
            kind,
            matched,
            limits,
        }
    }

    /// What the store is asked to charge.
    pub(super) fn charges<'c>(&'c self, rules: &'c RuleSet) -> SmallVec<[Charge<'c>; 2]> {
        let mut charges = SmallVec::new();
        for matched in &self.matched {
            let Some(key) = &matched.key else { continue };
            let scope = rules.at(matched.rule).scope();
            let charge = |limit| Charge {
                scope,
                limit,
                key,
                cost: matched.cost,
            };
            charges.extend(matched.limits(rules).iter().map(charge));
        }
        charges
    }

    /// Records what the store answered to the [charges](Self::charges).
    pub(super) fn record(&mut self, outcomes: &[Outcome]) {
        let charged = self.limits.iter_mut().filter(|limit| limit.is_charged);
        for (limit, outcome) in charged.zip(outcomes) {
            limit.outcome = *outcome;
        }
    }

    /// Each rule with the limits that are its own.
    pub(super) fn limits_by_rule(
        &mut self,
    ) -> impl Iterator<Item = (&MatchedRule<'a>, &mut [DecidedLimit])> {
        let mut chunks = self
            .limits
            .chunk_by_mut(|one, other| one.limit < other.limit);
        let matched = self.matched.iter();
        matched.map(move |rule| (rule, chunks.next().unwrap_or_default()))
    }

    /// Each limit with its rule.
    pub(super) fn limits_of_rules(
        &self,
    ) -> impl Iterator<Item = (&MatchedRule<'a>, &DecidedLimit)> {
        let chunks = self.limits.chunk_by(|one, other| one.limit < other.limit);
        let rules = self.matched.iter().zip(chunks);
        rules.flat_map(|(rule, limits)| limits.iter().map(move |limit| (rule, limit)))
    }

    /// Whether no enforced rule of it denies.
    pub(super) fn is_allowed(&self) -> bool {
        let mut limits = self.limits.iter();
        limits.all(|limit| limit.is_shadow || limit.outcome.allowed)
    }

    /// Whether a rule of it denies the request whatever was used.
    pub(super) fn denies_outright(&self) -> bool {
        self.matched.iter().any(|rule| rule.key.is_none())
    }
}

/// The outcome of a rule that grants nothing.
fn blocked(now: Timestamp) -> Outcome {
    Outcome {
        allowed: false,
        limit: 0,
        remaining: 0,
        retry: Retry::Never,
        reset_at: now,
        delay: Micros::ZERO,
        at: now,
    }
}
