//! A store that measures how long the one inside takes.

use std::sync::Arc;

use tidegate::store::{Charge, Outcomes, Request, Scope};
use tidegate::{LeaseId, Limit, Outcome, Store, StoreError};
use tidegate_listen::clock::Stopwatch;

use super::Metrics;

/// Asks the store inside, and notes how long it took.
pub(crate) struct Measured<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S> Measured<S> {
    pub(crate) fn new(inner: S, metrics: Arc<Metrics>) -> Self {
        Self { inner, metrics }
    }

    pub(crate) fn inner(&self) -> &S {
        &self.inner
    }
}

/// Takes the time of a question, unless that would take longer than the answer. A macro, because a function
/// would hold the future twice.
macro_rules! measure {
    ($measured:ident, $asking:expr) => {{
        let start = (!$measured.inner.answers_at_once()).then(Stopwatch::start);
        let answer = $asking.await;
        if let Some(start) = start {
            $measured.metrics.asked(start.elapsed(), answer.is_err());
        }
        answer
    }};
}

impl<S: Store> Store for Measured<S> {
    async fn charge(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        measure!(self, self.inner.charge(request))
    }

    async fn peek(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        measure!(self, self.inner.peek(request))
    }

    async fn give_back(
        &self,
        request: &Request<'_>,
        outcomes: &[Outcome],
    ) -> Result<(), StoreError> {
        measure!(self, self.inner.give_back(request, outcomes))
    }

    async fn settle(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        measure!(self, self.inner.settle(request))
    }

    async fn forget(&self, scope: &Scope, limit: &Limit, key: &str) -> Result<(), StoreError> {
        measure!(self, self.inner.forget(scope, limit, key))
    }

    async fn release(&self, lease: LeaseId) -> Result<bool, StoreError> {
        measure!(self, self.inner.release(lease))
    }

    async fn renew(&self, lease: LeaseId) -> Result<bool, StoreError> {
        measure!(self, self.inner.renew(lease))
    }

    #[inline]
    fn charge_at_once(&self, charge: &Charge<'_>) -> Option<Outcome> {
        self.inner.charge_at_once(charge)
    }

    fn answers_at_once(&self) -> bool {
        self.inner.answers_at_once()
    }

    fn lease_for(&self, charges: &[Charge<'_>]) -> LeaseId {
        self.inner.lease_for(charges)
    }

    fn is_up(&self) -> bool {
        self.inner.is_up()
    }

    fn instances(&self) -> Option<u64> {
        self.inner.instances()
    }

    fn last_used(&self, charge: &Charge<'_>) -> Option<u64> {
        self.inner.last_used(charge)
    }

    fn rules_changed(&self) {
        self.inner.rules_changed();
    }
}
