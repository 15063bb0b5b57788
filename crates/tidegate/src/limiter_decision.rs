//! The answer to a request, made of the answers of its limits.

use std::time::{Duration, SystemTime};

use tidegate_core::outcome::deciding;
use tidegate_core::{Outcome, Outcomes, PermitId};

/// Whether a request may go on, and what its caller should know.
///
/// Where several limits apply, the numbers are those of the limit that decided: if denied, the
/// denying one with the longest wait; if allowed, the one with the fewest remaining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimiterDecision {
    outcomes: LimitOutcomes,
    decided_by: usize,
    permit: Option<PermitId>,
}

/// The outcomes of a decision. Most limiters have one limit, and its outcome is not moved a second time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be one more allocation for each decision of several limits"
)]
enum LimitOutcomes {
    One([Outcome; 1]),
    Several(Outcomes),
}

impl LimiterDecision {
    /// The decision of these outcomes, of which there is at least one.
    pub(crate) fn new(outcomes: Outcomes, permit: Option<PermitId>) -> Self {
        let decided_by = deciding(&outcomes);
        let permit = permit.filter(|_| outcomes.iter().all(|outcome| outcome.allowed));
        Self {
            outcomes: LimitOutcomes::Several(outcomes),
            decided_by,
            permit,
        }
    }

    /// The decision of the only limit, which needs no permit.
    #[inline]
    pub(crate) fn of_one(outcome: Outcome) -> Self {
        Self {
            outcomes: LimitOutcomes::One([outcome]),
            decided_by: 0,
            permit: None,
        }
    }

    /// Whether the request may go on.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.outcomes().iter().all(|outcome| outcome.allowed)
    }

    /// Whether the request is over a limit. Then nothing was charged.
    #[inline]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// What the limit that decided grants: requests per window, or a bucket's capacity.
    pub fn limit(&self) -> u64 {
        self.outcome().limit
    }

    /// The largest cost that would be allowed now, after this request.
    pub fn remaining(&self) -> u64 {
        self.outcome().remaining
    }

    /// How long to wait before this same request would be allowed, if no other request came: zero if it
    /// was, and nothing if its cost is above what the limit can ever grant.
    pub fn retry_after(&self) -> Option<Duration> {
        self.outcome().retry.wait().map(Duration::from)
    }

    /// When `remaining` is whole again, if no other request came.
    pub fn reset_at(&self) -> SystemTime {
        self.outcome().reset_at.into()
    }

    /// How long the caller should hold the request before it goes on: the longest that any limit
    /// asks for. Zero if it is denied.
    pub fn delay(&self) -> Duration {
        if self.is_denied() {
            return Duration::ZERO;
        }
        let delays = self.outcomes().iter().map(|outcome| outcome.delay);
        delays.max().unwrap_or_default().into()
    }

    /// The permit under which concurrency limits are held, to be released when the request is done.
    pub fn permit(&self) -> Option<PermitId> {
        self.permit
    }

    /// What each limit answered, in their order.
    #[inline]
    pub fn outcomes(&self) -> &[Outcome] {
        match &self.outcomes {
            LimitOutcomes::One(outcome) => outcome,
            LimitOutcomes::Several(outcomes) => outcomes,
        }
    }

    /// Which of the limits decided.
    pub fn decided_by(&self) -> usize {
        self.decided_by
    }

    fn outcome(&self) -> &Outcome {
        &self.outcomes()[self.decided_by]
    }
}
