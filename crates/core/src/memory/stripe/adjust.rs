//! Charges that turn out to cost more or less than was charged.

use super::Stripe;
use crate::memory::forms::{InlineForm, StateHome, StateStep, Task};
use crate::memory::shared::SharedCounts;
use crate::reservation::Adjusted;
use crate::time::Timestamp;

impl Stripe {
    /// Changes a charge to `actual`. What waits in line flows back only when its turn has come, so it was charged as of
    /// then.
    pub(in crate::memory) fn adjust(
        &mut self,
        task: &Task<'_>,
        charged_at: Timestamp,
        actual: u64,
        shared: &SharedCounts,
    ) -> Adjusted {
        let room = self.ask(&Task { cost: 0, ..*task }).remaining;
        let same = Adjusted {
            remaining: room,
            ..Adjusted::default()
        };
        match actual.checked_sub(task.cost) {
            Some(0) => same,
            Some(cost) => {
                let more = Task { cost, ..*task };
                let outcome = self.apply(StateStep::Settle, &more, shared);
                Adjusted {
                    overrun: cost.min(room),
                    uncharged: cost.saturating_sub(room),
                    remaining: outcome.remaining,
                    ..same
                }
            }
            None => {
                let cost = task.cost - actual;
                let less = Task { cost, ..*task };
                let given_back = self.given_back(&less, charged_at);
                let outcome = self.apply(StateStep::GiveBack(charged_at), &less, shared);
                Adjusted {
                    given_back,
                    remaining: outcome.remaining,
                    ..same
                }
            }
        }
    }

    /// How much of a charge would be given back.
    fn given_back(&self, task: &Task<'_>, charged_at: Timestamp) -> u64 {
        match StateHome::from(task.limit.form()) {
            StateHome::Bucket(form) => self.given_back_inline(form, task, charged_at),
            StateHome::FixedWindow(form) => self.given_back_inline(form, task, charged_at),
            StateHome::SlidingCounter(form) => self.given_back_inline(form, task, charged_at),
            StateHome::Spilled(form) => {
                let state = self.find_spilled(task.hash);
                state.map_or(0, |state| form.given_back(state, task, charged_at))
            }
        }
    }

    fn given_back_inline<F: InlineForm>(
        &self,
        form: &F,
        task: &Task<'_>,
        charged_at: Timestamp,
    ) -> u64 {
        let Some(slot_index) = self.table.find(task.hash) else {
            return 0;
        };
        let state = form.read(&self.table.get(slot_index));
        form.given_back(state, task.cost, charged_at, task.now)
    }
}
