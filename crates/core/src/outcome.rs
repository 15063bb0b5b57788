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
    /// When this same request would be allowed, if no other request came.
    pub retry: Retry,
    /// The first instant at which `remaining` is whole again, if no other request came.
    pub reset_at: Timestamp,
    /// How long the caller should hold the request before it goes on.
    pub delay: Micros,
    /// The instant as of which the limit decided: the request's own, or the latest change of the
    /// state if that is later. A give-back names it.
    pub at: Timestamp,
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

    /// This answer for a request that took nothing: its verdict, over the state as it still is.
    pub(crate) fn with_remaining_of(self, untouched: Self) -> Self {
        Self {
            remaining: untouched.remaining,
            reset_at: untouched.reset_at,
            ..self
        }
    }
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
