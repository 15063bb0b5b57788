//! The state of one key, as the pure functions of this crate keep it: the reference for every store.

#![expect(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a state of another algorithm is a mistake in the test"
)]

use crate::algorithm::{
    BucketState, CounterState, FixedWindowState, Form, HeldPermits, Log, Slots,
};
use crate::{Outcome, PermitId, Timestamp};

/// The state of one key, of any algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelState {
    /// `token_bucket` and `leaky_bucket`.
    Bucket(BucketState),
    /// `fixed_window`.
    FixedWindow(FixedWindowState),
    /// `sliding_window_counter`.
    Counter(CounterState),
    /// `sliding_window_slots`.
    Slots(Slots),
    /// `sliding_window_log`.
    Log(Log),
    /// `concurrency`.
    HeldPermits(HeldPermits),
}

impl ModelState {
    /// A key that was never charged.
    pub fn fresh(form: &Form) -> Self {
        match form {
            Form::Bucket(_) => Self::Bucket(BucketState::default()),
            Form::FixedWindow(_) => Self::FixedWindow(FixedWindowState::default()),
            Form::SlidingCounter(_) => Self::Counter(CounterState::default()),
            Form::SlidingSlots(_) => Self::Slots(Slots::default()),
            Form::SlidingLog(_) => Self::Log(Log::default()),
            Form::Concurrency(_) => Self::HeldPermits(HeldPermits::default()),
        }
    }

    /// What a charge would be answered.
    pub fn ask(&self, form: &Form, cost: u64, now: Timestamp) -> Outcome {
        match (form, self) {
            (Form::Bucket(form), Self::Bucket(state)) => form.decide(*state, cost, now).0,
            (Form::FixedWindow(form), Self::FixedWindow(state)) => form.decide(*state, cost, now).0,
            (Form::SlidingCounter(form), Self::Counter(state)) => form.decide(*state, cost, now).0,
            (Form::SlidingSlots(form), Self::Slots(slots)) => form.decide(slots, cost, now),
            (Form::SlidingLog(form), Self::Log(log)) => form.decide(log, cost, now),
            (Form::Concurrency(form), Self::HeldPermits(permits)) => {
                form.decide(permits, cost, now)
            }
            _ => panic!("a key keeps its form"),
        }
    }

    /// Charges, and answers.
    pub fn charge(&mut self, form: &Form, cost: u64, now: Timestamp, id: PermitId) -> Outcome {
        let outcome = self.ask(form, cost, now);
        let taken = outcome.allowed && cost > 0;
        match (form, self) {
            (Form::Bucket(form), Self::Bucket(state)) => *state = form.decide(*state, cost, now).1,
            (Form::FixedWindow(form), Self::FixedWindow(state)) => {
                *state = form.decide(*state, cost, now).1;
            }
            (Form::SlidingCounter(form), Self::Counter(state)) => {
                *state = form.decide(*state, cost, now).1;
            }
            (Form::SlidingSlots(form), Self::Slots(slots)) if taken => {
                form.charge(slots, cost, now);
            }
            (Form::SlidingLog(form), Self::Log(log)) if taken => form.charge(log, cost, now),
            (Form::Concurrency(form), Self::HeldPermits(permits)) if taken => {
                form.charge(permits, id, cost, now, |_| ());
            }
            (Form::SlidingSlots(form), Self::Slots(slots)) if !outcome.allowed => {
                form.rebase(slots, now);
            }
            (Form::SlidingLog(form), Self::Log(log)) if !outcome.allowed => form.rebase(log, now),
            (Form::Concurrency(form), Self::HeldPermits(permits)) if !outcome.allowed => {
                form.rebase(permits, now);
            }
            _ => {}
        }
        outcome
    }

    /// Settles a cost.
    pub fn settle(&mut self, form: &Form, cost: u64, now: Timestamp) {
        match (form, self) {
            (Form::Bucket(form), Self::Bucket(state)) => *state = form.settle(*state, cost, now),
            (Form::FixedWindow(form), Self::FixedWindow(state)) => {
                *state = form.settle(*state, cost, now);
            }
            (Form::SlidingCounter(form), Self::Counter(state)) => {
                *state = form.settle(*state, cost, now);
            }
            (Form::SlidingSlots(form), Self::Slots(slots)) => form.settle(slots, cost, now),
            (Form::SlidingLog(form), Self::Log(log)) => form.settle(log, cost, now),
            _ => {}
        }
    }

    /// Settles a cost in full, also beyond the limit, if the limit holds that.
    pub fn settle_in_full(&mut self, form: &Form, cost: u64, now: Timestamp) {
        if let (Form::FixedWindow(form), Self::FixedWindow(state)) = (form, &mut *self) {
            *state = form.settle_in_full(*state, cost, now);
            return;
        }
        self.settle(form, cost, now);
    }

    /// How much of a cost would be given back.
    pub fn given_back(&self, form: &Form, cost: u64, charged_at: Timestamp, now: Timestamp) -> u64 {
        match (form, self) {
            (Form::Bucket(form), Self::Bucket(state)) => {
                form.given_back(*state, cost, charged_at, now)
            }
            (Form::FixedWindow(form), Self::FixedWindow(state)) => {
                form.given_back(*state, cost, charged_at, now)
            }
            (Form::SlidingCounter(form), Self::Counter(state)) => {
                form.given_back(*state, cost, charged_at, now)
            }
            (Form::SlidingSlots(form), Self::Slots(slots)) => {
                form.given_back(slots, cost, charged_at, now)
            }
            (Form::SlidingLog(form), Self::Log(log)) => form.given_back(log, cost, charged_at, now),
            _ => 0,
        }
    }

    /// Gives a cost back.
    pub fn give_back(&mut self, form: &Form, cost: u64, charged_at: Timestamp, now: Timestamp) {
        match (form, self) {
            (Form::Bucket(form), Self::Bucket(state)) => {
                *state = form.give_back(*state, cost, charged_at, now);
            }
            (Form::FixedWindow(form), Self::FixedWindow(state)) => {
                *state = form.give_back(*state, cost, charged_at, now);
            }
            (Form::SlidingCounter(form), Self::Counter(state)) => {
                *state = form.give_back(*state, cost, charged_at, now);
            }
            (Form::SlidingSlots(form), Self::Slots(slots)) => {
                form.give_back(slots, cost, charged_at, now);
            }
            (Form::SlidingLog(form), Self::Log(log)) => form.give_back(log, cost, charged_at, now),
            _ => {}
        }
    }
}
