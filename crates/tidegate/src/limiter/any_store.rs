//! The limiter over any store: the same questions, awaited, which may fail.

use tidegate_core::{PermitId, Request, Store, StoreError};

use super::Limiter;
use crate::limiter_decision::LimiterDecision;

impl<S: Store> Limiter<S> {
    /// Charges one request to `key`, if all limits allow it.
    pub async fn check_async(&self, key: &str) -> Result<LimiterDecision, StoreError> {
        self.check_cost_async(key, 1).await
    }

    /// Charges a request of this cost to `key`, if all limits allow it. Zero asks and takes nothing.
    ///
    /// Under a concurrency limit the decision names a [permit](LimiterDecision::permit), to be
    /// [released](Self::release_async) when the request is done.
    pub async fn check_cost_async(
        &self,
        key: &str,
        cost: u64,
    ) -> Result<LimiterDecision, StoreError> {
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        let request = self.inner.request(&charges);
        let outcomes = self.inner.store.charge(&request).await?;
        Ok(LimiterDecision::new(outcomes, request.permit))
    }

    /// What [`check_cost_async`](Self::check_cost_async) would say, without charging anything.
    pub async fn peek_async(&self, key: &str, cost: u64) -> Result<LimiterDecision, StoreError> {
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        let outcomes = self.inner.store.peek(&Request::new(&charges)).await?;
        Ok(LimiterDecision::new(outcomes, None))
    }

    /// Charges a cost that is known only afterwards, without asking: as much of it as fits into a full quota.
    pub async fn settle_async(&self, key: &str, cost: u64) -> Result<LimiterDecision, StoreError> {
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        let outcomes = self.inner.store.settle(&Request::new(&charges)).await?;
        Ok(LimiterDecision::new(outcomes, None))
    }

    /// Forgets what `key` has used.
    pub async fn reset_async(&self, key: &str) -> Result<(), StoreError> {
        for limit in &self.inner.limits {
            let scope = &self.inner.scope;
            self.inner.store.forget(scope, limit, key).await?;
        }
        self.inner.freed.notify_waiters();
        Ok(())
    }

    /// Releases a permit. False if it is unknown or has ended.
    pub async fn release_async(&self, permit: PermitId) -> Result<bool, StoreError> {
        let was_held = self.inner.store.release(permit).await?;
        self.inner.freed.notify_waiters();
        Ok(was_held)
    }

    /// Lets a permit last its whole time again. False if it is unknown or has ended.
    pub async fn renew_async(&self, permit: PermitId) -> Result<bool, StoreError> {
        self.inner.store.renew(permit).await
    }
}
