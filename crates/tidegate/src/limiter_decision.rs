//! The answer to a request, made of the answers of its limits.

use std::time::{Duration, SystemTime};

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

/// The outcome that speaks for all: the first of those that compare as the most pressing.
pub(crate) fn deciding(outcomes: &[Outcome]) -> usize {
    let mut most = 0;
    for (index, outcome) in outcomes.iter().enumerate().skip(1) {
        if is_more_pressing(outcome, &outcomes[most]) {
            most = index;
        }
    }
    most
}

/// Whether an outcome speaks for a request rather than an earlier one: of two that deny, if its wait is
/// longer; of two that allow, if less remains, or as much and for a longer time. A denial always does
/// rather than what is allowed.
pub(crate) fn is_more_pressing(outcome: &Outcome, earlier: &Outcome) -> bool {
    match (outcome.allowed, earlier.allowed) {
        (false, false) => outcome.retry > earlier.retry,
        (true, true) => {
            let until_reset = |outcome: &Outcome| outcome.reset_at.since(outcome.at);
            (earlier.remaining, until_reset(outcome)) > (outcome.remaining, until_reset(earlier))
        }
        (is_allowed, _) => !is_allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{Micros, Retry, Timestamp};

    const NOW: Timestamp = Timestamp::from_seconds(1_000);

    fn allowed(remaining: u64, reset: u64) -> Outcome {
        Outcome {
            allowed: true,
            limit: 10,
            remaining,
            retry: Retry::Now,
            reset_at: NOW + Micros::from_seconds(reset),
            delay: Micros::ZERO,
            at: NOW,
        }
    }

    fn denied(retry: Retry) -> Outcome {
        Outcome {
            allowed: false,
            retry,
            ..allowed(0, 5)
        }
    }

    #[test]
    fn the_limit_that_decides_by_hand() {
        let after = |seconds| denied(Retry::After(Micros::from_seconds(seconds)));
        let resetting = |outcome: Outcome, seconds| Outcome {
            reset_at: NOW + Micros::from_seconds(seconds),
            ..outcome
        };
        #[rustfmt::skip]
        let table = [
            ("one limit",                               vec![allowed(3, 5)],                                0),
            ("the fewest remaining",                    vec![allowed(3, 5), allowed(2, 1)],                 1),
            ("then the longest time to reset",          vec![allowed(3, 5), allowed(3, 9), allowed(3, 7)],  1),
            ("then their order",                        vec![allowed(3, 5), allowed(3, 5)],                 0),
            ("a denial comes before what is allowed",   vec![allowed(0, 9), after(1)],                      1),
            ("the longest wait of those that deny",     vec![after(1), after(3), after(2)],                 1),
            ("never is the longest",                    vec![after(9), denied(Retry::Never), after(8)],     1),
            ("of equal waits the first, whatever resets later", vec![after(2), resetting(after(2), 9)],     0),
        ];
        for (name, outcomes, decided_by) in table {
            assert_eq!(deciding(&outcomes), decided_by, "{name}");
        }
    }
}
