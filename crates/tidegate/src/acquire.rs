//! Waiting for a limit: reserve first, then wait, and give back what is not used.

use std::fmt;
use std::time::Duration;

use tidegate_core::algorithm::Form;
use tidegate_core::{
    Algorithm, Charge, Limit, MemoryStore, Micros, Outcomes, PermitId, Request, Retry, Store,
    StoreError,
};
use tokio::runtime::Handle;

use crate::limiter::Limiter;
use crate::limiter_decision::LimiterDecision;

/// How often a shared store is asked again for a permit: another process cannot report that it released one.
const ASK_EVERY: Micros = Micros::from_millis(50);

/// Leave to go on. Under a concurrency limit it holds a permit until it is dropped.
///
/// Over a store that is not in memory, the permit is released by a task of its own.
#[must_use = "a permit of a concurrency limit is held only until this is dropped"]
pub struct Permit<S: Store = MemoryStore> {
    limiter: Limiter<S>,
    decision: LimiterDecision,
}

impl<S: Store> Permit<S> {
    /// What the limits answered.
    pub fn decision(&self) -> &LimiterDecision {
        &self.decision
    }

    /// Holds on for another whole `lease_ttl`: for work that may take longer. False if the permit has ended, or
    /// if there is none.
    pub async fn renew_async(&self) -> Result<bool, StoreError> {
        match self.decision.permit() {
            Some(permit) => self.limiter.renew_async(permit).await,
            None => Ok(false),
        }
    }
}

impl Permit {
    /// Holds on for another whole `lease_ttl`: for work that may take longer. False if the permit has ended, or
    /// if there is none.
    pub fn renew(&self) -> bool {
        let permit = self.decision.permit();
        permit.is_some_and(|permit| self.limiter.renew(permit))
    }
}

impl<S: Store> Drop for Permit<S> {
    fn drop(&mut self) {
        let Some(permit) = self.decision.permit() else {
            return;
        };
        if let Some(memory) = self.limiter.inner.store.memory() {
            memory.release(permit);
            self.limiter.inner.freed.notify_waiters();
        } else if let Ok(runtime) = Handle::try_current() {
            let limiter = self.limiter.clone();
            // If the store cannot be asked, the permit ends by itself.
            runtime.spawn(async move { limiter.release_async(permit).await });
        }
    }
}

impl<S: Store> fmt::Debug for Permit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

/// Why no permit was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// It would take longer than may be waited. Nothing was charged.
    #[error(
        "the limit would let this go on only after {wait:?}; try again then, or raise `max_wait`"
    )]
    TooLong {
        /// How long it would take, if no other request came.
        wait: Duration,
        /// What the limits say of the request now.
        decision: LimiterDecision,
    },
    /// The cost is above what the limit can ever grant. Nothing was charged.
    #[error("the cost is above the limit of {limit}, so waiting cannot help", limit = .0.limit())]
    Never(LimiterDecision),
    /// The store could not answer. Never in memory.
    #[error("the store could not answer")]
    Store(#[from] StoreError),
}

impl AcquireError {
    /// What the limits say of the request now, if they could be asked.
    pub fn decision(&self) -> Option<&LimiterDecision> {
        match self {
            Self::TooLong { decision, .. } | Self::Never(decision) => Some(decision),
            Self::Store(_) => None,
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Waits until `key` may go on: as long as the builder's `max_wait`, and no longer.
    ///
    /// A token bucket reserves its turn immediately and then waits for it, so callers are served in the order in
    /// which they came. Other algorithms are asked again at the time that they named; a concurrency limit also
    /// when a permit is released, which may be at any time. It fails immediately if the wait is known to be too
    /// long.
    ///
    /// Cancel-safe: dropping the future gives back what it had reserved. Needs a Tokio runtime with time; waits
    /// are whole milliseconds, rounded up.
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
    pub async fn acquire(&self, key: &str) -> Result<Permit<S>, AcquireError> {
        self.acquire_cost(key, 1).await
    }

    /// [`acquire`](Self::acquire) for a request of this cost.
    pub async fn acquire_cost(&self, key: &str, cost: u64) -> Result<Permit<S>, AcquireError> {
        let inner = &*self.inner;
        let mut now = inner.clock.now();
        let deadline = now + inner.max_wait;
        loop {
            // Listening before asking, so that a permit that is released in between is noticed.
            let freed = inner.freed.notified();
            let reservation = Reservation::make(self, key, cost, deadline.since(now)).await?;
            let Some(wait) = reservation.wait else {
                return Err(AcquireError::Never(self.peek_async(key, cost).await?));
            };
            if reservation.is_made() && (wait.is_zero() || now + wait <= deadline) {
                if !wait.is_zero() {
                    tokio::time::sleep(wait.into()).await;
                }
                return Ok(reservation.into_permit());
            }
            // Only a permit may end before its time.
            let may_be_freed = reservation.is_denied_by_holders() && now < deadline;
            drop(reservation);
            if now + wait > deadline && !may_be_freed {
                let decision = self.peek_async(key, cost).await?;
                return Err(AcquireError::TooLong {
                    wait: wait.into(),
                    decision,
                });
            }
            let mut wait = wait.min(deadline.since(now));
            if may_be_freed && inner.store.memory().is_none() {
                wait = wait.min(ASK_EVERY);
            }
            let _ = tokio::time::timeout(wait.into(), freed).await;
            now = inner.clock.now();
        }
    }
}

/// What was charged for a request that has not gone on yet. Dropped before it does, it is given back.
struct Reservation<S: Store> {
    limiter: Limiter<S>,
    key: Box<str>,
    cost: u64,
    outcomes: Outcomes,
    permit: Option<PermitId>,
    /// How long before the request may go on; or, if it was denied, before it may at the earliest.
    /// Nothing if it never may.
    wait: Option<Micros>,
    is_kept: bool,
}

impl<S: Store> Reservation<S> {
    /// Charges the request if it may go on within `max_wait`.
    async fn make(
        limiter: &Limiter<S>,
        key: &str,
        cost: u64,
        max_wait: Micros,
    ) -> Result<Self, StoreError> {
        let making = Self::charge(limiter.clone(), key.into(), cost, max_wait);
        if limiter.inner.store.memory().is_some() {
            return making.await;
        }
        // Made to the end even if the caller goes away: what the store has charged is then given back.
        let made = tokio::spawn(making).await;
        made.unwrap_or_else(|panicked| Err(StoreError::Lost(panicked.into())))
    }

    async fn charge(
        limiter: Limiter<S>,
        key: Box<str>,
        cost: u64,
        max_wait: Micros,
    ) -> Result<Self, StoreError> {
        let inner = &*limiter.inner;
        let limits = inner.limits.iter();
        let patient: Vec<Limit> = limits.map(|limit| patient(limit, max_wait)).collect();
        let (outcomes, permit) = {
            let charges = inner.charges(&patient, &key, cost);
            let request = inner.request(&charges);
            (inner.store.charge(&request).await?, request.permit)
        };
        let waits = patient
            .iter()
            .zip(&outcomes)
            .map(|(limit, outcome)| match outcome.retry {
                Retry::Now => Some(outcome.delay),
                Retry::After(wait) => Some(wait + delay_after(limit, cost)),
                Retry::Never => None,
            });
        let wait = waits.reduce(|one, other| Some(one?.max(other?))).flatten();
        Ok(Self {
            limiter,
            key,
            cost,
            outcomes,
            permit,
            wait,
            is_kept: false,
        })
    }

    /// Whether it was charged.
    fn is_made(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.allowed)
    }

    /// Whether other requests hold all permits of a concurrency limit.
    fn is_denied_by_holders(&self) -> bool {
        let mut limits = self.limiter.limits().iter().zip(&self.outcomes);
        limits.any(|(limit, outcome)| !outcome.allowed && limit.is_concurrency())
    }

    fn into_permit(mut self) -> Permit<S> {
        self.is_kept = true;
        Permit {
            limiter: self.limiter.clone(),
            decision: LimiterDecision::new(self.outcomes.clone(), self.permit),
        }
    }
}

impl<S: Store> Drop for Reservation<S> {
    fn drop(&mut self) {
        if self.is_kept || !self.is_made() {
            return;
        }
        let inner = &self.limiter.inner;
        if let Some(memory) = inner.store.memory() {
            let charges = inner.charges(&inner.limits, &self.key, self.cost);
            memory.give_back(&given_back(&charges, self.permit), &self.outcomes);
            inner.freed.notify_waiters();
        } else if let Ok(runtime) = Handle::try_current() {
            let (limiter, key) = (self.limiter.clone(), self.key.clone());
            let (cost, permit) = (self.cost, self.permit);
            let outcomes = std::mem::take(&mut self.outcomes);
            runtime.spawn(async move {
                let inner = &*limiter.inner;
                let charges = inner.charges(&inner.limits, &key, cost);
                let request = given_back(&charges, permit);
                // If the store cannot be asked, the charge stays until it has drained.
                let _ = inner.store.give_back(&request, &outcomes).await;
                inner.freed.notify_waiters();
            });
        }
    }
}

fn given_back<'a>(charges: &'a [Charge<'a>], permit: Option<PermitId>) -> Request<'a> {
    Request {
        charges,
        at: None,
        permit,
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
