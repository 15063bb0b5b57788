//! A store that can be switched off, and that notes what it is asked.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{Limit, MemoryStore, Outcome, PermitId, Store, StoreError};
use tidegate_core::{Charge, Outcomes, Request, Scope, SharedStore};

/// What a store that fails says, and does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// Nothing is done, and it is known.
    Away,
    /// It is done, and nobody hears of it.
    Silent,
    /// Nothing is done, because it has something else in the place of a state.
    Damaged,
}

pub(super) struct Switched {
    pub(super) store: Arc<MemoryStore>,
    state: Mutex<State>,
    pub(super) is_down: AtomicBool,
    /// Zero if nobody knows.
    pub(super) instances: AtomicU64,
    /// What it would say that was used, of any key.
    pub(super) last_used: Mutex<Option<u64>>,
    /// Whether it remembers that by itself.
    pub(super) remembers: AtomicBool,
    /// The costs that it was asked to settle.
    pub(super) settled: Mutex<Vec<(String, u64)>>,
    pub(super) permits_named: Mutex<Vec<usize>>,
    pub(super) rules_changed: AtomicUsize,
}

impl Default for Switched {
    fn default() -> Self {
        Self::over(Arc::default())
    }
}

impl Switched {
    pub(super) fn over(store: Arc<MemoryStore>) -> Self {
        Self {
            store,
            state: Mutex::new(State::Up),
            is_down: AtomicBool::default(),
            instances: AtomicU64::default(),
            last_used: Mutex::default(),
            remembers: AtomicBool::default(),
            settled: Mutex::default(),
            permits_named: Mutex::default(),
            rules_changed: AtomicUsize::default(),
        }
    }

    pub(super) fn switch(&self, state: State) {
        *self.state.lock().unwrap() = state;
    }

    pub(super) fn settled(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.settled.lock().unwrap())
    }

    fn ask<T>(&self, answer: impl FnOnce(&MemoryStore) -> T) -> Result<T, StoreError> {
        match *self.state.lock().unwrap() {
            State::Up => Ok(answer(&self.store)),
            State::Away => Err(StoreError::Unreachable("switched off".into())),
            State::Damaged => Err(StoreError::BadState("a list".into())),
            State::Silent => {
                answer(&self.store);
                Err(StoreError::TimedOut(Duration::from_millis(15)))
            }
        }
    }
}

impl Store for Switched {
    async fn charge(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        let outcomes = self.ask(|store| store.charge(request))?;
        if let (Some(outcome), true) = (outcomes.first(), self.remembers.load(Ordering::Relaxed)) {
            *self.last_used.lock().unwrap() = Some(outcome.limit - outcome.remaining);
        }
        Ok(outcomes)
    }

    async fn peek(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        self.ask(|store| store.peek(request))
    }

    async fn give_back(
        &self,
        request: &Request<'_>,
        outcomes: &[Outcome],
    ) -> Result<(), StoreError> {
        self.ask(|store| store.give_back(request, outcomes))
    }

    async fn settle(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        self.ask(|store| {
            let mut settled = self.settled.lock().unwrap();
            for charge in request.charges {
                settled.push((charge.key.to_owned(), charge.cost));
            }
            store.settle(request)
        })
    }

    async fn forget(&self, scope: &Scope, limit: &Limit, key: &str) -> Result<(), StoreError> {
        self.ask(|store| store.forget(scope, limit, key))
    }

    async fn release(&self, permit: PermitId) -> Result<bool, StoreError> {
        self.ask(|store| store.release(permit))
    }

    async fn renew(&self, permit: PermitId) -> Result<bool, StoreError> {
        self.ask(|store| store.renew(permit))
    }

    fn shared(&self) -> Option<&dyn SharedStore> {
        Some(self)
    }
}

impl SharedStore for Switched {
    fn permit_for(&self, charges: &[Charge<'_>]) -> PermitId {
        self.permits_named.lock().unwrap().push(charges.len());
        PermitId::random()
    }

    fn is_up(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
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
