//! Waiting for a limit: reserve first, then wait, and give back what is not used.

mod permit;

pub use permit::{Permit, SharedPermit};

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_core::limit::wait_for_all;
use tidegate_core::{Limit, Micros, Outcomes, PermitId, Request, Store, StoreError};
use tokio::runtime::Handle;

use crate::limiter::{Limiter, LimiterInner, SharedLimiter};
use crate::limiter_decision::LimiterDecision;

/// How often a shared store is asked again for a permit: another process cannot report that it released one.
const ASK_EVERY: Micros = Micros::from_millis(50);

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

impl Limiter {
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
    pub async fn acquire(&self, key: &str) -> Result<Permit, AcquireError> {
        self.acquire_cost(key, 1).await
    }

    /// [`acquire`](Self::acquire) for a request of this cost.
    pub async fn acquire_cost(&self, key: &str, cost: u64) -> Result<Permit, AcquireError> {
        let decision = acquire(&self.inner, key, cost, self.inner.max_wait).await?;
        Ok(self.permit(decision))
    }

    /// Reserves a turn without waiting for it: one step of [`acquire`](Self::acquire), for callers that wait by
    /// themselves. Needs no runtime.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limiter, Turn};
    ///
    /// let limiter = Limiter::new("10/second burst 1")?;
    /// assert!(limiter.check("api.example.com").is_allowed());
    /// match limiter.reserve("api.example.com", 1, Duration::from_secs(1))? {
    ///     Turn::Reserved(turn) => assert!(turn.wait() > Duration::ZERO),
    ///     Turn::AskAgain(_) => panic!("a token bucket reserves"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(
        clippy::result_large_err,
        reason = "the error has the decision, as that of `acquire`"
    )]
    pub fn reserve(&self, key: &str, cost: u64, max_wait: Duration) -> Result<Turn, AcquireError> {
        let max_wait = self.inner.max_wait.min(max_wait.into());
        let attempt = pin!(attempt(&self.inner, key, cost, max_wait));
        match attempt.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(Attempted::Reserved(reservation))) => {
                let limiter = self.clone();
                Ok(Turn::Reserved(ReservedTurn {
                    limiter,
                    reservation,
                }))
            }
            Poll::Ready(Ok(Attempted::AskAgain(wait))) => Ok(Turn::AskAgain(wait.into())),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => {
                debug_assert!(false, "a store in memory answers at the first poll");
                Ok(Turn::AskAgain(ASK_EVERY.into()))
            }
        }
    }

    fn permit(&self, decision: LimiterDecision) -> Permit {
        Permit {
            limiter: self.clone(),
            decision,
            is_handed_over: false,
        }
    }
}

impl SharedLimiter {
    /// Waits until `key` may go on, as [`Limiter::acquire`] does. A permit that another instance releases is noticed
    /// within 50 milliseconds.
    pub async fn acquire(&self, key: &str) -> Result<SharedPermit, AcquireError> {
        self.acquire_cost(key, 1).await
    }

    /// [`acquire`](Self::acquire) for a request of this cost.
    pub async fn acquire_cost(&self, key: &str, cost: u64) -> Result<SharedPermit, AcquireError> {
        self.acquire_within(key, cost, self.inner.max_wait.into())
            .await
    }

    /// [`acquire_cost`](Self::acquire_cost) that waits for so long at the most, and no longer than the builder's
    /// `max_wait`.
    pub async fn acquire_within(
        &self,
        key: &str,
        cost: u64,
        max_wait: Duration,
    ) -> Result<SharedPermit, AcquireError> {
        let max_wait = self.inner.max_wait.min(max_wait.into());
        let decision = acquire(&self.inner, key, cost, max_wait).await?;
        Ok(SharedPermit {
            limiter: self.clone(),
            decision,
            is_handed_over: false,
        })
    }
}

/// What [`Limiter::reserve`] achieved.
#[derive(Debug)]
pub enum Turn {
    /// The request was charged, and may go on after [a wait](ReservedTurn::wait).
    Reserved(ReservedTurn),
    /// Nothing was charged. The request may be asked about again after this time, or when a permit was released.
    AskAgain(Duration),
}

/// A turn that was charged and has not been taken yet. Given back if dropped before it is.
#[must_use = "a turn is given back if it is dropped"]
pub struct ReservedTurn {
    limiter: Limiter,
    reservation: Box<Reservation>,
}

impl ReservedTurn {
    /// How long the caller has to wait before the request may go on.
    pub fn wait(&self) -> Duration {
        self.reservation.wait.unwrap_or_default().into()
    }

    /// Takes the turn: what was charged stays charged.
    pub fn take(self) -> Permit {
        let decision = self.reservation.into_decision();
        self.limiter.permit(decision)
    }
}

impl fmt::Debug for ReservedTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservedTurn")
            .field("wait", &self.wait())
            .finish_non_exhaustive()
    }
}

/// Waits until a request may go on. The decision says what it was charged, and holds its permit.
async fn acquire(
    inner: &Arc<LimiterInner>,
    key: &str,
    cost: u64,
    max_wait: Micros,
) -> Result<LimiterDecision, AcquireError> {
    let mut now = inner.clock.now();
    let deadline = now + max_wait;
    loop {
        // Listening before asking, so that a permit that is released in between is noticed.
        let freed = inner.freed.notified();
        match attempt(inner, key, cost, deadline.since(now)).await? {
            Attempted::Reserved(reservation) => {
                let wait = reservation.wait.unwrap_or_default();
                if !wait.is_zero() {
                    tokio::time::sleep(wait.into()).await;
                }
                return Ok(reservation.into_decision());
            }
            Attempted::AskAgain(wait) => {
                let _ = tokio::time::timeout(wait.into(), freed).await;
            }
        }
        now = inner.clock.now();
    }
}

/// What one attempt to go on within `max_wait` achieved.
enum Attempted {
    /// Charged; goes on after its wait.
    Reserved(Box<Reservation>),
    /// Nothing was charged: to be asked again after this time, or when a permit was released.
    AskAgain(Micros),
}

/// Charges the request if it may go on within `max_wait`. Fails if it is known that it may not.
async fn attempt(
    inner: &Arc<LimiterInner>,
    key: &str,
    cost: u64,
    max_wait: Micros,
) -> Result<Attempted, AcquireError> {
    let reservation = Reservation::make(inner, key, cost, max_wait).await?;
    let Some(wait) = reservation.wait else {
        return Err(AcquireError::Never(inner.peek(key, cost).await?));
    };
    if reservation.is_made() && wait <= max_wait {
        return Ok(Attempted::Reserved(Box::new(reservation)));
    }
    // Only a permit may end before its time.
    let may_be_freed = reservation.is_denied_by_holders() && !max_wait.is_zero();
    drop(reservation);
    if wait > max_wait && !may_be_freed {
        let decision = inner.peek(key, cost).await?;
        return Err(AcquireError::TooLong {
            wait: wait.into(),
            decision,
        });
    }
    let wait = wait.min(max_wait);
    let is_remote = inner.store.remote().is_some();
    Ok(Attempted::AskAgain(if may_be_freed && is_remote {
        wait.min(ASK_EVERY)
    } else {
        wait
    }))
}

/// The charge of a request that has not proceeded yet. Given back if dropped before it does.
struct Reservation {
    inner: Arc<LimiterInner>,
    key: Box<str>,
    cost: u64,
    outcomes: Outcomes,
    permit: Option<PermitId>,
    /// How long before the request may go on; or, if it was denied, before it may at the earliest.
    /// Nothing if it never may.
    wait: Option<Micros>,
    is_kept: bool,
}

impl Reservation {
    /// Charges the request if it may go on within `max_wait`.
    async fn make(
        inner: &Arc<LimiterInner>,
        key: &str,
        cost: u64,
        max_wait: Micros,
    ) -> Result<Self, StoreError> {
        let making = Self::charge(Arc::clone(inner), key.into(), cost, max_wait);
        if inner.store.remote().is_none() {
            return making.await;
        }
        // Made to the end even if the caller goes away: what the store has charged is then given back.
        let made = tokio::spawn(making).await;
        made.unwrap_or_else(|panicked| Err(StoreError::Lost(panicked.into())))
    }

    async fn charge(
        inner: Arc<LimiterInner>,
        key: Box<str>,
        cost: u64,
        max_wait: Micros,
    ) -> Result<Self, StoreError> {
        let limits = inner.limits.iter();
        let patient: Vec<Limit> = limits.map(|limit| limit.patient(max_wait)).collect();
        let (outcomes, permit) = {
            let charges = inner.charges(&patient, &key, cost);
            let request = inner.request(&charges);
            (inner.store.charge(&request).await?, request.permit)
        };
        let wait = wait_for_all(&patient, &outcomes, cost);
        Ok(Self {
            inner,
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
        let mut limits = self.inner.limits.iter().zip(&self.outcomes);
        limits.any(|(limit, outcome)| !outcome.allowed && limit.is_concurrency())
    }

    fn into_decision(mut self) -> LimiterDecision {
        self.is_kept = true;
        LimiterDecision::new(self.outcomes.clone(), self.permit)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.is_kept || !self.is_made() {
            return;
        }
        let (inner, key) = (Arc::clone(&self.inner), std::mem::take(&mut self.key));
        let (cost, permit) = (self.cost, self.permit);
        let outcomes = std::mem::take(&mut self.outcomes);
        complete(&self.inner.store, async move {
            let charges = inner.charges(&inner.limits, &key, cost);
            let request = Request {
                permit,
                ..inner.request_without_permit(&charges)
            };
            // If the store cannot be asked, the charge stays until it has drained.
            let _ = inner.store.give_back(&request, &outcomes).await;
            inner.freed.notify_waiters();
        });
    }
}

impl LimiterInner {
    /// Releases the permit that a decision holds, if it holds one. A store that cannot be asked ends it by itself.
    fn end_permit(self: &Arc<Self>, decision: &LimiterDecision) {
        if let Some(permit) = decision.permit() {
            let inner = Arc::clone(self);
            complete(&self.store, async move {
                let _ = inner.store.release(permit).await;
                inner.freed.notify_waiters();
            });
        }
    }
}

/// Completes what a dropped value leaves to do: immediately in memory, else by a task, if there is a runtime.
fn complete(store: &Store, ending: impl Future<Output = ()> + Send + 'static) {
    match store {
        Store::Memory(_) => {
            let mut context = Context::from_waker(Waker::noop());
            let is_ready = pin!(ending).poll(&mut context).is_ready();
            debug_assert!(is_ready, "a store in memory answers at the first poll");
        }
        Store::Remote(_) => {
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(ending);
            }
        }
    }
}
