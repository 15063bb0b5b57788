//! A store that fails as a test says, and that notes what it is asked.

#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a lock is poisoned only where a test has failed"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::{
    AdjustedCharges, Adjustment, Charge, ExtendAnswer, Limit, MemoryStore, Micros, Outcomes,
    PermitId, RemoteStore, Request, ReservationId, ReserveRequest, Reserved, Scope, SettleAnswer,
    SettleRequest, StoreError, StoreFuture, StoredReservation, Timestamp,
};
use tokio::sync::Semaphore;

/// How a store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreState {
    /// It does not.
    Up,
    /// Nothing is done, and the caller knows.
    Unreachable,
    /// It is done, and the caller gets no answer.
    Silent,
    /// Nothing is done, because the stored value is not a state.
    Damaged,
}

/// A memory store that behaves as one that servers share.
#[derive(Debug)]
pub struct FailingStore {
    /// Holds the state.
    pub store: Arc<MemoryStore>,
    state: Mutex<StoreState>,
    /// How many charges are answered; those after them wait.
    pub answers: Semaphore,
    /// How long it says that a call may take. It does not keep to it.
    pub timeout: Mutex<Option<Duration>>,
    /// Whether it says that it is unreachable.
    pub is_down: AtomicBool,
    /// How many servers share it; zero if that is unknown.
    pub instances: AtomicU64,
    /// What it reports as used, for any key.
    pub last_used: Mutex<Option<u64>>,
    /// Whether it takes that from the charges.
    pub remembers: AtomicBool,
    settled: Mutex<Vec<(String, u64)>>,
    /// The number of charges of each permit that was asked for.
    pub permits_named: Mutex<Vec<usize>>,
    /// How often the rules were changed.
    pub rules_changed: AtomicUsize,
}

impl Default for FailingStore {
    fn default() -> Self {
        Self::over(Arc::default())
    }
}

impl FailingStore {
    /// One over this store, which does not fail yet.
    pub fn over(store: Arc<MemoryStore>) -> Self {
        Self {
            store,
            state: Mutex::new(StoreState::Up),
            answers: Semaphore::new(Semaphore::MAX_PERMITS),
            timeout: Mutex::default(),
            is_down: AtomicBool::default(),
            instances: AtomicU64::default(),
            last_used: Mutex::default(),
            remembers: AtomicBool::default(),
            settled: Mutex::default(),
            permits_named: Mutex::default(),
            rules_changed: AtomicUsize::default(),
        }
    }

    /// One that cannot be reached.
    pub fn unreachable() -> Self {
        let store = Self::default();
        store.switch(StoreState::Unreachable);
        store
    }

    /// One that answers so many charges.
    pub fn answering(times: usize) -> Self {
        Self {
            answers: Semaphore::new(times),
            ..Self::default()
        }
    }

    /// Fails like this from now on.
    pub fn switch(&self, state: StoreState) {
        *self.state.lock().unwrap() = state;
    }

    /// The keys and costs that it settled since the last call.
    pub fn settled(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.settled.lock().unwrap())
    }

    fn ask<T>(&self, answer: impl FnOnce(&MemoryStore) -> T) -> Result<T, StoreError> {
        match *self.state.lock().unwrap() {
            StoreState::Up => Ok(answer(&self.store)),
            StoreState::Unreachable => Err(StoreError::Unreachable("switched off".into())),
            StoreState::Damaged => Err(StoreError::BadState("a list".into())),
            StoreState::Silent => {
                answer(&self.store);
                Err(StoreError::TimedOut(Duration::from_millis(15)))
            }
        }
    }
}

impl RemoteStore for FailingStore {
    fn charge<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        Box::pin(async move {
            let outcomes = self.ask(|store| store.charge(request))?;
            if let (Some(outcome), true) =
                (outcomes.first(), self.remembers.load(Ordering::Relaxed))
            {
                *self.last_used.lock().unwrap() = Some(outcome.limit - outcome.remaining);
            }
            // It is charged; only the answer waits. A request that costs nothing is answered immediately.
            if request.charges.iter().any(|charge| charge.cost > 0) {
                let answer = self.answers.acquire().await;
                answer
                    .map_err(|_| StoreError::Unreachable("closed".into()))?
                    .forget();
            }
            Ok(outcomes)
        })
    }

    fn peek<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        Box::pin(async move { self.ask(|store| store.peek(request)) })
    }

    fn preview<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        Box::pin(async move { self.ask(|store| store.preview(request)) })
    }

    fn adjust<'a>(&'a self, adjustment: &'a Adjustment<'a>) -> StoreFuture<'a, AdjustedCharges> {
        Box::pin(async move {
            self.ask(|store| {
                let mut settled = self.settled.lock().unwrap();
                for adjusted in adjustment.charges {
                    let (charge, actual) = (&adjusted.charge, adjusted.actual);
                    if actual > charge.cost {
                        settled.push((charge.key.to_owned(), actual - charge.cost));
                    }
                }
                store.adjust(adjustment)
            })
        })
    }

    fn reserve<'a>(&'a self, request: &'a ReserveRequest<'a>) -> StoreFuture<'a, Reserved> {
        Box::pin(async move { self.ask(|store| store.reserve(request)) })
    }

    fn settle_reservation<'a>(
        &'a self,
        request: &'a SettleRequest<'a>,
    ) -> StoreFuture<'a, SettleAnswer> {
        Box::pin(async move { self.ask(|store| store.settle_reservation(request)) })
    }

    fn extend_reservation(
        &self,
        id: ReservationId,
        ttl: Micros,
        at: Option<Timestamp>,
    ) -> StoreFuture<'_, ExtendAnswer> {
        Box::pin(async move { self.ask(|store| store.extend_reservation(id, ttl, at)) })
    }

    fn look_at_reservation(&self, id: ReservationId) -> StoreFuture<'_, Option<StoredReservation>> {
        Box::pin(async move { self.ask(|store| store.look_at_reservation(id)) })
    }

    fn settle<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        Box::pin(async move {
            self.ask(|store| {
                let mut settled = self.settled.lock().unwrap();
                for charge in request.charges {
                    settled.push((charge.key.to_owned(), charge.cost));
                }
                store.settle(request)
            })
        })
    }

    fn forget<'a>(
        &'a self,
        scope: &'a Scope,
        limit: &'a Limit,
        key: &'a str,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.ask(|store| store.forget(scope, limit, key)) })
    }

    fn release(&self, permit: PermitId) -> StoreFuture<'_, bool> {
        Box::pin(async move { self.ask(|store| store.release(permit)) })
    }

    fn renew(&self, permit: PermitId) -> StoreFuture<'_, bool> {
        Box::pin(async move { self.ask(|store| store.renew(permit)) })
    }

    fn permit_for(&self, charges: &[Charge<'_>]) -> PermitId {
        self.permits_named.lock().unwrap().push(charges.len());
        PermitId::random()
    }

    fn is_up(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
    }

    fn timeout(&self) -> Option<Duration> {
        *self.timeout.lock().unwrap()
    }

    fn instances(&self) -> Option<u64> {
        Some(self.instances.load(Ordering::Relaxed)).filter(|known| *known > 0)
    }

    fn last_used(&self, _charge: &Charge<'_>) -> Option<u64> {
        self.last_used.lock().unwrap().take()
    }

    fn rules_changed(&self) {
        self.rules_changed.fetch_add(1, Ordering::Relaxed);
    }
}
