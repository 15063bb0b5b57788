//! The decision: what each limit of each rule answered, and what that means for the request.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::headers::{HeaderSettings, Headers, Item, limit_name, seconds_to_retry};
use tidegate_core::{Algorithm, LeaseId, Limit, Micros, Outcome, Retry};

use super::Slots;
use super::local::is_concurrency;
use crate::decision::{deciding, is_more_pressing};
use crate::reason::Reason;
use crate::rules::{FrontEnd, Grant, MissingNames, OnStoreFailure, Rule, RuleSet, Share, Verdict};

/// The answer of one limit, by its place in the rules.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    /// Which claim it answers.
    pub(super) claim: usize,
    pub(super) rule: usize,
    pub(super) grant: usize,
    pub(super) limit: usize,
    pub(super) outcome: Outcome,
    /// Whether there is a limit to charge; otherwise the rule denies everything.
    pub(super) is_charged: bool,
    pub(super) is_shadow: bool,
    pub(super) is_degraded: bool,
    /// Why it denies, if only because the store could not answer.
    pub(super) failure: Option<Reason>,
    /// What this instance granted of the limit by itself, if it did.
    pub(super) share: Option<Arc<Share>>,
    /// The limit that was asked, of a rule whose limit moves.
    pub(super) moved: Option<Arc<Limit>>,
    /// The attributes for lack of which the rule denies everything.
    pub(super) missing: MissingNames,
}

impl Slot {
    /// The limit that was asked; none if the rule denies everything.
    pub(super) fn limit<'s>(&'s self, rules: &'s RuleSet) -> Option<&'s Limit> {
        match (&self.moved, &rules.at(self.rule).grants()[self.grant]) {
            (Some(moved), _) => Some(moved),
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
    slots: Slots,
    /// Which slot speaks for all that are enforced.
    headline: Option<usize>,
    lease: Option<LeaseId>,
}

/// What one limit of one rule answered.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'d> {
    /// The rule.
    pub rule: &'d Rule,
    /// The limit in force, or this instance's share of it if it had to decide by itself; none if the
    /// rule denies everything to this request.
    pub limit: Option<&'d Limit>,
    /// Which of the rule's limits it is.
    pub index: usize,
    /// What it answered.
    pub outcome: &'d Outcome,
    /// Whether the rule only counts.
    pub is_shadow: bool,
    /// Whether the store could not answer.
    pub is_degraded: bool,
    /// Why it denies the request, if it does.
    pub reason: Option<Reason>,
    missing: MissingNames,
}

impl Decision {
    pub(super) fn new(rules: Arc<RuleSet>, slots: Slots, lease: Option<LeaseId>) -> Self {
        let enforced = || (0..slots.len()).filter(|at| !slots[*at].is_shadow);
        let outcomes: SmallVec<[Outcome; 2]> = enforced().map(|at| slots[at].outcome).collect();
        let headline = enforced().nth(deciding(&outcomes));
        let allowed = outcomes.iter().all(|outcome| outcome.allowed);
        let mut decision = Self {
            rules,
            slots,
            headline,
            lease: None,
        };
        decision.lease = lease.filter(|_| allowed && decision.is_held());
        decision
    }

    /// Whether a limit on holders was taken, by a rule that is enforced or by one that only counts.
    fn is_held(&self) -> bool {
        self.answers().any(|answer| {
            let is_taken =
                !answer.is_degraded || answer.rule.on_store_failure() == OnStoreFailure::Local;
            let mut of_rule = self
                .answers()
                .filter(|other| std::ptr::eq(other.rule, answer.rule));
            answer.limit.is_some_and(is_concurrency)
                && is_taken
                && of_rule.all(|other| other.outcome.allowed)
        })
    }

    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.headline().is_none_or(|answer| answer.outcome.allowed)
    }

    /// Whether it may not. Then nothing was charged, but for shadow rules.
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Whether it may not only because the store could not answer and the rule says `deny` then.
    pub fn is_failed(&self) -> bool {
        self.headline().is_some_and(|answer| {
            !answer.outcome.allowed
                && answer.is_degraded
                && answer.rule.on_store_failure() == OnStoreFailure::Deny
        })
    }

    /// Whether the store could not answer for any rule that is enforced.
    pub fn is_degraded(&self) -> bool {
        self.enforced().any(|answer| answer.is_degraded)
    }

    /// The answer that speaks for all: of those that deny the one with the longest wait, else the one
    /// with the fewest remaining. None if no rule applies.
    pub fn headline(&self) -> Option<Answer<'_>> {
        self.headline.map(|at| self.answer(&self.slots[at]))
    }

    /// The id of the rule that decided.
    pub fn rule(&self) -> Option<&str> {
        self.headline().map(|answer| answer.rule.id())
    }

    /// Why the request is denied: the reason of the rule that decided. None if it is allowed.
    pub fn reason(&self) -> Option<Reason> {
        self.headline().and_then(|answer| answer.reason)
    }

    /// How long the caller should hold the request before it goes on. Zero if it is denied.
    pub fn delay(&self) -> Micros {
        if self.is_denied() {
            return Micros::ZERO;
        }
        let delays = self.enforced().map(|answer| answer.outcome.delay);
        delays.max().unwrap_or_default()
    }

    /// The lease under which limits on holders are held, to be released when the request is done.
    pub fn lease(&self) -> Option<LeaseId> {
        self.lease
    }

    /// How long that lease lasts, by the limit that ends it first, unless it is renewed.
    pub fn lease_ttl(&self) -> Option<Micros> {
        self.lease?;
        let limits = self.answers().filter_map(|answer| answer.limit);
        let lasts = limits.filter_map(|limit| match limit.algorithm() {
            Algorithm::Concurrency { lease_ttl } => Some(lease_ttl),
            _ => None,
        });
        lasts.min()
    }

    pub(super) fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// What each limit answered, in the order of the rules; those of shadow rules among them.
    pub fn answers(&self) -> impl ExactSizeIterator<Item = Answer<'_>> {
        self.slots.iter().map(|slot| self.answer(slot))
    }

    fn enforced(&self) -> impl Iterator<Item = Answer<'_>> {
        self.answers().filter(|answer| !answer.is_shadow)
    }

    fn answer<'d>(&'d self, slot: &'d Slot) -> Answer<'d> {
        let rule = self.rules.at(slot.rule);
        let limit = match &slot.share {
            Some(share) => Some(&share.part),
            None => slot.limit(&self.rules),
        };
        Answer {
            rule,
            limit,
            index: slot.limit,
            outcome: &slot.outcome,
            is_shadow: slot.is_shadow,
            is_degraded: slot.is_degraded,
            reason: slot.reason(rule),
            missing: slot.missing,
        }
    }

    /// The headers that tell a client about it, as names in lower case and values.
    pub fn headers(&self, settings: &HeaderSettings) -> Headers {
        let enforced: SmallVec<[Answer<'_>; 2]> = self.enforced().collect();
        let names: SmallVec<[Cow<'_, str>; 2]> = enforced.iter().map(Answer::name).collect();
        let items: SmallVec<[Item<'_>; 2]> = enforced
            .iter()
            .zip(&names)
            .map(|(answer, name)| Item {
                name,
                limit: answer.limit,
                outcome: answer.outcome,
            })
            .collect();
        let before = self.slots[..self.headline.unwrap_or(0)].iter();
        let headline = before.filter(|slot| !slot.is_shadow).count();
        settings.headers(&items, headline)
    }

    /// Whole seconds after which the request may come again, as `Retry-After` says it; none if it is allowed, or
    /// if waiting cannot help.
    pub fn seconds_to_retry(&self) -> Option<u64> {
        self.headline()
            .filter(|headline| !headline.outcome.allowed)?;
        let charged = self.enforced().map(|answer| (answer.limit, answer.outcome));
        seconds_to_retry(charged)
    }

    /// Counts what each rule said to a request of this front end.
    pub fn count(&self, front_end: FrontEnd) {
        let mut answers = self.answers().peekable();
        while let Some(mut decisive) = answers.next() {
            while let Some(next) = answers.next_if(|next| std::ptr::eq(next.rule, decisive.rule)) {
                if is_more_pressing(next.outcome, decisive.outcome) {
                    decisive = next;
                }
            }
            let counts = decisive.rule.counts();
            let verdict = match (decisive.is_shadow, decisive.reason) {
                (false, None) => Verdict::Allowed,
                (false, Some(reason)) => {
                    counts.count_denied(reason);
                    Verdict::Denied
                }
                (true, None) => Verdict::ShadowAllowed,
                (true, Some(_)) => Verdict::ShadowDenied,
            };
            counts.count(front_end, verdict);
        }
    }
}

impl<'d> Answer<'d> {
    /// What clients know the limit by: the rule's id, for its later limits with the window.
    pub fn name(&self) -> Cow<'d, str> {
        match self.limit {
            Some(limit) => limit_name(self.rule.id(), self.index, limit),
            None => Cow::Borrowed(self.rule.id()),
        }
    }

    /// The attributes of the rule's `per` that the request lacks, if it is denied for that.
    pub fn missing(&self) -> impl Iterator<Item = &'d str> + use<'d> {
        let is_reason = self.reason == Some(Reason::MissingAttribute);
        let missing = if is_reason {
            self.missing
        } else {
            MissingNames::default()
        };
        missing.of(self.rule)
    }
}
