//! Counts of a rule's decisions. The gate keeps them when the rule is changed.

use std::sync::atomic::{AtomicU64, Ordering};

use super::grant::Grant;
use super::rule::{Missing, Mode, OnStoreFailure, Rule};
use crate::attributes::MONEY;
use crate::reason::Reason;

/// The protocol through which a decision is requested. A program that embeds the gate is [`Library`](Self::Library).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrontEnd {
    /// The program that embeds the gate.
    Library,
    /// The HTTP API.
    Http,
    /// Envoy's rate limit service.
    Grpc,
    /// The Redis protocol.
    Resp,
    /// Forward-auth, for proxies that ask before they forward.
    Authorize,
    /// The gateway.
    Gateway,
}

impl FrontEnd {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Library,
        Self::Http,
        Self::Grpc,
        Self::Resp,
        Self::Authorize,
        Self::Gateway,
    ];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Authorize => "authorize",
            Self::Gateway => "gateway",
        }
    }
}

/// The verdict of a rule on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It allowed it.
    Allowed,
    /// It denied it.
    Denied,
    /// It only counts, and would have allowed it.
    ShadowAllowed,
    /// It only counts, and would have denied it.
    ShadowDenied,
    /// Its candidate allowed it, or would have.
    CandidateAllowed,
    /// Its candidate denied it, or would have.
    CandidateDenied,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Allowed,
        Self::Denied,
        Self::ShadowAllowed,
        Self::ShadowDenied,
        Self::CandidateAllowed,
        Self::CandidateDenied,
    ];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ShadowAllowed => "shadow_allowed",
            Self::ShadowDenied => "shadow_denied",
            Self::CandidateAllowed => "candidate_allowed",
            Self::CandidateDenied => "candidate_denied",
        }
    }

    /// Whether the rule was over its limit, also if it only counts.
    #[inline]
    pub fn is_denied(self) -> bool {
        matches!(
            self,
            Self::Denied | Self::ShadowDenied | Self::CandidateDenied
        )
    }

    /// Whether the rule only counts.
    #[inline]
    pub fn is_shadow(self) -> bool {
        matches!(self, Self::ShadowAllowed | Self::ShadowDenied)
    }
}

/// How the answer of a candidate differs from that of its rule's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CandidateChange {
    /// The limit allows what the candidate denies.
    NewlyDenied,
    /// The limit denies what the candidate allows.
    NewlyAllowed,
}

impl CandidateChange {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::NewlyDenied, Self::NewlyAllowed];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NewlyDenied => "newly_denied",
            Self::NewlyAllowed => "newly_allowed",
        }
    }
}

/// The column of requests that the rule allowed and another one denied.
const OVERRULED: usize = Verdict::ALL.len();

/// What becomes of units that a rule was charged for a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BudgetKind {
    /// Charged as an estimate.
    Reserved,
    /// What it cost after all.
    Settled,
    /// Given back.
    GivenBack,
    /// Charged above the estimate.
    Overrun,
    /// Spent above the estimate, and not charged for lack of room.
    Uncharged,
}

impl BudgetKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Reserved,
        Self::Settled,
        Self::GivenBack,
        Self::Overrun,
        Self::Uncharged,
    ];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Settled => "settled",
            Self::GivenBack => "given_back",
            Self::Overrun => "overrun",
            Self::Uncharged => "uncharged",
        }
    }
}

/// The decisions of one rule.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct RuleCounts {
    /// By verdict, but requests that another rule denied are in a column of their own: see [`OVERRULED`].
    decisions: [[AtomicU64; Verdict::ALL.len() + 1]; FrontEnd::ALL.len()],
    denied: [AtomicU64; Reason::ALL.len()],
    /// By the action when the store fails: allow, deny, local.
    pub(crate) degraded: [AtomicU64; 4],
    pub(crate) condition_failures: AtomicU64,
    pub(crate) unread_costs: AtomicU64,
    delayed: AtomicU64,
    admitted: AtomicU64,
    /// By [`BudgetKind`].
    budget: [AtomicU64; BudgetKind::ALL.len()],
    warned: AtomicU64,
    /// By [`CandidateChange`].
    changes: [AtomicU64; CandidateChange::ALL.len()],
}

impl RuleCounts {
    /// Counts one decision about a request that the enforced rules together admitted, or not.
    pub(crate) fn count(&self, front_end: FrontEnd, verdict: Verdict, is_admitted: bool) {
        let column = match verdict {
            Verdict::Allowed if !is_admitted => OVERRULED,
            _ => verdict as usize,
        };
        add_one(&self.decisions[front_end as usize][column]);
    }

    /// How often the rule said so to a front end, whatever other rules said.
    pub fn decisions(&self, front_end: FrontEnd, verdict: Verdict) -> u64 {
        let counts = &self.decisions[front_end as usize];
        let count = |column: usize| counts[column].load(Ordering::Relaxed);
        match verdict {
            Verdict::Allowed => count(verdict as usize) + count(OVERRULED),
            _ => count(verdict as usize),
        }
    }

    /// How many requests the rule allowed and no other one denied. Never decreases.
    pub fn passed(&self) -> u64 {
        let counts = self.decisions.iter();
        let passed = counts.map(|counts| counts[Verdict::Allowed as usize].load(Ordering::Relaxed));
        passed.sum()
    }

    /// Counts one denial.
    pub(crate) fn count_denied(&self, reason: Reason) {
        add_one(&self.denied[reason as usize]);
    }

    /// How often the rule denied for this reason.
    pub fn denied(&self, reason: Reason) -> u64 {
        self.denied[reason as usize].load(Ordering::Relaxed)
    }

    /// Decisions without the store, by action: allow, deny, local.
    pub fn degraded(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|index: usize| self.degraded[index].load(Ordering::Relaxed))
    }

    /// Conditions that could not be evaluated, so that `match`, or an item of `except`, did not hold.
    pub fn condition_failures(&self) -> u64 {
        self.condition_failures.load(Ordering::Relaxed)
    }

    /// How often the attribute with its cost was not a whole number.
    pub fn unread_costs(&self) -> u64 {
        self.unread_costs.load(Ordering::Relaxed)
    }

    /// Counts a request that has to wait before it goes on.
    pub(crate) fn count_delayed(&self) {
        add_one(&self.delayed);
    }

    /// How many requests had to wait before they went on.
    pub fn delayed(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    /// Counts the cost of a request that was admitted.
    pub(crate) fn count_admitted(&self, cost: u64) {
        self.admitted.fetch_add(cost, Ordering::Relaxed);
    }

    /// Counts units of a reservation.
    pub(crate) fn count_budget(&self, kind: BudgetKind, units: u64) {
        if units > 0 {
            self.budget[kind as usize].fetch_add(units, Ordering::Relaxed);
        }
    }

    /// The units of reservations that this became of.
    pub fn budget(&self, kind: BudgetKind) -> u64 {
        self.budget[kind as usize].load(Ordering::Relaxed)
    }

    /// Counts a charge or settlement that took a counter to `warn_at` of its limit.
    pub(crate) fn count_warned(&self) {
        add_one(&self.warned);
    }

    /// How often a charge or settlement took a counter to `warn_at` of its limit.
    pub fn warned(&self) -> u64 {
        self.warned.load(Ordering::Relaxed)
    }

    /// Counts a request that the candidate answers differently.
    pub(crate) fn count_change(&self, change: CandidateChange) {
        add_one(&self.changes[change as usize]);
    }

    /// How many requests the candidate answered differently from the limit, in this way.
    pub fn changes(&self, change: CandidateChange) -> u64 {
        self.changes[change as usize].load(Ordering::Relaxed)
    }

    /// The cost of all requests that were admitted. Wraps around.
    pub fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }
}

impl Rule {
    /// Whether the rule may deny a request for this reason. A shadow rule never does.
    pub fn can_deny_for(&self, reason: Reason) -> bool {
        let candidate = self.candidate.as_ref().filter(|_| self.rollout.is_some());
        if candidate.is_some_and(|candidate| candidate.can_deny_for(reason)) {
            return true;
        }
        let has = |is_meant: fn(&Grant) -> bool| self.grants.iter().any(is_meant);
        let can = match reason {
            Reason::OverLimit | Reason::TooExpensive => {
                has(|grant| matches!(grant, Grant::Limits(_)) && !grant.grants_nothing())
            }
            Reason::Blocked => has(Grant::grants_nothing),
            Reason::MissingAttribute => self.missing == Missing::Deny && !self.per.is_empty(),
            Reason::StoreUnavailable => matches!(
                self.on_store_failure,
                OnStoreFailure::Deny | OnStoreFailure::Error
            ),
            Reason::InvalidCredentials | Reason::KeysUnavailable => self.reads_identity(),
            Reason::Unpriced => self.unit.as_str() == MONEY,
        };
        can && self.mode == Mode::Enforce
    }
}

pub(crate) fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
