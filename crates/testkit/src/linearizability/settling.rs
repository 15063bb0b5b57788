//! Settlements of reservations in the search. Their answers carry no time: each takes effect at some moment between
//! its begin and its end, and must have done there what its answer says. So the limits of such histories are those in
//! which only the order matters: windows and logs that last longer than a history.

use tidegate_core::{Adjusted, Micros, Outcome, Timestamp};

use super::search::{Position, Search};
use super::{HistoryCharge, HistorySettlement};

/// How long after units were given back an instance may still answer a denial from memory.
pub(super) const REMEMBERED: Micros = Micros::SECOND;

/// A reservation that was settled.
#[derive(Debug, Clone, Copy)]
pub(super) struct SettledCall<'h> {
    /// What it was charged, and the outcomes of that.
    pub(super) charges: &'h [HistoryCharge],
    pub(super) outcomes: &'h [Outcome],
    pub(super) settlement: &'h HistorySettlement,
}

impl Search<'_> {
    /// Lets one of the settlements take effect before the next decided call.
    pub(super) fn settles(&mut self, position: &Position) -> bool {
        let next = self.decided.get(position.index).map(|call| call.at);
        for index in 0..self.settled.len() {
            let call = self.settled[index];
            let is_late = next.is_some_and(|next| call.settlement.began > next);
            if position.settled[index] || is_late {
                continue;
            }
            let at = position.at.max(call.settlement.began);
            let mut after = position.clone();
            self.confirm(&mut after, Some(at));
            let adjusted = after.states.settle(self.forms, call, at);
            after.settled[index] = true;
            after.at = at;
            if adjusted == call.settlement.adjusted && self.explains_from(&after) {
                return true;
            }
        }
        false
    }

    /// Whether no settlement that ended before that time is missing; without a time, whether none is.
    pub(super) fn are_settled_before(&self, position: &Position, until: Option<Timestamp>) -> bool {
        let mut calls = self.settled.iter().zip(&position.settled);
        calls.all(|(call, is_settled)| {
            *is_settled || until.is_some_and(|until| call.settlement.ended >= until)
        })
    }
}

/// What a store answers where a charge of `cost` is changed to `actual`.
pub(super) fn adjust(
    (state, form): (&mut crate::ModelState, &tidegate_core::algorithm::Form),
    (cost, actual): (u64, u64),
    charged: &Outcome,
    at: Timestamp,
) -> Adjusted {
    let mut adjusted = Adjusted::default();
    let charged_at = charged.at + charged.delay;
    if let Some(less) = cost.checked_sub(actual).filter(|less| *less > 0) {
        adjusted.given_back = state.given_back(form, less, charged_at, at);
        state.give_back(form, less, charged_at, at);
    } else if actual > cost {
        let more = actual - cost;
        adjusted.overrun = more.min(state.ask(form, 0, at).remaining);
        adjusted.uncharged = more - adjusted.overrun;
        state.settle(form, more, at);
    }
    adjusted.remaining = state.ask(form, 0, at).remaining;
    adjusted
}
