//! The decision about a request, from the verdicts of the rules that apply.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use smallvec::SmallVec;
use tidegate_core::headers::{HeaderSettings, Headers, Item, limit_name, seconds_to_retry};
use tidegate_core::{Algorithm, Limit, Outcome, PermitId, Retry};

use super::in_force::InForce;
use super::observed_candidate::count_candidates;
use super::rule_decision::{ChargeStage, Lacking, RuleDecision, RuleDecisions};
use crate::reason::Reason;
use crate::rules::{FrontEnd, GrantSource, MissingNames, OnStoreFailure, Rule};

/// Whether a request is allowed, with the details for its caller.
#[derive(Debug, Clone)]
pub struct Decision {
    in_force: Arc<InForce>,
    rules: RuleDecisions,
    /// The indexes of the enforced rule that decided, and of its limit.
    headline: Option<(usize, usize)>,
    permit: Option<PermitId>,
}

/// The outcome of one limit of one rule.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LimitOutcome<'d> {
    /// The rule.
    pub rule: &'d Arc<Rule>,
    /// The limit in force, or this instance's share of it if it decided locally; none if the rule denies
    /// the request outright.
    pub limit: Option<&'d Limit>,
    /// The same, whole if this instance's share decided.
    pub whole: Option<&'d Limit>,
    /// Which of the rule's limits it is.
    pub index: usize,
    /// Its outcome.
    pub outcome: &'d Outcome,
    /// Whether it only counts: the rule is in shadow mode, or something else decides for this key.
    pub is_shadow: bool,
    /// Whether the store was unavailable.
    pub is_degraded: bool,
    /// Why it denies the request, if it does.
    pub reason: Option<Reason>,
    decided: &'d RuleDecision,
}

impl Decision {
    #[inline]
    pub(super) fn new(
        in_force: Arc<InForce>,
        rules: RuleDecisions,
        permit: Option<PermitId>,
    ) -> Self {
        let headline = headline_of(&in_force, &rules);
        let mut decision = Self {
            in_force,
            rules,
            headline,
            permit: None,
        };
        if permit.is_some() && decision.is_allowed() && decision.holds_permit() {
            decision.permit = permit;
        }
        decision
    }

    /// Whether a concurrency limit was charged, of an enforced or of a shadow rule.
    fn holds_permit(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| rule.holds_permit(&self.in_force))
    }

    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        let outcome = |(rule, limit): (usize, usize)| &self.rules[rule].answers[limit].outcome;
        self.headline
            .map(outcome)
            .is_none_or(|outcome| outcome.allowed)
    }

    /// Whether the request is denied. Only shadow rules were charged.
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Whether it is denied solely because the store is unavailable and the rule's `on_store_failure` is
    /// `deny`, or because the store has no memory for another permit.
    pub fn is_failed(&self) -> bool {
        self.headline().is_some_and(|limit| {
            let denies = if limit.is_degraded {
                matches!(
                    limit.rule.on_store_failure(),
                    OnStoreFailure::Deny | OnStoreFailure::Error
                )
            } else {
                limit.reason == Some(Reason::StoreUnavailable)
            };
            !limit.outcome.allowed && denies
        })
    }

    /// Whether the whole call fails, because the store is unavailable and an enforced rule's `on_store_failure` is
    /// `error`.
    pub fn fails_call(&self) -> bool {
        self.enforced_rules().any(|rule| {
            let policy = self.in_force.at(rule.rule).on_store_failure();
            policy == OnStoreFailure::Error && rule.is_degraded()
        })
    }

    /// Whether the store was unavailable for any enforced rule.
    pub fn is_degraded(&self) -> bool {
        self.enforced_rules().any(RuleDecision::is_degraded)
    }

    /// The outcome that decided: of those that deny the one with the longest wait, otherwise the one with
    /// the fewest remaining. None if no rule applies, or the request's costs by unit charge none of them.
    pub fn headline(&self) -> Option<LimitOutcome<'_>> {
        let (rule, limit) = self.headline?;
        Some(self.outcome(&self.rules[rule], limit))
    }

    /// The id of the rule that decided.
    pub fn rule(&self) -> Option<&str> {
        self.headline().map(|limit| limit.rule.id())
    }

    /// What the limit that decided grants: requests per window, or a bucket's capacity. None if no rule
    /// applies.
    pub fn limit(&self) -> Option<u64> {
        self.headline().map(|limit| limit.outcome.limit)
    }

    /// The largest cost that would be allowed now, after this request. None if no rule applies.
    pub fn remaining(&self) -> Option<u64> {
        self.headline().map(|limit| limit.outcome.remaining)
    }

    /// How long to wait before this same request would be allowed, if no other came: zero if it was. None
    /// if no rule applies, or if waiting cannot help.
    pub fn retry_after(&self) -> Option<Duration> {
        let wait = self.headline()?.outcome.retry.wait()?;
        Some(wait.into())
    }

    /// When `remaining` is whole again, if no other request came. None if no rule applies.
    pub fn reset_at(&self) -> Option<SystemTime> {
        let headline = self.headline()?;
        Some(headline.outcome.reset_at.into())
    }

    /// Why the request is denied: the reason of the rule that decided. None if it is allowed.
    pub fn reason(&self) -> Option<Reason> {
        self.headline().and_then(|limit| limit.reason)
    }

    /// How long the caller should hold the request before it goes on. Zero if it is denied.
    pub fn delay(&self) -> Duration {
        if self.is_denied() {
            return Duration::ZERO;
        }
        let answers = self.enforced_rules().flat_map(|rule| &rule.answers);
        let delays = answers.map(|answer| answer.outcome.delay);
        delays.max().unwrap_or_default().into()
    }

    /// The id of the permits that the request holds under concurrency limits, to be released when it is
    /// done.
    pub fn permit(&self) -> Option<PermitId> {
        self.permit
    }

    /// How long these permits last unless they are renewed, by the limit that ends them first.
    pub fn permit_ttl(&self) -> Option<Duration> {
        self.permit?;
        let limits = self.limits().filter_map(|limit| limit.limit);
        let lasts = limits.filter_map(|limit| match limit.algorithm() {
            Algorithm::Concurrency { lease_ttl } => Some(lease_ttl),
            _ => None,
        });
        lasts.min().map(Duration::from)
    }

    pub(super) fn in_force(&self) -> &InForce {
        &self.in_force
    }

    /// The verdict of each rule that applies, in their order.
    pub(super) fn rules(&self) -> &[RuleDecision] {
        &self.rules
    }

    /// Whether no rule applies to the request.
    pub fn is_unmatched(&self) -> bool {
        let has_candidates = self.in_force.trials().has_candidates();
        let mut rules = self.rules.iter();
        // A candidate that is tried for clients without a limit does not make them limited.
        rules.all(|rule| has_candidates && rule.is_compared(&self.in_force))
    }

    /// The outcome of each limit, in the order of the rules; those of shadow rules among them, and those of candidates
    /// after the limits of their rule.
    pub fn limits(&self) -> impl Iterator<Item = LimitOutcome<'_>> {
        // Cheaper than to flatten the limits of the rules: answers go through them for each request.
        let (mut rule, mut limit) = (0, 0);
        std::iter::from_fn(move || {
            loop {
                let decided = self.rules.get(rule)?;
                if limit < decided.answers.len() {
                    limit += 1;
                    return Some(self.outcome(decided, limit - 1));
                }
                (rule, limit) = (rule + 1, 0);
            }
        })
    }

    /// The outcome of each limit of a rule that applies.
    pub(super) fn limits_of<'d>(
        &'d self,
        rule: &'d RuleDecision,
    ) -> impl Iterator<Item = LimitOutcome<'d>> {
        (0..rule.answers.len()).map(move |limit| self.outcome(rule, limit))
    }

    fn enforced_rules(&self) -> impl Iterator<Item = &RuleDecision> {
        self.rules.iter().filter(|rule| !rule.is_shadow)
    }

    fn enforced(&self) -> impl Iterator<Item = LimitOutcome<'_>> {
        self.limits().filter(|limit| !limit.is_shadow)
    }

    #[inline]
    fn outcome<'d>(&'d self, decided: &'d RuleDecision, index: usize) -> LimitOutcome<'d> {
        let answer = &decided.answers[index];
        let whole = decided.limits(&self.in_force).get(index);
        let limit = match &answer.share {
            Some(share) => Some(&share.part),
            None => whole,
        };
        LimitOutcome {
            rule: self.in_force.shared(decided.rule),
            limit,
            whole,
            index,
            outcome: &answer.outcome,
            is_shadow: decided.is_shadow,
            is_degraded: answer.is_degraded,
            reason: decided.reason(answer, &self.in_force),
            decided,
        }
    }

    /// The headers that report it to a client, as names in lower case and values.
    pub fn headers(&self, settings: &HeaderSettings) -> Headers {
        // Without one, all items are of rules that do not decide.
        let headline = self.headline.map_or(usize::MAX, |(rule, limit)| {
            let before = self.rules[..rule].iter().filter(|rule| !rule.is_shadow);
            before.map(|rule| rule.answers.len()).sum::<usize>() + limit
        });
        let mut enforced = self.enforced();
        // Most requests have one limit, and need no lists.
        if let (Some(limit), None) = (enforced.next(), enforced.next()) {
            let item = Item {
                name: &limit.name(),
                limit: limit.limit,
                unit: limit.unit(),
                outcome: limit.outcome,
            };
            return settings.headers(&[item], headline);
        }
        self.with_items(|items| settings.headers(items, headline))
    }

    /// The headers that report it to a client by unit, as names in lower case and values.
    pub fn headers_by_unit(&self, settings: &HeaderSettings) -> Vec<(String, String)> {
        if !settings.are_by_unit() {
            return Vec::new();
        }
        self.with_items(|items| settings.headers_by_unit(items))
    }

    fn with_items<T>(&self, read: impl FnOnce(&[Item<'_>]) -> T) -> T {
        let enforced: SmallVec<[LimitOutcome<'_>; 2]> = self.enforced().collect();
        let names: SmallVec<[Cow<'_, str>; 2]> = enforced.iter().map(LimitOutcome::name).collect();
        let items: SmallVec<[Item<'_>; 2]> = enforced
            .iter()
            .zip(&names)
            .map(|(limit, name)| Item {
                name,
                limit: limit.limit,
                unit: limit.unit(),
                outcome: limit.outcome,
            })
            .collect();
        read(&items)
    }

    /// Whole seconds after which the request may come again, as `Retry-After` says it; none if it is allowed, or
    /// if waiting cannot help.
    pub fn seconds_to_retry(&self) -> Option<u64> {
        self.headline()
            .filter(|headline| !headline.outcome.allowed)?;
        let charged = self.enforced().map(|limit| (limit.limit, limit.outcome));
        seconds_to_retry(charged)
    }

    /// Counts what each rule said, for a request of this front end. An [observer](super::Observer) does that itself.
    pub fn count(&self, front_end: FrontEnd) {
        let is_admitted = self.is_allowed();
        let has_candidates = self.in_force.trials().has_candidates();
        for rule in &self.rules {
            if !has_candidates || !rule.is_compared(&self.in_force) {
                rule.count(&self.in_force, front_end, is_admitted);
            }
        }
        count_candidates(&self.in_force, &self.rules, front_end);
    }
}

/// The enforced limit that decides, by the indexes of its rule and its own: the most pressing.
fn headline_of(in_force: &InForce, rules: &[RuleDecision]) -> Option<(usize, usize)> {
    let mut headline: Option<((usize, usize), &Outcome)> = None;
    let decides = |rule: &RuleDecision| !rule.is_shadow && !rule.is_silent();
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| decides(rule)) {
        for (limit, answer) in rule.answers.iter().enumerate() {
            let outcome = &answer.outcome;
            if headline.is_none_or(|(_, earlier)| outcome.is_more_pressing(earlier)) {
                headline = Some(((index, limit), outcome));
            }
        }
    }
    let (headline, outcome) = headline?;
    if outcome.retry == Retry::Never {
        return headline_of_refused(in_force, rules).or(Some(headline));
    }
    Some(headline)
}

/// The limit that decides a request that is denied for its credentials: one by address alone that denies it too,
/// else the first that denies for them. None if no credentials are refused.
#[cold]
fn headline_of_refused(in_force: &InForce, rules: &[RuleDecision]) -> Option<(usize, usize)> {
    let find = |is_it: &dyn Fn(&RuleDecision) -> bool| {
        let rule = rules
            .iter()
            .position(|rule| !rule.lets_pass() && is_it(rule))?;
        let mut answers = rules[rule].answers.iter();
        let limit = answers.position(|answer| !answer.outcome.allowed)?;
        Some((rule, limit))
    };
    let refused = find(&|rule| rule.refusal().is_some())?;
    let is_of_address =
        |rule: &RuleDecision| rule.refusal().is_none() && in_force.at(rule.rule).is_by_address();
    find(&is_of_address).or(Some(refused))
}

impl<'d> LimitOutcome<'d> {
    /// What clients know the limit by: the rule's id, for its later limits with the window.
    pub fn name(&self) -> Cow<'d, str> {
        match self.limit {
            Some(limit) => limit_name(self.rule.id(), self.index, limit),
            None => Cow::Borrowed(self.rule.id()),
        }
    }

    /// Where the limit came from.
    #[doc(hidden)]
    pub fn source(&self) -> GrantSource {
        self.decided.source
    }

    /// What the request was charged, or asked for, in the unit of the rule.
    pub fn cost(&self) -> u64 {
        self.decided.cost
    }

    /// How much the request wanted of it; zero if it only asked.
    pub fn hits(&self) -> u64 {
        if self.decided.stage == ChargeStage::Peek {
            0
        } else {
            self.decided.cost
        }
    }

    /// What was used of it before the request, also beyond the limit.
    pub fn used_before(&self) -> u64 {
        let used = self.outcome.used();
        if self.decided.took(self.outcome) {
            used.saturating_sub(self.decided.cost)
        } else {
            used
        }
    }

    /// Whether it is a limit of the rule's [candidate](Rule::candidate).
    pub fn is_candidate(&self) -> bool {
        self.rule.is_candidate()
    }

    /// What it counts, if not requests.
    pub fn unit(&self) -> Option<&'d str> {
        let unit = self.rule.unit();
        (!unit.is_requests()).then(|| unit.as_str())
    }

    /// The limit that says the most that it can ever admit: of an adaptive rule the highest.
    pub fn highest(&self) -> Option<Cow<'d, Limit>> {
        let limit = self.limit?;
        Some(match self.rule.adaptive() {
            Some(adaptive) => Cow::Owned(adaptive.highest()),
            None => Cow::Borrowed(limit),
        })
    }

    /// The attributes of the rule's `per` that the request lacks, if it is denied for that.
    pub fn missing(&self) -> impl Iterator<Item = &'d str> + use<'d> {
        let missing = match (self.reason, self.decided.lacking.as_deref()) {
            (Some(Reason::MissingAttribute), Some(Lacking::Missing(names))) => *names,
            _ => MissingNames::default(),
        };
        missing.of(self.rule)
    }

    /// The model of the request, if it is denied because that has no price.
    pub fn unpriced_model(&self) -> Option<&'d str> {
        match self.decided.lacking.as_deref()? {
            Lacking::Unpriced { model } => model.as_deref(),
            _ => None,
        }
    }

    /// The attribute that the request's credentials should give, if it is denied because they are not valid.
    pub fn refused(&self) -> Option<&'d str> {
        match self.decided.lacking.as_deref()? {
            Lacking::Refused { attribute, .. } => Some(attribute),
            Lacking::Missing(_) | Lacking::Unpriced { .. } => None,
        }
    }
}
