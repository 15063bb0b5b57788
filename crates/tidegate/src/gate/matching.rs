//! Which rules apply to a request, and what each of them charges.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Limit, Store, Timestamp};

use super::Gate;
use crate::adaptive::AdaptiveLimit;
use crate::attributes::Attributes;
use crate::credentials::InvalidCredentials;
use crate::reason::Reason;
use crate::rules::{
    CounterKey, Facts, Grant, GrantSource, MissingNames, Mode, Rule, RuleSet, Unmet, add_one,
};

/// The rules that apply to a request, in their order. Most requests match one rule or two.
pub(super) type MatchedRules<'a> = SmallVec<[MatchedRule<'a>; 2]>;

/// A rule that applies to a request.
#[derive(Debug)]
pub(super) struct MatchedRule<'a> {
    /// Its index in the rule set.
    pub(super) rule: usize,
    /// The index of what it grants to this request.
    pub(super) grant: usize,
    /// Where that came from.
    pub(super) source: GrantSource,
    /// Whose state is charged. None: the rule denies the request outright.
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) cost: u64,
    /// What the rule charges for each unit of the request's own cost.
    pub(super) unit_cost: u64,
    pub(super) is_shadow: bool,
    /// Whether it is only peeked, and takes nothing.
    pub(super) is_peek: bool,
    /// Whether it is settled after the decision, because its cost has been spent already.
    pub(super) is_settled: bool,
    /// The current limit of an adaptive rule.
    pub(super) current_limit: Option<Arc<Limit>>,
    /// The index of the part of the request that it applies to.
    pub(super) part: usize,
    /// The attributes for lack of which it denies the request.
    pub(super) lacking: Option<Arc<Lacking>>,
    /// Why it denies the request for its credentials, if it does.
    pub(super) refusal: Option<Reason>,
}

/// The attributes for which a rule denies a request outright.
#[derive(Debug)]
pub(super) enum Lacking {
    /// Those of its `per` that the request does not have.
    Missing(MissingNames),
    /// The one that the request's credentials should give.
    Refused(String),
}

impl MatchedRule<'_> {
    /// A rule that denies a request for its credentials.
    #[cold]
    fn refused(index: usize, rule: &Rule, attribute: &str, reason: Reason) -> Self {
        Self {
            rule: index,
            grant: 0,
            source: GrantSource::Limit,
            key: None,
            cost: 0,
            unit_cost: 0,
            is_shadow: rule.mode() == Mode::Shadow,
            is_peek: false,
            is_settled: false,
            current_limit: None,
            part: 0,
            lacking: Some(Arc::new(Lacking::Refused(attribute.to_owned()))),
            refusal: Some(reason),
        }
    }

    /// The limits that it charges; none if it denies the request outright.
    pub(super) fn limits<'r>(&'r self, rules: &'r RuleSet) -> &'r [Limit] {
        if let Some(limit) = &self.current_limit {
            return std::slice::from_ref(limit);
        }
        match (&self.key, &rules.at(self.rule).grants()[self.grant]) {
            (Some(_), Grant::Limits(limits)) => limits,
            _ => &[],
        }
    }

    /// The same, borrowing nothing from the attributes.
    pub(super) fn into_owned(self) -> MatchedRule<'static> {
        MatchedRule {
            key: self.key.map(|key| Cow::Owned(key.into_owned())),
            ..self
        }
    }
}

/// What rules are matched by, apart from the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchTerms {
    pub(super) now: Timestamp,
    pub(super) invalid_credentials: InvalidCredentials,
}

/// The rules that apply to a request.
pub(super) fn match_rules<'a>(
    rules: &RuleSet,
    attributes: &'a Attributes<'_>,
    terms: MatchTerms,
) -> MatchedRules<'a> {
    let asked = RuleMatcher {
        rules,
        facts: &Facts::of(attributes, terms.invalid_credentials),
        attributes,
        now: terms.now,
        is_counted: true,
    };
    let candidates = rules.candidates(attributes).into_iter();
    candidates
        .filter_map(|index| asked.match_rule(index as usize).ok())
        .collect()
}

impl<S: Store> Gate<S> {
    /// Whether any rule in force has permits that clients share: if not, no request
    /// [takes one](Self::takes_shared_permit).
    pub fn has_shared_permits(&self) -> bool {
        self.rules.load().has_shared_permits()
    }

    /// Whether a request would take a permit of a concurrency limit that clients share. Charges and counts
    /// nothing. A front end that can wait for the body of such a request decides it afterwards: a client that
    /// sends slowly would hold the permit meanwhile.
    pub fn takes_shared_permit(&self, rules: &RuleSet, attributes: &Attributes<'_>) -> bool {
        if !rules.has_shared_permits() {
            return false;
        }
        let asked = RuleMatcher {
            rules,
            facts: &Facts::of(attributes, self.invalid_credentials),
            attributes,
            now: self.time_of(attributes),
            is_counted: false,
        };
        let takes = |index: usize| {
            rules.at(index).has_shared_permits()
                && asked
                    .match_rule(index)
                    .is_ok_and(|matched| matched.cost > 0)
        };
        let mut candidates = rules.candidates(attributes).into_iter();
        candidates.any(|index| takes(index as usize))
    }
}

/// Matches rules with one request.
pub(super) struct RuleMatcher<'m, 'a, 'b> {
    pub(super) rules: &'m RuleSet,
    pub(super) facts: &'m Facts<'a, 'b>,
    pub(super) attributes: &'a Attributes<'b>,
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

impl<'a> RuleMatcher<'_, 'a, '_> {
    /// The rule with this index, if it takes part in the decision.
    #[inline]
    pub(super) fn match_rule(&self, index: usize) -> Result<MatchedRule<'a>, NoPart> {
        let (rule, attributes) = (self.rules.at(index), self.attributes);
        let count = |counter| {
            if self.is_counted {
                add_one(counter);
            }
        };
        let check = rule.check(self.facts, self.now);
        if check.has_failed {
            count(&rule.counts().condition_failures);
        }
        check.result.map_err(NoPart::Unmet)?;
        if let Some(refused) = self.facts.refused()
            && let Some((name, reason)) = refused.reason(|name| rule.reads(name))
        {
            return Ok(MatchedRule::refused(index, rule, name, reason));
        }
        let (grant, source) = rule.grant(attributes, self.now);
        let mut lacking = None;
        let (mut cost, mut unit_cost, mut current_limit) = (0, 0, None);
        let key = match (rule.key(attributes), &rule.grants()[grant]) {
            (CounterKey::Skipped, _) => return Err(NoPart::Unmet(Unmet::Missing)),
            (CounterKey::Known(_), Grant::Unlimited) => return Err(NoPart::Unlimited(source)),
            (CounterKey::Denied, _) => {
                lacking = Some(Arc::new(Lacking::Missing(rule.missing_of(attributes))));
                None
            }
            (CounterKey::Known(_), Grant::Blocked) => None,
            (CounterKey::Known(key), Grant::Limits(_)) => {
                let is_unread;
                (unit_cost, is_unread) = rule.unit_cost(attributes);
                if is_unread {
                    count(&rule.counts().unread_costs);
                }
                cost = unit_cost.saturating_mul(attributes.cost());
                current_limit = rule.adaptive().map(AdaptiveLimit::current);
                Some(key)
            }
        };
        Ok(MatchedRule {
            rule: index,
            grant,
            source,
            key,
            cost,
            unit_cost,
            is_shadow: rule.mode() == Mode::Shadow,
            is_peek: false,
            is_settled: false,
            current_limit,
            part: 0,
            lacking,
            refusal: None,
        })
    }
}
