//! What is done about values in Redis that are not the states that they should be.
//!
//! A key of a type that no version uses for its limit is replaced: the request is decided all the same,
//! over what this instance knows was used. Numbers that no version writes are taken out, and the request
//! that met them fails. All else is left to the operator: it may be the state of another version.

use tidegate_core::algorithm::Form;
use tidegate_core::{Charge, Request, StoreError};
use tokio::time::Instant;

use super::Inner;
use crate::call::StepReply;
use crate::damage::Kind;
use crate::wire::{Answer, Finding, Step};

impl Inner {
    /// Takes the step that `make` makes of these charges, which share a slot.
    pub(super) async fn decide(
        &self,
        charges: &[Charge<'_>],
        deadline: Instant,
        make: impl Fn() -> Step,
    ) -> Result<StepReply, StoreError> {
        match self.router.step(make(), deadline).await {
            Err(StoreError::BadState(problem)) => {
                self.stats.add(&self.stats.bad_states);
                let text = problem.to_string();
                // Rare, and not to make every decision larger.
                let is_replaced = Box::pin(self.heal(charges, &text, deadline)).await;
                if !is_replaced {
                    return Err(StoreError::BadState(problem));
                }
                Box::pin(self.router.step(make(), deadline)).await
            }
            answer => answer,
        }
    }

    /// Repairs what can be, and notes what was wrong. Whether the charges can be decided now.
    async fn heal(&self, charges: &[Charge<'_>], problem: &str, deadline: Instant) -> bool {
        if problem.starts_with("UNREADABLE") {
            for charge in charges {
                let state = self.keys.state(charge.scope, charge.limit, charge.key);
                if charges.len() == 1 || problem.contains(&state) {
                    self.damages.note(charge.scope, Kind::Unreadable);
                }
            }
            return false;
        }
        let step = Step::heal(&self.keys, charges);
        let Ok(reply) = self.router.step(step, deadline).await else {
            return false;
        };
        let Answer::Healed(findings) = reply.answer else {
            return false;
        };
        let mut is_replaced = problem.starts_with("WRONGTYPE");
        for (charge, finding) in charges.iter().zip(findings) {
            let kind = match finding {
                Finding::Nothing => continue,
                Finding::Foreign => Kind::Foreign,
                Finding::Negative => Kind::Negative,
            };
            self.stats.add(&self.stats.repaired_states);
            self.damages.note(charge.scope, kind);
            is_replaced &= kind == Kind::Foreign && self.restore(charge, deadline).await;
        }
        is_replaced
    }

    /// Charges a state that was replaced with what this instance last heard was used of it. Whether it
    /// can be decided now.
    async fn restore(&self, charge: &Charge<'_>, deadline: Instant) -> bool {
        if matches!(charge.limit.form(), Form::Concurrency(_)) {
            return true;
        }
        let placed = self.placed(&[*charge]);
        let used = placed
            .first()
            .and_then(|placed| self.hints.take_used(placed.name));
        let Some(cost) = used.filter(|used| *used > 0) else {
            return true;
        };
        let charges = [Charge { cost, ..*charge }];
        let step = Step::settle(&self.keys, &Request::new(&charges));
        self.router.step(step, deadline).await.is_ok()
    }
}
