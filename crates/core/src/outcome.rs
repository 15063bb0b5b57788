//! The answer of one limit to one request.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

use crate::time::{Micros, Timestamp};

/// The answer of one limit. A denial is an answer, never an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Whether this limit lets the request go on.
    pub allowed: bool,
    /// The quota: requests per window, or the capacity of a bucket.
    pub limit: u64,
    /// The largest cost that would be allowed at this instant, after this request.
    pub remaining: u64,
    /// By how much what is used exceeds the quota, after this request: of a fixed window that was charged
    /// [in full](crate::Scope::charged_in_full), or whose limit was lowered. Zero of every other limit.
    pub exceeded: u64,
    /// When this same request would be allowed, if no other request came.
    pub retry: Retry,
    /// The first instant at which `remaining` is whole again, if no other request came.
    pub reset_at: Timestamp,
    /// How long the caller should hold the request before it goes on.
    pub delay: Micros,
    /// The instant as of which the limit decided: the request's own, or the latest change of the
    /// state if that is later. A give-back names it.
    pub at: Timestamp,
    /// Whether it denies by an earlier answer that still holds: the store was not asked again.
    pub is_remembered: bool,
}

/// When a request may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// It was allowed: there is nothing to wait for.
    Now,
    /// It is denied until exactly this long after the request's own time, and allowed from then on.
    After(Micros),
    /// The cost is above the most that the limit can ever grant.
    Never,
}

impl Retry {
    /// The wait: zero if allowed, nothing if waiting cannot help.
    pub fn wait(self) -> Option<Micros> {
        match self {
            Self::Now => Some(Micros::ZERO),
            Self::After(wait) => Some(wait),
            Self::Never => None,
        }
    }
}

impl Outcome {
    /// This answer for a settled cost, of which `room` fits. The request is over and cannot wait: a cost that would
    /// have been delayed did not fit.
    pub(crate) fn settled(self, cost: u64, room: u64) -> Self {
        let retry = match self.retry {
            Retry::Now if cost > room => Retry::After(self.delay),
            retry => retry,
        };
        Self {
            allowed: cost <= room,
            retry,
            delay: Micros::ZERO,
            ..self
        }
    }

    /// What is used of the quota after this request, also beyond it.
    pub fn used(&self) -> u64 {
        self.limit
            .saturating_sub(self.remaining)
            .saturating_add(self.exceeded)
    }

    /// Whether this outcome speaks for a request rather than an earlier one: of two that deny, if its wait is longer; of
    /// two that allow, if less remains, or as much and for a longer time. A denial always does rather than what is
    /// allowed.
    #[inline]
    pub fn is_more_pressing(&self, earlier: &Self) -> bool {
        match (self.allowed, earlier.allowed) {
            (false, false) => self.retry > earlier.retry,
            (true, true) => {
                let until_reset = |outcome: &Self| outcome.reset_at.since(outcome.at);
                (earlier.remaining, until_reset(self)) > (self.remaining, until_reset(earlier))
            }
            (is_allowed, _) => !is_allowed,
        }
    }

    /// This answer for a request that took nothing: its verdict, over the state as it still is.
    pub(crate) fn with_remaining_of(self, untouched: Self) -> Self {
        Self {
            remaining: untouched.remaining,
            exceeded: untouched.exceeded,
            reset_at: untouched.reset_at,
            ..self
        }
    }
}

/// The index of the outcome that speaks for all: the first of those that compare as the most
/// [pressing](Outcome::is_more_pressing). Zero if there are none.
#[inline]
pub fn deciding(outcomes: &[Outcome]) -> usize {
    let mut most = 0;
    for (index, outcome) in outcomes.iter().enumerate().skip(1) {
        if outcome.is_more_pressing(&outcomes[most]) {
            most = index;
        }
    }
    most
}

/// The answers to the charges of one request, in their order. Up to four need no allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes(SmallVec<[Outcome; 4]>);

impl Outcomes {
    /// No answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The answer to the only charge.
    #[inline]
    pub fn one(outcome: Outcome) -> Self {
        Self(SmallVec::from_slice(&[outcome]))
    }
}

impl Deref for Outcomes {
    type Target = [Outcome];

    #[inline]
    fn deref(&self) -> &[Outcome] {
        &self.0
    }
}

impl DerefMut for Outcomes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Outcome] {
        &mut self.0
    }
}

impl FromIterator<Outcome> for Outcomes {
    #[inline]
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        Self(outcomes.into_iter().collect())
    }
}

impl Extend<Outcome> for Outcomes {
    fn extend<I: IntoIterator<Item = Outcome>>(&mut self, outcomes: I) {
        self.0.extend(outcomes);
    }
}

impl<'o> IntoIterator for &'o Outcomes {
    type Item = &'o Outcome;
    type IntoIter = std::slice::Iter<'o, Outcome>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_000);

    fn allowed(remaining: u64, reset: u64) -> Outcome {
        Outcome {
            allowed: true,
            limit: 10,
            remaining,
            exceeded: 0,
            retry: Retry::Now,
            reset_at: NOW + Micros::from_seconds(reset),
            delay: Micros::ZERO,
            at: NOW,
            is_remembered: false,
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
