//! Repairs values in Redis that are not valid states.
//!
//! A key of a type that no version uses for its limit is replaced, and the request is decided with the usage
//! that this instance knows. Numbers that no version writes are removed, and the request that met them
//! fails. All else is left to the operator: it may be the state of another version.

use std::sync::Arc;

use tidegate_core::StoreError;
use tokio::time::Instant;

use super::StoreInner;
use crate::call::StepReply;
use crate::damage::DamageKind;
use tidegate_redis_wire::plan::{OwnedState, Plan, PlannedCharge};
use tidegate_redis_wire::wire::{Finding, LuaStep, StepOutcome};

impl StoreInner {
    /// Takes a step that was made from this plan, and repairs states that are in its way.
    pub(super) async fn decide(
        &self,
        plan: &Plan<'_>,
        step: LuaStep,
        deadline: Instant,
    ) -> Result<StepReply, StoreError> {
        let step = Arc::new(step);
        match self.router.step(Arc::clone(&step), deadline).await {
            Err(StoreError::BadState(problem)) => {
                self.stats.add(&self.stats.bad_states);
                let text = problem.to_string();
                // Rare, and not to make every decision larger.
                let is_replaced = Box::pin(self.heal(plan, &text, deadline)).await;
                if !is_replaced {
                    return Err(StoreError::BadState(problem));
                }
                Box::pin(self.router.step(step, deadline)).await
            }
            answer => answer,
        }
    }

    /// Repairs damaged states where possible, and records the damage. True if the plan can be decided now.
    async fn heal(&self, plan: &Plan<'_>, problem: &str, deadline: Instant) -> bool {
        let charges = &plan.charges;
        if problem.starts_with("UNREADABLE") {
            for planned in charges {
                if charges.len() == 1 || problem.contains(&*planned.state.key) {
                    self.damages
                        .note(planned.charge.scope, DamageKind::Unreadable);
                }
            }
            return false;
        }
        let Ok(reply) = self.router.step(LuaStep::heal(plan), deadline).await else {
            return false;
        };
        let StepOutcome::Healed(findings) = reply.answer else {
            return false;
        };
        let mut is_replaced = problem.starts_with("WRONGTYPE");
        for (planned, finding) in charges.iter().zip(findings) {
            let kind = match finding {
                Finding::Nothing => continue,
                Finding::Foreign => DamageKind::Foreign,
                Finding::Negative => DamageKind::Negative,
            };
            self.stats.add(&self.stats.repaired_states);
            self.damages.note(planned.charge.scope, kind);
            is_replaced &= kind == DamageKind::Foreign && self.restore(planned, deadline).await;
        }
        is_replaced
    }

    /// Charges a state that was replaced with the usage that Redis last reported to this instance. Whether
    /// it can be decided now.
    async fn restore(&self, planned: &PlannedCharge<'_>, deadline: Instant) -> bool {
        if planned.is_concurrency() {
            return true;
        }
        let used = self.hints.take_used(planned.state.name);
        let Some(cost) = used.filter(|used| *used > 0) else {
            return true;
        };
        let state = OwnedState::from_planned(planned);
        let step = LuaStep::settle(&state.plan(cost));
        self.router.step(step, deadline).await.is_ok()
    }
}
