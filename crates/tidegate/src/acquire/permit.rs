//! What a limiter that was waited for gives: permission to proceed, which holds a permit under a concurrency limit.

use std::fmt;

use tidegate_core::StoreError;

use crate::limiter::{Limiter, SharedLimiter};
use crate::limiter_decision::LimiterDecision;

/// Permission to proceed. Under a concurrency limit it holds a permit until it is dropped.
#[must_use = "a permit of a concurrency limit is held only until this is dropped"]
pub struct Permit {
    pub(super) limiter: Limiter,
    pub(super) decision: LimiterDecision,
    pub(super) is_handed_over: bool,
}

impl Permit {
    /// The answer of the limits.
    pub fn decision(&self) -> &LimiterDecision {
        &self.decision
    }

    /// The answer alone. What it holds is then the caller's to [release](Limiter::release).
    pub fn into_decision(mut self) -> LimiterDecision {
        self.is_handed_over = true;
        self.decision.clone()
    }

    /// Holds on for another whole `lease_ttl`: for work that may take longer. False if the permit has ended, or
    /// if there is none.
    pub fn renew(&self) -> bool {
        let permit = self.decision.permit();
        permit.is_some_and(|permit| self.limiter.renew(permit))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_handed_over {
            self.limiter.inner.end_permit(&self.decision);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

/// Permission to proceed, from a [`SharedLimiter`]. Under a concurrency limit it holds a permit until it is dropped,
/// and is then released by a task of its own.
#[must_use = "a permit of a concurrency limit is held only until this is dropped"]
pub struct SharedPermit {
    pub(super) limiter: SharedLimiter,
    pub(super) decision: LimiterDecision,
    pub(super) is_handed_over: bool,
}

impl SharedPermit {
    /// The answer of the limits.
    pub fn decision(&self) -> &LimiterDecision {
        &self.decision
    }

    /// The answer alone. What it holds is then the caller's to [release](SharedLimiter::release).
    pub fn into_decision(mut self) -> LimiterDecision {
        self.is_handed_over = true;
        self.decision.clone()
    }

    /// Holds on for another whole `lease_ttl`: for work that may take longer. False if the permit has ended, or
    /// if there is none.
    pub async fn renew(&self) -> Result<bool, StoreError> {
        match self.decision.permit() {
            Some(permit) => self.limiter.renew(permit).await,
            None => Ok(false),
        }
    }
}

impl Drop for SharedPermit {
    fn drop(&mut self) {
        if !self.is_handed_over {
            self.limiter.inner.end_permit(&self.decision);
        }
    }
}

impl fmt::Debug for SharedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPermit")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}
