//! The permits of concurrency limits. Their id leads to the register that names the states they are held in.

use std::sync::Arc;

use tidegate_core::{Charge, PermitId, Request, StoreError};
use tokio::time::Instant;

use super::StoreInner;
use tidegate_redis_wire::keys::{RedisKeys, slot_of_permit};
use tidegate_redis_wire::plan::Plan;
use tidegate_redis_wire::wire::{LuaStep, StepOutcome};

/// Releases permits when it is dropped, unless their fate has become known.
pub(super) struct Unresolved {
    inner: Option<(Arc<StoreInner>, PermitId)>,
}

impl Unresolved {
    pub(super) fn resolve(mut self) {
        self.inner = None;
    }
}

impl Drop for Unresolved {
    fn drop(&mut self) {
        if let Some((inner, permit)) = self.inner.take() {
            let runtime = inner.runtime.clone();
            runtime.spawn(async move {
                // They end by themselves if this fails.
                let _ = inner.release(permit).await;
            });
        }
    }
}

impl StoreInner {
    /// Watches over the permits of a request until their fate is known.
    pub(super) fn watch_permits(self: &Arc<Self>, request: &Request<'_>) -> Unresolved {
        let mut charges = request.charges.iter();
        let is_held = request.at.is_none() && charges.any(|charge| charge.limit.is_concurrency());
        let permit = request.permit.filter(|_| is_held);
        Unresolved {
            inner: permit.map(|permit| (Arc::clone(self), permit)),
        }
    }

    /// A new id, whose register is in the slot of the first concurrency limit among the charges.
    pub(super) fn permit_for(&self, charges: &[Charge<'_>]) -> PermitId {
        match charges.iter().find(|charge| charge.limit.is_concurrency()) {
            Some(charge) => {
                let state = self.keys.state(charge.scope, charge.limit, charge.key);
                RedisKeys::permit_for(&state, PermitId::random())
            }
            None => PermitId::random(),
        }
    }

    /// Releases permits in all states.
    pub(super) async fn release(&self, permit: PermitId) -> Result<bool, StoreError> {
        let (mut was_live, there) = self.held(LuaStep::release(&self.keys, permit)).await?;
        if there.is_empty() {
            return Ok(was_live);
        }
        for state in there {
            let (was_live_there, _) = self.held(LuaStep::release_there(&state, permit)).await?;
            was_live |= was_live_there;
        }
        self.unregister(permit).await;
        Ok(was_live)
    }

    /// Renews permits in all states.
    pub(super) async fn renew(&self, permit: PermitId) -> Result<bool, StoreError> {
        let (mut was_live, there) = self.held(LuaStep::renew(&self.keys, permit)).await?;
        for state in there {
            let (was_live_there, _) = self.held(LuaStep::renew_there(&state, permit)).await?;
            was_live &= was_live_there;
        }
        Ok(was_live)
    }

    /// Removes the register of permits that are released in all states.
    pub(super) async fn unregister(&self, permit: PermitId) {
        let deadline = self.router.deadline();
        let step = LuaStep::unregister(&self.keys, permit);
        // If this fails, the register expires.
        let _ = self.router.step(step, deadline).await;
    }

    async fn held(&self, step: LuaStep) -> Result<(bool, Vec<String>), StoreError> {
        let deadline = self.router.deadline();
        match self.router.step(step, deadline).await?.answer {
            StepOutcome::Held { was_live, there } => Ok((was_live, there)),
            _ => Err(StoreError::BadReply("expected permits".into())),
        }
    }

    /// Writes the register of a plan's permits, where the states are in other slots than the register.
    pub(super) async fn register_far(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let Some(permit) = plan.permit else {
            return Ok(());
        };
        let permits = plan.permits();
        if permits.is_empty() {
            return Ok(());
        }
        let register = LuaStep::register(&self.keys, permit, plan.at, permits);
        self.router.step(register, deadline).await.map(drop)
    }

    /// Whether the register of the plan's permits is in another slot than its states.
    pub(super) fn is_far(&self, plan: &Plan<'_>) -> bool {
        let is_elsewhere = |permit| slot_of_permit(permit) != plan.slot();
        self.router.is_cluster() && plan.permit.is_some_and(is_elsewhere)
    }
}
