//! The rules in force, and the state that the gate keeps for each of them: by the rule's id, over replacements of
//! the set.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tidegate_core::{Clock, Limit, Timestamp};

use super::trials::Trials;
use super::{Observer, RuleWatch};
use crate::adaptive::AdaptiveLimit;
use crate::attributes::Attributes;
use crate::reason::Reason;
use crate::rules::{
    Grant, GrantSource, Mode, Rule, RuleCounts, RuleSet, Shares, TemporaryGrants,
    TemporaryOverrides, ValueDigest,
};

/// The rules in force when they were [asked for](super::Gate::rules). A request is decided by one set from beginning
/// to end: the front end that reads its headers by them passes them on to [`Gate::decide_by`](super::Gate::decide_by).
#[derive(Debug, Clone)]
pub struct RulesInForce(pub(super) Arc<InForce>);

impl Deref for RulesInForce {
    type Target = RuleSet;

    fn deref(&self) -> &RuleSet {
        &self.0.rules
    }
}

impl RulesInForce {
    /// The rule with this id, and its state.
    pub fn get(&self, id: &str) -> Option<RuleInForce<'_>> {
        self.0.rules.index_of(id).map(|index| self.0.get(index))
    }

    /// Whether a descriptor that met no limit is unlimited, by its rule or by a temporary override. One that had ended
    /// would have met the limit of its rule.
    #[doc(hidden)]
    pub fn is_unlimited(&self, attributes: &Attributes<'_>) -> bool {
        self.0.descriptor_index(attributes).is_some_and(|index| {
            let (grant, _) = self.0.grant_for(index, attributes, Timestamp::EPOCH);
            *self.0.grant(index, grant) == Grant::Unlimited
        })
    }

    /// All rules with their states, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RuleInForce<'_>> {
        (0..self.0.rules.len()).map(|index| self.0.get(index))
    }
}

/// A rule in force, with what its gate keeps for it.
#[derive(Debug, Clone, Copy)]
pub struct RuleInForce<'f> {
    rule: &'f Arc<Rule>,
    state: &'f RuleState,
}

impl Deref for RuleInForce<'_> {
    type Target = Arc<Rule>;

    fn deref(&self) -> &Arc<Rule> {
        self.rule
    }
}

impl<'f> RuleInForce<'f> {
    /// The counts of its decisions.
    pub fn counts(&self) -> &'f RuleCounts {
        &self.state.counts
    }

    /// Its current limit, if it is adaptive.
    pub fn adaptive(&self) -> Option<&'f AdaptiveLimit> {
        self.state.adaptive.as_deref()
    }

    /// Whether it may deny a request for this reason, by itself or by a temporary override.
    pub fn can_deny_for(&self, reason: Reason) -> bool {
        let mut temporary = self.state.temporary().iter();
        let is_meant = |grant: &Grant| match reason {
            Reason::Blocked => *grant == Grant::Blocked,
            Reason::OverLimit | Reason::TooExpensive => matches!(grant, Grant::Limits(_)),
            _ => false,
        };
        self.rule.can_deny_for(reason)
            || (self.rule.mode() == Mode::Enforce && temporary.any(is_meant))
    }
}

/// The mutable state of a rule: its counts, its adaptive limit, its temporary overrides, and the observer's own data.
#[derive(Clone, Default)]
pub(super) struct RuleState {
    counts: Arc<RuleCounts>,
    adaptive: Option<Arc<AdaptiveLimit>>,
    temporary: Option<Arc<TemporaryGrants>>,
    watch: Option<Arc<dyn RuleWatch>>,
}

impl fmt::Debug for RuleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleState").finish_non_exhaustive()
    }
}

/// The inputs of new states.
pub(super) struct StateTerms<'t> {
    pub(super) clock: &'t Arc<dyn Clock>,
    pub(super) temporary: &'t TemporaryOverrides,
    pub(super) digest: Option<&'t Arc<ValueDigest>>,
    pub(super) observer: Option<&'t Arc<dyn Observer>>,
}

impl RuleState {
    /// The state of a rule, which goes on from an earlier one.
    fn of(rule: &Rule, earlier: Option<&Self>, terms: &StateTerms<'_>) -> Self {
        let moving = earlier.and_then(|earlier| earlier.adaptive.as_ref());
        let adaptive = rule.adaptive().map(|bounds| match moving {
            Some(moving) if moving.bounds() == bounds => Arc::clone(moving),
            _ => Arc::new(AdaptiveLimit::new(bounds.clone(), Arc::clone(terms.clock))),
        });
        let temporary = terms.temporary.get(rule.id());
        let temporary = temporary.filter(|overrides| !overrides.is_empty());
        let watch = earlier.and_then(|earlier| earlier.watch.clone());
        Self {
            counts: earlier.map_or_else(Arc::default, |earlier| Arc::clone(&earlier.counts)),
            adaptive,
            temporary: temporary
                .map(|overrides| Arc::new(TemporaryGrants::of(rule, overrides, terms.digest))),
            watch: watch.or_else(|| terms.observer?.watch(rule)),
        }
    }

    /// The state of its candidate, which is counted and observed with the rule.
    fn of_candidate(&self) -> Self {
        Self {
            adaptive: None,
            temporary: None,
            ..self.clone()
        }
    }

    pub(super) fn counts(&self) -> &RuleCounts {
        &self.counts
    }

    pub(super) fn shared_counts(&self) -> &Arc<RuleCounts> {
        &self.counts
    }

    pub(super) fn adaptive(&self) -> Option<&AdaptiveLimit> {
        self.adaptive.as_deref()
    }

    pub(super) fn watch(&self) -> Option<&dyn RuleWatch> {
        self.watch.as_deref()
    }

    fn temporary(&self) -> &[Grant] {
        self.temporary
            .as_ref()
            .map_or(&[], |grants| grants.grants())
    }
}

/// A set of rules, and the state of each.
#[derive(Debug)]
pub(super) struct InForce {
    rules: RuleSet,
    /// The rules, then the candidates of those that have one. Decisions name them by their index in this list.
    members: Vec<Arc<Rule>>,
    /// In the order of the members.
    states: Vec<RuleState>,
    trials: Trials,
    /// The shares that were last asked for.
    shares: ArcSwapOption<Shares>,
    /// Whether any rule has `warn_at`.
    has_warnings: bool,
    /// Whether any rule says `unsettled: give_back`.
    gives_back: bool,
}

impl Deref for InForce {
    type Target = RuleSet;

    fn deref(&self) -> &RuleSet {
        &self.rules
    }
}

impl InForce {
    /// Puts these rules in force. Rules with the same id continue their state.
    pub(super) fn new(rules: RuleSet, earlier: Option<&Self>, terms: &StateTerms<'_>) -> Self {
        let of_rule = |rule: &Arc<Rule>| {
            let index = earlier.and_then(|earlier| earlier.rules.index_of(rule.id()));
            let earlier = index.and_then(|index| earlier?.states.get(index));
            RuleState::of(rule, earlier, terms)
        };
        let has_warnings = rules.iter().any(|rule| rule.warn_at().is_some());
        let gives_back = rules.iter().any(|rule| rule.scope().gives_back());
        let mut states: Vec<RuleState> = rules.iter().map(of_rule).collect();
        let mut members: Vec<Arc<Rule>> = rules.iter().map(Arc::clone).collect();
        for (index, rule) in rules.iter().enumerate() {
            if let Some(candidate) = rule.candidate() {
                states.push(states[index].of_candidate());
                members.push(Arc::clone(candidate));
            }
        }
        Self {
            trials: Trials::of(&rules, terms.digest),
            members,
            states,
            has_warnings,
            gives_back,
            rules,
            shares: ArcSwapOption::default(),
        }
    }

    /// Rules that have been found already, with their states.
    pub(super) fn found(rules: impl IntoIterator<Item = (Arc<Rule>, RuleState)>) -> Self {
        let (members, states): (Vec<Arc<Rule>>, _) = rules.into_iter().unzip();
        Self {
            trials: Trials::found(&members),
            rules: RuleSet::unindexed(members.clone()),
            members,
            states,
            shares: ArcSwapOption::default(),
            has_warnings: false,
            gives_back: false,
        }
    }

    /// The rule or candidate with this index.
    #[inline]
    pub(super) fn at(&self, index: usize) -> &Rule {
        &self.members[index]
    }

    /// The rule or candidate with this index, to be kept.
    #[inline]
    pub(super) fn shared(&self, index: usize) -> &Arc<Rule> {
        &self.members[index]
    }

    /// What is tried of the rules.
    #[inline]
    pub(super) fn trials(&self) -> &Trials {
        &self.trials
    }

    fn get(&self, index: usize) -> RuleInForce<'_> {
        RuleInForce {
            rule: self.rules.shared(index),
            state: &self.states[index],
        }
    }

    /// Whether any rule says `unsettled: give_back`.
    pub(super) fn gives_back(&self) -> bool {
        self.gives_back
    }

    /// Whether any rule has `warn_at`.
    pub(super) fn has_warnings(&self) -> bool {
        self.has_warnings
    }

    pub(super) fn state(&self, index: usize) -> &RuleState {
        &self.states[index]
    }

    /// The grant for a request at `now`: a temporary override, else the rule's own. Returns its index and its source.
    #[inline]
    pub(super) fn grant_for(
        &self,
        index: usize,
        attributes: &Attributes<'_>,
        now: Timestamp,
    ) -> (usize, GrantSource) {
        let rule = self.at(index);
        if let Some(temporary) = &self.states[index].temporary
            && let Some(grant) = temporary.find(rule, attributes, now)
        {
            return (grant, GrantSource::Temporary);
        }
        rule.grant(attributes)
    }

    /// The grant of a rule with this index.
    #[inline]
    pub(super) fn grant(&self, rule: usize, grant: usize) -> &Grant {
        let own = self.at(rule).grants();
        match own.get(grant) {
            Some(grant) => grant,
            None => &self.states[rule].temporary()[grant - own.len()],
        }
    }

    /// All grants of a rule: its own, then those of temporary overrides.
    pub(super) fn grants(&self, rule: usize) -> impl Iterator<Item = &Grant> {
        let own = self.at(rule).grants().iter();
        own.chain(self.states[rule].temporary())
    }

    /// The current limit of a rule, if it is adaptive.
    #[inline]
    pub(super) fn current_limit(&self, rule: usize) -> Option<Arc<Limit>> {
        self.states[rule].adaptive().map(AdaptiveLimit::current)
    }

    /// The shares of one of `instances` instances in each limit.
    pub(super) fn shares(&self, instances: u64) -> Arc<Shares> {
        if let Some(shares) = &*self.shares.load()
            && shares.instances == instances
        {
            return Arc::clone(shares);
        }
        let rules = self.members.iter().enumerate();
        let granting = rules.map(|(index, rule)| (&**rule, self.grants(index).collect()));
        let shares = Arc::new(Shares::of(granting, instances));
        self.shares.store(Some(Arc::clone(&shares)));
        shares
    }
}
