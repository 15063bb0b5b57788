//! The decision: what each limit of each rule answered, and what that means for the request.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::headers::{HeaderSettings, Headers, Item, limit_name, seconds_to_retry};
use tidegate_core::{Algorithm, Limit, Micros, Outcome, PermitId, Retry, Timestamp};

use super::group::DecidedLimits;
use super::matching::Lacking;
use crate::limiter_decision::is_more_pressing;
use crate::reason::Reason;
use crate::rules::{FrontEnd, Grant, MissingNames, OnStoreFailure, Rule, RuleSet, Share, Verdict};

/// One limit of a rule that applies, and its outcome.
#[derive(Debug, Clone)]
pub(super) struct DecidedLimit {
    /// The index of its rule, of what that grants, and of the limit.
    pub(super) rule: usize,
    pub(super) grant: usize,
    pub(super) limit: usize,
    pub(super) outcome: Outcome,
    /// Whether there is a limit to charge; otherwise the rule denies the request outright.
    pub(super) is_charged: bool,
    pub(super) is_shadow: bool,
    pub(super) is_degraded: bool,
    /// Why it denies, if only because the store is unavailable, or for the request's credentials.
    pub(super) failure: Option<Reason>,
    /// This instance's share of the limit, if it decided locally.
    pub(super) share: Option<Arc<Share>>,
    /// The limit that was charged, of an adaptive rule.
    pub(super) current_limit: Option<Arc<Limit>>,
    /// The attributes for lack of which the rule denies the request.
    pub(super) lacking: Option<Arc<Lacking>>,
}

impl DecidedLimit {
    /// The limit that was charged; none if the rule denies the request outright.
    pub(super) fn limit<'s>(&'s self, rules: &'s RuleSet) -> Option<&'s Limit> {
        match (
            &self.current_limit,
            &rules.at(self.rule).grants()[self.grant],
        ) {
            (Some(limit), _) => Some(limit),
            (None, Grant::Limits(limits)) if self.is_charged => limits.get(self.limit),
            _ => None,
        }
    }

    /// Why it denies the request, if it does.
    fn reason(&self, rule: &Rule) -> Option<Reason> {
        if self.outcome.allowed {
            return None;
        }
        if self.failure.is_some() {
            return self.failure;
        }
        Some(if !self.is_charged {
            // One that is blocked would be denied with the attribute, too.
            match rule.grants()[self.grant] {
                Grant::Blocked => Reason::Blocked,
                Grant::Limits(_) | Grant::Unlimited => Reason::MissingAttribute,
            }
        } else if self.outcome.retry == Retry::Never {
            Reason::TooExpensive
        } else {
            Reason::OverLimit
        })
    }
}

/// Whether a request may go on, and what its caller should know.
#[derive(Debug, Clone)]
pub struct Decision {
    rules: Arc<RuleSet>,
    limits: DecidedLimits,
    /// The index of the limit that decided, of those that are enforced.
    headline: Option<usize>,
    permit: Option<PermitId>,
}

/// The outcome of one limit of one rule.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LimitOutcome<'d> {
    /// The rule.
    pub rule: &'d Rule,
    /// The limit in force, or this instance's share of it if it decided locally; none if the rule denies
    /// the request outright.
    pub limit: Option<&'d Limit>,
    /// Which of the rule's limits it is.
    pub index: usize,
    /// Its outcome.
    pub outcome: &'d Outcome,
    /// Whether the rule is in shadow mode and only counts.
    pub is_shadow: bool,
    /// Whether the store was unavailable.
    pub is_degraded: bool,
    /// Why it denies the request, if it does.
    pub reason: Option<Reason>,
    lacking: Option<&'d Lacking>,
}

impl Decision {
    pub(super) fn new(
        rules: Arc<RuleSet>,
        limits: DecidedLimits,
        permit: Option<PermitId>,
    ) -> Self {
        let mut headline: Option<usize> = None;
        for (index, limit) in limits.iter().enumerate() {
            let is_before =
                |earlier: usize| !is_more_pressing(&limit.outcome, &limits[earlier].outcome);
            if !limit.is_shadow && !headline.is_some_and(is_before) {
                headline = Some(index);
            }
        }
        if let Some(index) = headline
            && limits[index].outcome.retry == Retry::Never
        {
            headline = Some(headline_of_refused(&rules, &limits).unwrap_or(index));
        }
        let mut decision = Self {
            rules,
            limits,
            headline,
            permit: None,
        };
        decision.permit = permit.filter(|_| decision.is_allowed() && decision.holds_permit());
        decision
    }

    /// Whether a concurrency limit was charged, of an enforced or of a shadow rule.
    fn holds_permit(&self) -> bool {
        self.limits().any(|limit| {
            let is_charged =
                !limit.is_degraded || limit.rule.on_store_failure() == OnStoreFailure::Local;
            let mut of_rule = self
                .limits()
                .filter(|other| std::ptr::eq(other.rule, limit.rule));
            limit.limit.is_some_and(Limit::is_concurrency)
                && is_charged
                && of_rule.all(|other| other.outcome.allowed)
        })
    }

    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        let headline = self.headline.map(|index| &self.limits[index]);
        headline.is_none_or(|limit| limit.outcome.allowed)
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
                limit.rule.on_store_failure() == OnStoreFailure::Deny
            } else {
                limit.reason == Some(Reason::StoreUnavailable)
            };
            !limit.outcome.allowed && denies
        })
    }

    /// Whether the store was unavailable for any enforced rule.
    pub fn is_degraded(&self) -> bool {
        self.enforced().any(|limit| limit.is_degraded)
    }

    /// The outcome that decided: of those that deny the one with the longest wait, otherwise the one with
    /// the fewest remaining. None if no rule applies.
    pub fn headline(&self) -> Option<LimitOutcome<'_>> {
        self.headline.map(|index| self.outcome(&self.limits[index]))
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
    pub fn retry_after(&self) -> Option<Micros> {
        self.headline().and_then(|limit| limit.outcome.retry.wait())
    }

    /// When `remaining` is whole again, if no other request came. None if no rule applies.
    pub fn reset_at(&self) -> Option<Timestamp> {
        self.headline().map(|limit| limit.outcome.reset_at)
    }

    /// Why the request is denied: the reason of the rule that decided. None if it is allowed.
    pub fn reason(&self) -> Option<Reason> {
        self.headline().and_then(|limit| limit.reason)
    }

    /// How long the caller should hold the request before it goes on. Zero if it is denied.
    pub fn delay(&self) -> Micros {
        if self.is_denied() {
            return Micros::ZERO;
        }
        let delays = self.enforced().map(|limit| limit.outcome.delay);
        delays.max().unwrap_or_default()
    }

    /// The id of the permits that the request holds under concurrency limits, to be released when it is
    /// done.
    pub fn permit(&self) -> Option<PermitId> {
        self.permit
    }

    /// How long these permits last unless they are renewed, by the limit that ends them first.
    pub fn lease_ttl(&self) -> Option<Micros> {
        self.permit?;
        let limits = self.limits().filter_map(|limit| limit.limit);
        let lasts = limits.filter_map(|limit| match limit.algorithm() {
            Algorithm::Concurrency { lease_ttl } => Some(lease_ttl),
            _ => None,
        });
        lasts.min()
    }

    pub(super) fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    pub(super) fn decided_limits(&self) -> &[DecidedLimit] {
        &self.limits
    }

    /// The outcome of each limit, in the order of the rules; those of shadow rules among them.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = LimitOutcome<'_>> {
        self.limits.iter().map(|limit| self.outcome(limit))
    }

    fn enforced(&self) -> impl Iterator<Item = LimitOutcome<'_>> {
        self.limits().filter(|limit| !limit.is_shadow)
    }

    fn outcome<'d>(&'d self, decided: &'d DecidedLimit) -> LimitOutcome<'d> {
        let rule = self.rules.at(decided.rule);
        let limit = match &decided.share {
            Some(share) => Some(&share.part),
            None => decided.limit(&self.rules),
        };
        LimitOutcome {
            rule,
            limit,
            index: decided.limit,
            outcome: &decided.outcome,
            is_shadow: decided.is_shadow,
            is_degraded: decided.is_degraded,
            reason: decided.reason(rule),
            lacking: decided.lacking.as_deref(),
        }
    }

    /// The headers that report it to a client, as names in lower case and values.
    pub fn headers(&self, settings: &HeaderSettings) -> Headers {
        let before = self.limits[..self.headline.unwrap_or(0)].iter();
        let headline = before.filter(|limit| !limit.is_shadow).count();
        let mut enforced = self.enforced();
        // Most requests have one limit, and need no lists.
        if let (Some(limit), None) = (enforced.next(), enforced.next()) {
            let item = Item {
                name: &limit.name(),
                limit: limit.limit,
                outcome: limit.outcome,
            };
            return settings.headers(&[item], headline);
        }
        let enforced: SmallVec<[LimitOutcome<'_>; 2]> = self.enforced().collect();
        let names: SmallVec<[Cow<'_, str>; 2]> = enforced.iter().map(LimitOutcome::name).collect();
        let items: SmallVec<[Item<'_>; 2]> = enforced
            .iter()
            .zip(&names)
            .map(|(limit, name)| Item {
                name,
                limit: limit.limit,
                outcome: limit.outcome,
            })
            .collect();
        settings.headers(&items, headline)
    }

    /// Whole seconds after which the request may come again, as `Retry-After` says it; none if it is allowed, or
    /// if waiting cannot help.
    pub fn seconds_to_retry(&self) -> Option<u64> {
        self.headline()
            .filter(|headline| !headline.outcome.allowed)?;
        let charged = self.enforced().map(|limit| (limit.limit, limit.outcome));
        seconds_to_retry(charged)
    }

    /// Counts the outcome of each rule for a request of this front end.
    pub fn count(&self, front_end: FrontEnd) {
        for outcome in self.rule_outcomes() {
            outcome.count(front_end);
        }
    }

    /// The outcome of each rule that applies, in their order.
    pub(super) fn rule_outcomes(&self) -> impl Iterator<Item = RuleOutcome<'_>> {
        let mut limits = self.limits.iter().peekable();
        std::iter::from_fn(move || {
            let mut decisive = limits.next()?;
            let mut delay = decisive.outcome.delay;
            let index = decisive.rule;
            while let Some(next) = limits.next_if(|next| next.rule == index) {
                delay = delay.max(next.outcome.delay);
                if is_more_pressing(&next.outcome, &decisive.outcome) {
                    decisive = next;
                }
            }
            let rule = self.rules.at(index);
            let reason = decisive.reason(rule);
            let verdict = match (decisive.is_shadow, reason.is_none()) {
                (false, true) => Verdict::Allowed,
                (false, false) => Verdict::Denied,
                (true, true) => Verdict::ShadowAllowed,
                (true, false) => Verdict::ShadowDenied,
            };
            Some(RuleOutcome {
                rule,
                index,
                verdict,
                reason,
                is_delayed: delay > Micros::ZERO && reason.is_none(),
                is_degraded: decisive.is_degraded,
            })
        })
    }
}

/// The limit that decides a request that is denied for its credentials: one by address alone that denies it too,
/// else the first that denies for them. None if no credentials are refused.
#[cold]
fn headline_of_refused(rules: &RuleSet, limits: &[DecidedLimit]) -> Option<usize> {
    let find = |is_it: &dyn Fn(&DecidedLimit) -> bool| {
        let is_it =
            |limit: &DecidedLimit| !limit.is_shadow && !limit.outcome.allowed && is_it(limit);
        limits.iter().position(is_it)
    };
    let is_refused = |limit: &DecidedLimit| limit.failure.is_some_and(Reason::is_about_credentials);
    let refused = find(&is_refused)?;
    let is_of_address =
        |limit: &DecidedLimit| !is_refused(limit) && rules.at(limit.rule).is_by_address();
    find(&is_of_address).or(Some(refused))
}

/// What a rule said to a request: of its limits, the one that decides.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleOutcome<'d> {
    pub(super) rule: &'d Rule,
    /// The index of the rule.
    pub(super) index: usize,
    pub(super) verdict: Verdict,
    reason: Option<Reason>,
    pub(super) is_delayed: bool,
    pub(super) is_degraded: bool,
}

impl RuleOutcome<'_> {
    pub(super) fn count(&self, front_end: FrontEnd) {
        let counts = self.rule.counts();
        if let (Verdict::Denied, Some(reason)) = (self.verdict, self.reason) {
            counts.count_denied(reason);
        }
        counts.count(front_end, self.verdict);
    }
}

impl<'d> LimitOutcome<'d> {
    /// What clients know the limit by: the rule's id, for its later limits with the window.
    pub fn name(&self) -> Cow<'d, str> {
        match self.limit {
            Some(limit) => limit_name(self.rule.id(), self.index, limit),
            None => Cow::Borrowed(self.rule.id()),
        }
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
        let missing = match (self.reason, self.lacking) {
            (Some(Reason::MissingAttribute), Some(Lacking::Missing(names))) => *names,
            _ => MissingNames::default(),
        };
        missing.of(self.rule)
    }

    /// The attribute that the request's credentials should give, if it is denied because they are not valid.
    pub fn refused(&self) -> Option<&'d str> {
        match self.lacking? {
            Lacking::Refused(attribute) => Some(attribute),
            Lacking::Missing(_) => None,
        }
    }
}
