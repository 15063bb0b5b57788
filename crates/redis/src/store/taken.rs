//! What one request takes from pools, until it is admitted, or gives it back.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Limit, Outcome, PermitId};
use tidegate_redis_wire::keys::StateName;
use tidegate_redis_wire::plan::PlannedCharge;
use tidegate_redis_wire::wire::LuaStep;

use super::StoreInner;
use crate::leases::{LeaseKind, SharedPool, UnitLease};

/// Units that a request took from pools. They go back when this is dropped, unless the request is admitted.
pub(super) struct TakenFromPools<'i> {
    pub(super) inner: &'i Arc<StoreInner>,
    pub(super) parts: SmallVec<[TakenUnits; 4]>,
}

/// Units from one pool.
pub(super) struct TakenUnits {
    shared: Arc<SharedPool>,
    limit: Limit,
    cost: u64,
    outcome: Outcome,
    lease: UnitLease,
}

impl TakenFromPools<'_> {
    /// Serves a charge from its pool, if there are enough units: from the lease `granted` even after its
    /// end, else from a lease that has not ended.
    pub(super) fn serve(
        &mut self,
        shared: &Arc<SharedPool>,
        planned: &PlannedCharge<'_>,
        granted: Option<PermitId>,
    ) -> Option<Outcome> {
        let (limit, cost) = (planned.charge.limit, planned.total);
        let (outcome, lease) = {
            let mut pool = shared.pool.lock();
            match granted {
                Some(id) => pool.take_granted(limit, cost, id)?,
                None => pool.take(limit, cost)?,
            }
        };
        self.parts.push(TakenUnits {
            shared: Arc::clone(shared),
            limit: limit.clone(),
            cost,
            outcome,
            lease,
        });
        Some(outcome)
    }
}

impl TakenUnits {
    /// Whether so many of them can go back into their pool now.
    pub(super) fn can_go_back(&self, units: u64) -> bool {
        let kind = LeaseKind::for_limit(&self.limit);
        let pool = self.shared.pool.lock();
        pool.takes_back(units, |lease| kind.is_same(&self.lease, lease))
    }

    /// The state that they were taken from.
    pub(super) fn state(&self) -> StateName {
        self.shared.pool.lock().state.state.name
    }

    /// Gives so many of them back: into their pool, or to Redis if that has another lease by now.
    pub(super) fn give_back(self, units: u64, inner: &Arc<StoreInner>) {
        let kind = LeaseKind::for_limit(&self.limit);
        let mut state = {
            let mut pool = self.shared.pool.lock();
            let is_of = |lease: &UnitLease| kind.is_same(&self.lease, lease);
            if pool.put_back(units, is_of) {
                inner.hints.forget_denial(pool.state.state.name);
                return;
            }
            pool.state.clone()
        };
        state.limit = self.limit;
        let (inner, outcome) = (Arc::clone(inner), self.outcome);
        inner.runtime.clone().spawn(async move {
            let plan = state.plan(units);
            if let Some(step) = LuaStep::give_back(&inner.keys, &plan, &[outcome]) {
                let deadline = inner.router.deadline();
                let _ = inner.router.step(step, deadline).await;
            }
        });
    }
}

impl Drop for TakenFromPools<'_> {
    fn drop(&mut self) {
        for part in std::mem::take(&mut self.parts) {
            let units = part.cost;
            part.give_back(units, self.inner);
        }
    }
}
