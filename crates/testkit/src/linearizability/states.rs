//! The states of a history's limits, charged all or none by the pure functions.

use tidegate_core::algorithm::Form;
use tidegate_core::{Adjusted, Outcome, PermitId, Timestamp};

use super::HistoryCharge;
use super::settling::{SettledCall, adjust};
use crate::ModelState;

/// One state for each limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelStates {
    states: Vec<ModelState>,
}

impl ModelStates {
    pub(super) fn fresh(forms: &[Form]) -> Self {
        Self {
            states: forms.iter().map(ModelState::fresh).collect(),
        }
    }

    /// Whether all charges would be allowed.
    pub(super) fn allow(&self, forms: &[Form], charges: &[HistoryCharge], at: Timestamp) -> bool {
        charges
            .iter()
            .all(|charge| self.ask(forms, *charge, at).allowed)
    }

    /// Charges all or none, under this permit. Where one denies, the others answer over their untouched state.
    pub(super) fn charge(
        &mut self,
        forms: &[Form],
        charges: &[HistoryCharge],
        at: Timestamp,
        permit: PermitId,
    ) -> Vec<Outcome> {
        let is_allowed = self.allow(forms, charges, at);
        let outcomes = charges.iter().map(|charge| {
            let form = &forms[charge.limit];
            let asked = self.ask(forms, *charge, at);
            if is_allowed || !asked.allowed {
                return self.states[charge.limit].charge(form, charge.cost, at, permit);
            }
            let untouched = self.states[charge.limit].ask(form, 0, at);
            Outcome {
                remaining: untouched.remaining,
                exceeded: untouched.exceeded,
                reset_at: untouched.reset_at,
                ..asked
            }
        });
        outcomes.collect()
    }

    /// Ends a permit. False if it has ended, or was never held.
    pub(super) fn release(&mut self, permit: PermitId, at: Timestamp) -> bool {
        let released = self.states.iter_mut().filter_map(|state| match state {
            ModelState::HeldPermits(permits) => Some(permits.release(permit, Some(at))),
            _ => None,
        });
        // In all states, and not up to the first.
        released.fold(false, |is_released, was_held| is_released | was_held)
    }

    /// Settles a reservation. What that did in each of its limits.
    pub(super) fn settle(
        &mut self,
        forms: &[Form],
        call: SettledCall<'_>,
        at: Timestamp,
    ) -> Vec<Adjusted> {
        let actual = call.settlement.actual;
        let parts = call.charges.iter().zip(call.outcomes);
        let adjusted = parts.map(|(charge, outcome)| {
            let state = (&mut self.states[charge.limit], &forms[charge.limit]);
            adjust(state, (charge.cost, actual), outcome, at)
        });
        adjusted.collect()
    }

    /// What one charge would be answered.
    pub(super) fn ask(&self, forms: &[Form], charge: HistoryCharge, at: Timestamp) -> Outcome {
        self.states[charge.limit].ask(&forms[charge.limit], charge.cost, at)
    }
}
