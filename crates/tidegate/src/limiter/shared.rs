//! The limiter over a store that instances share: the same questions, awaited, which may fail.

use std::fmt;
use std::sync::Arc;

use tidegate_core::{Limit, PermitId, StoreError};

use super::LimiterInner;
use crate::limiter_decision::LimiterDecision;

/// Limits requests by key, in a store that several instances share, such as that of `tidegate-redis`. Built by
/// [`LimiterBuilder::build_shared`](crate::LimiterBuilder::build_shared).
///
/// Cheap to clone. Every question is sent to the store, and may fail.
#[derive(Clone)]
pub struct SharedLimiter {
    pub(crate) inner: Arc<LimiterInner>,
}

impl fmt::Debug for SharedLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimiter")
            .field("limits", &self.inner.limits)
            .finish_non_exhaustive()
    }
}

impl SharedLimiter {
    /// The limits, in their order.
    pub fn limits(&self) -> &[Limit] {
        &self.inner.limits
    }

    /// Charges one request to `key`, if all limits allow it.
    pub async fn check(&self, key: &str) -> Result<LimiterDecision, StoreError> {
        self.check_cost(key, 1).await
    }

    /// Charges a request of this cost to `key`, if all limits allow it. Zero asks and takes nothing.
    ///
    /// Under a concurrency limit the decision names a [permit](LimiterDecision::permit), to be
    /// [released](Self::release) when the request is done.
    pub async fn check_cost(&self, key: &str, cost: u64) -> Result<LimiterDecision, StoreError> {
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        let request = self.inner.request(&charges);
        let outcomes = self.inner.store.charge(&request).await?;
        Ok(LimiterDecision::new(outcomes, request.permit))
    }

    /// What [`check`](Self::check) would say, without charging anything.
    pub async fn peek(&self, key: &str) -> Result<LimiterDecision, StoreError> {
        self.peek_cost(key, 1).await
    }

    /// What [`check_cost`](Self::check_cost) would say, without charging anything.
    pub async fn peek_cost(&self, key: &str, cost: u64) -> Result<LimiterDecision, StoreError> {
        self.inner.peek(key, cost).await
    }

    /// Charges a cost that is known only afterwards, without asking: as much of it as fits into a full quota.
    pub async fn settle(&self, key: &str, cost: u64) -> Result<LimiterDecision, StoreError> {
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        let request = self.inner.request_without_permit(&charges);
        let outcomes = self.inner.store.settle(&request).await?;
        Ok(LimiterDecision::new(outcomes, None))
    }

    /// Forgets what `key` has used.
    pub async fn reset(&self, key: &str) -> Result<(), StoreError> {
        for limit in &self.inner.limits {
            let scope = &self.inner.scope;
            self.inner.store.forget(scope, limit, key).await?;
        }
        self.inner.freed.notify_waiters();
        Ok(())
    }

    /// Releases a permit. False if it is unknown or has ended.
    pub async fn release(&self, permit: PermitId) -> Result<bool, StoreError> {
        let was_held = self.inner.store.release(permit).await?;
        self.inner.freed.notify_waiters();
        Ok(was_held)
    }

    /// Lets a permit last its whole time again. False if it is unknown or has ended.
    pub async fn renew(&self, permit: PermitId) -> Result<bool, StoreError> {
        self.inner.store.renew(permit).await
    }
}
