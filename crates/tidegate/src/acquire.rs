//! Waiting for a limit: reserve first, then wait, and give back what is not used.

use std::time::Duration;

use tidegate_core::algorithm::Form;
use tidegate_core::{Algorithm, Limit, Micros, Outcomes, PermitId, Request, Retry};

use crate::limiter::Limiter;
use crate::limiter_decision::LimiterDecision;

/// Leave to go on. Under a concurrency limit it holds its place until it is dropped.
#[derive(Debug)]
#[must_use = "a place under a concurrency limit is held only as long as the permit"]
pub struct Permit {
    limiter: Limiter,
    decision: LimiterDecision,
}

impl Permit {
    /// What the limits answered.
    pub fn decision(&self) -> &LimiterDecision {
        &self.decision
    }

    /// Holds on for another whole `lease_ttl`: for work that may take longer. False if the permit has
    /// ended, or if there is none.
    pub fn renew(&self) -> bool {
        self.decision
            .permit()
            .is_some_and(|permit| self.limiter.renew(permit))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(permit) = self.decision.permit() {
            self.limiter.release(permit);
        }
    }
}

/// Why no permit was given. Nothing was charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// It would take longer than may be waited.
    #[error(
        "the limit would let this go on only after {wait:?}; try again then, or raise `max_wait`"
    )]
    TooLong {
        /// How long it would take, if nobody else came.
        wait: Duration,
        /// What the limits say of the request now.
        decision: LimiterDecision,
    },
    /// The cost is above what the limit can ever grant.
    #[error("the cost is above the limit of {limit}, so waiting cannot help", limit = .0.limit())]
    Never(LimiterDecision),
}

impl AcquireError {
    /// What the limits say of the request now.
    pub fn decision(&self) -> &LimiterDecision {
        match self {
            Self::TooLong { decision, .. } | Self::Never(decision) => decision,
        }
    }
}

impl Limiter {
    /// Waits until `key` may go on: as long as the builder's `max_wait`, and no longer.
    ///
    /// A token bucket reserves a place in line at once and then waits for it, so those who wait are
    /// served in the order in which they came. Other algorithms are asked again when they said that
    /// it was time; a concurrency limit also when a place is freed, which may be at any time. It
    /// fails at once if the wait is known to be too long.
    ///
    /// Cancel-safe: dropping the future gives back what it had reserved. Waits are tokio's, whole
    /// milliseconds rounded up.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = tidegate::Limiter::new("100/second burst 1")?;
    /// for page in 1..=3 {
    ///     let _permit = limiter.acquire("api.example.com").await?;
    ///     println!("fetching page {page}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self, key: &str) -> Result<Permit, AcquireError> {
        self.acquire_cost(key, 1).await
    }

    /// [`acquire`](Self::acquire) for a request of this cost.
    pub async fn acquire_cost(&self, key: &str, cost: u64) -> Result<Permit, AcquireError> {
        let inner = &*self.inner;
        let mut now = inner.now();
        let deadline = now + inner.max_wait;
        loop {
            // Listening before asking: a place that is freed in between is heard of.
            let freed = inner.freed.notified();
            let reservation = Reservation::make(self, key, cost, deadline.since(now));
            let Some(wait) = reservation.wait else {
                return Err(AcquireError::Never(self.peek_cost(key, cost)));
            };
            if reservation.is_made() && (wait.is_zero() || now + wait <= deadline) {
                if !wait.is_zero() {
                    tokio::time::sleep(wait.into()).await;
                }
                return Ok(reservation.into_permit());
            }
            // Only a permit may end before its time.
            let may_be_freed = reservation.is_denied_by_holders() && now < deadline;
            if now + wait > deadline && !may_be_freed {
                drop(reservation);
                let decision = self.peek_cost(key, cost);
                return Err(AcquireError::TooLong {
                    wait: wait.into(),
                    decision,
                });
            }
            let wait = wait.min(deadline.since(now));
            let _ = tokio::time::timeout(wait.into(), freed).await;
            now = inner.now();
        }
    }
}

/// What was charged for a request that has not gone on yet. Dropped before it does, it is given back.
struct Reservation<'a> {
    limiter: &'a Limiter,
    key: &'a str,
    cost: u64,
    outcomes: Outcomes,
    permit: Option<PermitId>,
    /// How long before the request may go on; or, if it was denied, before it may at the earliest.
    /// Nothing if it never may.
    wait: Option<Micros>,
    is_kept: bool,
}

impl<'a> Reservation<'a> {
    /// Charges the request if it may go on within `max_wait`.
    fn make(limiter: &'a Limiter, key: &'a str, cost: u64, max_wait: Micros) -> Self {
        let inner = &*limiter.inner;
        let permit = inner.new_permit();
        let patient: Vec<Limit> = inner
            .limits
            .iter()
            .map(|limit| patient(limit, max_wait))
            .collect();
        let charges = inner.charges(&patient, key, cost);
        let outcomes = inner.store.charge(&Request {
            charges: &charges,
            at: None,
            permit,
        });
        let waits = patient
            .iter()
            .zip(&outcomes)
            .map(|(limit, outcome)| match outcome.retry {
                Retry::Now => Some(outcome.delay),
                Retry::After(wait) => Some(wait + delay_after(limit, cost)),
                Retry::Never => None,
            });
        let wait = waits.reduce(|one, other| Some(one?.max(other?))).flatten();
        Self {
            limiter,
            key,
            cost,
            outcomes,
            permit,
            wait,
            is_kept: false,
        }
    }

    /// Whether it was charged.
    fn is_made(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.allowed)
    }

    /// Whether others hold all places of a concurrency limit.
    fn is_denied_by_holders(&self) -> bool {
        let limits = self.limiter.limits().iter().zip(&self.outcomes);
        let mut denying = limits.filter(|(_, outcome)| !outcome.allowed);
        denying.any(|(limit, _)| matches!(limit.algorithm(), Algorithm::Concurrency { .. }))
    }

    fn into_permit(mut self) -> Permit {
        self.is_kept = true;
        let decision = LimiterDecision::new(self.outcomes.clone(), self.permit);
        Permit {
            limiter: self.limiter.clone(),
            decision,
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.is_kept && self.is_made() {
            let inner = &self.limiter.inner;
            inner.give_back(self.key, self.cost, &self.outcomes, self.permit);
            inner.freed.notify_waiters();
        }
    }
}

/// The same limit, with all the time there is to wait. Where that is more than it can count, it
/// waits by asking again.
fn patient(limit: &Limit, max_wait: Micros) -> Limit {
    match limit.algorithm() {
        Algorithm::TokenBucket { .. } => limit
            .with_max_delay(max_wait)
            .unwrap_or_else(|_| limit.clone()),
        _ => limit.clone(),
    }
}

/// What a denied request would still have to wait after it is admitted.
fn delay_after(limit: &Limit, cost: u64) -> Micros {
    match (limit.algorithm(), limit.form()) {
        (Algorithm::TokenBucket { max_delay }, _) => max_delay,
        // It is admitted when there is just room for it: all of the rest is before it.
        (Algorithm::LeakyBucket { shape: true }, Form::Bucket(bucket)) => {
            bucket.time_for(bucket.burst().saturating_sub(cost))
        }
        _ => Micros::ZERO,
    }
}
