//! What one rule said to a request: the record that matching begins, the store's answers complete, and decision,
//! receipt, observer and explanation read.

use std::sync::Arc;

use smallvec::SmallVec;
use smol_str::SmolStr;
use tidegate_core::{Charge, Limit, Micros, Outcome, Retry, Timestamp};

use super::in_force::InForce;
use crate::reason::Reason;
use crate::rules::{
    FrontEnd, Grant, GrantSource, MissingNames, Mode, OnStoreFailure, Rule, Share, Verdict,
};

/// The rules that apply to a request, in their order, those of its first part first. Most requests match one or two.
pub(super) type RuleDecisions = SmallVec<[RuleDecision; 2]>;

/// A rule that applies to a request, and what it said.
#[derive(Debug, Clone)]
pub(super) struct RuleDecision {
    /// Its index in the rule set.
    pub(super) rule: usize,
    /// The index of the part of the request that it applies to.
    pub(super) part: usize,
    /// The index of what it grants to this request.
    pub(super) grant: usize,
    /// Where that came from.
    pub(super) source: GrantSource,
    pub(super) stage: ChargeStage,
    pub(super) is_shadow: bool,
    pub(super) effect: ChargeEffect,
    /// Whose state is charged. None: the rule denies the request outright.
    pub(super) key: Option<SmolStr>,
    pub(super) cost: u64,
    /// What the rule charges for each unit of the request's own cost.
    pub(super) unit_cost: u64,
    /// Whether the request has costs by unit and none in the rule's: then it is only asked, and does not decide.
    pub(super) is_uncharged: bool,
    /// The current limit of an adaptive rule.
    pub(super) current_limit: Option<Arc<Limit>>,
    /// The attributes for which it denies the request outright.
    pub(super) lacking: Option<Arc<Lacking>>,
    /// What each of its limits said, once the store has answered; of a rule that denies outright, one answer.
    pub(super) answers: SmallVec<[LimitDecision; 1]>,
}

/// When the store is asked about a rule, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChargeStage {
    /// Everything that is only peeked, and takes nothing.
    Peek,
    /// Enforced rules that count by address alone, of a request that is denied for its credentials: they are
    /// charged, so that guesses are limited.
    Address,
    /// Enforced rules that take a permit, of a request whose other charges are recorded.
    Permit,
    /// All enforced rules, or the others: all or none of them are charged.
    Enforced,
    /// Shadow rules, each on its own.
    Shadow,
}

/// Whether a rule takes its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChargeEffect {
    /// If its limits, and those charged with it, allow that.
    Answered,
    /// After the decision, because it has been spent already.
    Settled,
    /// In full, whatever its limits answer, because it has been spent already.
    InFull,
    /// It does not, although its limits allow it, because another part of the call is denied.
    Withheld,
}

/// What one limit said.
#[derive(Debug, Clone)]
pub(super) struct LimitDecision {
    pub(super) outcome: Outcome,
    pub(super) is_degraded: bool,
    /// Why it denies, if only because the store is unavailable.
    pub(super) failure: Option<Reason>,
    /// This instance's share of the limit, if it decided locally.
    pub(super) share: Option<Arc<Share>>,
}

/// The attributes for which a rule denies a request outright.
#[derive(Debug)]
pub(super) enum Lacking {
    /// Those of its `per` that the request does not have.
    Missing(MissingNames),
    /// The one that the request's credentials should give, and why they do not.
    Refused { attribute: String, reason: Reason },
    /// None: the rule counts money, and this model has no price.
    Unpriced { model: Option<String> },
}

impl LimitDecision {
    pub(super) fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            is_degraded: false,
            failure: None,
            share: None,
        }
    }

    /// The answer of a rule that grants nothing.
    pub(super) fn blocked(now: Timestamp) -> Self {
        Self::of(Outcome {
            allowed: false,
            limit: 0,
            remaining: 0,
            exceeded: 0,
            retry: Retry::Never,
            reset_at: now,
            delay: Micros::ZERO,
            at: now,
            is_remembered: false,
        })
    }
}

impl RuleDecision {
    /// A rule that denies a request for its credentials.
    #[cold]
    pub(super) fn refused(
        (index, rule): (usize, &Rule),
        (attribute, reason): (&str, Reason),
        now: Timestamp,
    ) -> Self {
        let attribute = attribute.to_owned();
        Self {
            rule: index,
            part: 0,
            grant: 0,
            source: GrantSource::Limit,
            stage: stage_of(rule),
            is_shadow: rule.mode() == Mode::Shadow,
            effect: ChargeEffect::Answered,
            key: None,
            cost: 0,
            unit_cost: 0,
            is_uncharged: false,
            current_limit: None,
            lacking: Some(Arc::new(Lacking::Refused { attribute, reason })),
            answers: std::iter::once(LimitDecision::blocked(now)).collect(),
        }
    }

    /// The limits that it charges; none if it denies the request outright.
    #[inline]
    pub(super) fn limits<'r>(&'r self, in_force: &'r InForce) -> &'r [Limit] {
        if let Some(limit) = &self.current_limit {
            return std::slice::from_ref(limit);
        }
        match (&self.key, in_force.grant(self.rule, self.grant)) {
            (Some(_), Grant::Limits(limits)) => limits,
            _ => &[],
        }
    }

    /// What the store is asked to charge, one for each of its [limits](Self::limits).
    #[inline]
    pub(super) fn charges<'r>(
        &'r self,
        in_force: &'r InForce,
    ) -> impl Iterator<Item = Charge<'r>> + use<'r> {
        let scope = in_force.at(self.rule).scope();
        let (key, cost) = (self.key.as_deref().unwrap_or_default(), self.cost);
        self.limits(in_force).iter().map(move |limit| Charge {
            scope,
            limit,
            key,
            cost,
        })
    }

    /// Takes what the store answered to its charges.
    #[inline]
    pub(super) fn record(
        &mut self,
        in_force: &InForce,
        outcomes: &mut impl Iterator<Item = Outcome>,
        now: Timestamp,
    ) {
        if self.key.is_none() {
            return;
        }
        // A store that answers too little has not allowed the request.
        let answer = || match outcomes.next() {
            Some(outcome) => LimitDecision::of(outcome),
            None => LimitDecision::blocked(now),
        };
        let count = self.limits(in_force).len();
        self.answers = std::iter::repeat_with(answer).take(count).collect();
    }

    /// Whether it charges a concurrency limit.
    pub(super) fn takes_permit(&self, in_force: &InForce) -> bool {
        let mut limits = self.limits(in_force).iter();
        self.cost > 0 && self.stage != ChargeStage::Peek && limits.any(Limit::is_concurrency)
    }

    /// Whether the store was unavailable: then none of its limits was charged there.
    pub(super) fn is_degraded(&self) -> bool {
        self.answers.iter().any(|answer| answer.is_degraded)
    }

    /// Whether each of its limits allows the request.
    #[inline]
    pub(super) fn is_allowed(&self) -> bool {
        self.answers.iter().all(|answer| answer.outcome.allowed)
    }

    /// Whether it does not deny the request: it allows it, or only counts.
    #[inline]
    pub(super) fn lets_pass(&self) -> bool {
        self.is_shadow || self.is_allowed()
    }

    /// Whether it does not speak for the request: it was charged nothing, and does not deny it.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        self.is_uncharged && self.is_allowed()
    }

    /// Why it denies the request for its credentials, if it does.
    pub(super) fn refusal(&self) -> Option<Reason> {
        match self.lacking.as_deref()? {
            Lacking::Refused { reason, .. } => Some(*reason),
            Lacking::Missing(_) | Lacking::Unpriced { .. } => None,
        }
    }

    /// Why an answer of it denies the request, if it does.
    #[inline]
    pub(super) fn reason(&self, answer: &LimitDecision, in_force: &InForce) -> Option<Reason> {
        let is_denied = !answer.outcome.allowed;
        is_denied.then(|| self.reason_of_denial(answer, in_force))
    }

    fn reason_of_denial(&self, answer: &LimitDecision, in_force: &InForce) -> Reason {
        if let Some(reason) = answer.failure.or_else(|| self.refusal()) {
            return reason;
        }
        if let Some(Lacking::Unpriced { .. }) = self.lacking.as_deref() {
            return Reason::Unpriced;
        }
        if self.key.is_none() {
            // One that is blocked would be denied with the attribute, too.
            match in_force.grant(self.rule, self.grant) {
                Grant::Blocked => Reason::Blocked,
                Grant::Limits(_) | Grant::Unlimited => Reason::MissingAttribute,
            }
        } else if answer.outcome.limit == 0 {
            // What grants nothing is a limit of descriptors, and is counted.
            Reason::Blocked
        } else if answer.outcome.retry == Retry::Never {
            Reason::TooExpensive
        } else {
            Reason::OverLimit
        }
    }

    /// Whether it took its cost.
    pub(super) fn took(&self, outcome: &Outcome) -> bool {
        match self.effect {
            ChargeEffect::Answered => outcome.allowed && self.stage != ChargeStage::Peek,
            ChargeEffect::Settled | ChargeEffect::InFull => true,
            ChargeEffect::Withheld => false,
        }
    }

    /// Denies what only asks, of a limit that is exceeded.
    pub(super) fn deny_exceeded(&mut self, now: Timestamp) {
        if self.stage != ChargeStage::Peek || self.cost > 0 {
            return;
        }
        for LimitDecision { outcome, .. } in &mut self.answers {
            if outcome.exceeded > 0 {
                outcome.allowed = false;
                outcome.retry = Retry::After(outcome.reset_at.since(now));
            }
        }
    }

    /// Of its answers, the one that decides.
    pub(super) fn decisive(&self) -> Option<&LimitDecision> {
        let mut answers = self.answers.iter();
        let first = answers.next()?;
        Some(answers.fold(first, |decisive, next| {
            if next.outcome.is_more_pressing(&decisive.outcome) {
                next
            } else {
                decisive
            }
        }))
    }

    /// What it said.
    pub(super) fn verdict(&self) -> Verdict {
        let is_allowed = self.decisive().is_none_or(|answer| answer.outcome.allowed);
        match (self.is_shadow, is_allowed) {
            (false, true) => Verdict::Allowed,
            (false, false) => Verdict::Denied,
            (true, true) => Verdict::ShadowAllowed,
            (true, false) => Verdict::ShadowDenied,
        }
    }

    /// Counts what it said, for a request of this front end that all enforced rules together admitted, or not.
    pub(super) fn count(&self, in_force: &InForce, front_end: FrontEnd, is_admitted: bool) {
        let (counts, verdict) = (in_force.state(self.rule).counts(), self.verdict());
        if verdict == Verdict::Denied
            && let Some(reason) = self
                .decisive()
                .and_then(|answer| self.reason(answer, in_force))
        {
            counts.count_denied(reason);
        }
        counts.count(front_end, verdict, is_admitted);
    }

    /// Whether the request holds a permit by it.
    pub(super) fn holds_permit(&self, in_force: &InForce) -> bool {
        let is_local = || in_force.at(self.rule).on_store_failure() == OnStoreFailure::Local;
        let is_charged = |answer: &LimitDecision| !answer.is_degraded || is_local();
        let limits = self.limits(in_force).iter();
        let mut answers = limits.zip(&self.answers);
        answers.any(|(limit, answer)| limit.is_concurrency() && is_charged(answer))
            && self.is_allowed()
    }
}

/// When the store is asked about a rule that is not only peeked.
#[inline]
pub(super) fn stage_of(rule: &Rule) -> ChargeStage {
    match rule.mode() {
        Mode::Enforce => ChargeStage::Enforced,
        Mode::Shadow => ChargeStage::Shadow,
    }
}
