//! How each algorithm's state is kept: in the slot itself where it fits, spilled where it does not.

use super::shared::StateSize;
use super::slot::{KeyHash, MOST_IN_WINDOW, Packed, Slot};
use crate::algorithm::{
    Bucket, BucketState, Concurrency, CounterState, FixedWindow, FixedWindowState, Form,
    HeldPermits, Log, SlidingCounter, SlidingLog, SlidingSlots, Slots,
};
use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::permit::PermitId;
use crate::time::Timestamp;

/// A charge on its way to its slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) hash: KeyHash,
    pub(super) limit: &'a Limit,
    pub(super) cost: u64,
    pub(super) now: Timestamp,
    pub(super) permit: Option<PermitId>,
}

impl Task<'_> {
    /// Whether an allowed charge leaves anything behind.
    pub(super) fn takes(&self) -> bool {
        let holds_nothing =
            matches!(self.limit.form(), Form::Concurrency(_)) && self.permit.is_none();
        self.cost > 0 && !holds_nothing
    }
}

/// An operation on a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateStep {
    /// Take the cost if it is allowed.
    Charge,
    /// Take as much of the cost as fits.
    Settle,
    /// Take all of the cost, also beyond the limit, if the limit holds that.
    SettleInFull,
    /// Take back the cost, which was charged as of this time.
    GiveBack(Timestamp),
}

/// An algorithm whose state fits into a slot.
pub(super) trait InlineForm {
    type State: Packed + Default;

    /// Decides, and returns the state to keep with the outcome.
    fn step(
        &self,
        step: StateStep,
        state: Self::State,
        cost: u64,
        now: Timestamp,
    ) -> (Outcome, Self::State);

    /// How much of a cost that was charged as of `charged_at` would be given back.
    fn given_back(
        &self,
        state: Self::State,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> u64;

    /// The state in a slot.
    #[inline]
    fn read(&self, slot: &Slot) -> Self::State {
        Self::State::unpack(slot.words)
    }

    /// The slot with a state that is like a fresh one at `fresh_at`.
    #[inline]
    fn slot(&self, hash: KeyHash, state: Self::State, fresh_at: Timestamp) -> Slot {
        Slot::inline(hash, state.pack(), fresh_at.since(state.since()))
    }
}

/// Calls an algorithm's own functions, which have the same names in each.
macro_rules! stepped {
    ($form:expr, $step:expr, $state:expr, $cost:expr, $now:expr, $in_full:ident) => {{
        let (form, state, cost, now) = ($form, $state, $cost, $now);
        // One body for all of the calls below.
        let decide = |state, cost| form.decide(state, cost, now);
        let settled_as = |next| {
            let (asked, _) = decide(state, cost);
            let room = decide(state, 0).0.remaining;
            let settled = asked.settled(cost, room);
            (settled.with_remaining_of(decide(next, 0).0), next)
        };
        match $step {
            StateStep::Charge => decide(state, cost),
            StateStep::Settle => settled_as(form.settle(state, cost, now)),
            StateStep::SettleInFull => settled_as(form.$in_full(state, cost, now)),
            StateStep::GiveBack(charged_at) => {
                let next = form.give_back(state, cost, charged_at, now);
                (decide(next, 0).0, next)
            }
        }
    }};
}

impl InlineForm for SlidingCounter {
    type State = CounterState;

    fn step(
        &self,
        step: StateStep,
        state: CounterState,
        cost: u64,
        now: Timestamp,
    ) -> (Outcome, CounterState) {
        stepped!(self, step, state, cost, now, settle)
    }

    fn given_back(
        &self,
        state: CounterState,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> u64 {
        Self::given_back(self, state, cost, charged_at, now)
    }
}

impl InlineForm for FixedWindow {
    type State = FixedWindowState;

    fn step(
        &self,
        step: StateStep,
        state: FixedWindowState,
        cost: u64,
        now: Timestamp,
    ) -> (Outcome, FixedWindowState) {
        stepped!(self, step, state, cost, now, settle_in_full)
    }

    fn given_back(
        &self,
        state: FixedWindowState,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> u64 {
        Self::given_back(self, state, cost, charged_at, now)
    }

    #[inline]
    fn read(&self, slot: &Slot) -> FixedWindowState {
        match slot.wide() {
            None => FixedWindowState::unpack(slot.words),
            Some((changed_at, used)) => FixedWindowState {
                opened_at: self.opened_at(changed_at),
                changed_at,
                used,
            },
        }
    }

    #[inline]
    fn slot(&self, hash: KeyHash, state: FixedWindowState, fresh_at: Timestamp) -> Slot {
        if state.used > MOST_IN_WINDOW {
            let life = fresh_at.since(state.changed_at);
            return Slot::wide_window(hash, (state.changed_at, state.used), life);
        }
        Slot::inline(hash, state.pack(), fresh_at.since(state.since()))
    }
}

impl InlineForm for Bucket {
    type State = BucketState;

    fn step(
        &self,
        step: StateStep,
        kept: BucketState,
        cost: u64,
        now: Timestamp,
    ) -> (Outcome, BucketState) {
        if !self.has_common_parts() {
            return stepped!(self, step, kept, cost, now, settle);
        }
        let state = self.opened(kept);
        let (outcome, next) = stepped!(self, step, state, cost, now, settle);
        // An unchanged state is not rounded.
        let next = if next == state { kept } else { self.kept(next) };
        (outcome, next)
    }

    fn given_back(
        &self,
        kept: BucketState,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> u64 {
        Self::given_back(self, self.opened(kept), cost, charged_at, now)
    }
}

/// Where an algorithm keeps its state.
pub(super) enum StateHome<'a> {
    /// In the slot.
    Bucket(&'a Bucket),
    /// In the slot.
    FixedWindow(&'a FixedWindow),
    /// In the slot.
    SlidingCounter(&'a SlidingCounter),
    /// Elsewhere.
    Spilled(SpilledForm<'a>),
}

impl<'a> From<&'a Form> for StateHome<'a> {
    #[inline]
    fn from(form: &'a Form) -> Self {
        match form {
            Form::Bucket(form) => Self::Bucket(form),
            Form::FixedWindow(form) => Self::FixedWindow(form),
            Form::SlidingCounter(form) => Self::SlidingCounter(form),
            Form::SlidingLog(form) => Self::Spilled(SpilledForm::Log(form)),
            Form::SlidingSlots(form) => Self::Spilled(SpilledForm::Slots(form)),
            Form::Concurrency(form) => Self::Spilled(SpilledForm::HeldPermits(form)),
        }
    }
}

/// An algorithm whose state does not fit into a slot.
#[derive(Clone, Copy)]
pub(super) enum SpilledForm<'a> {
    Log(&'a SlidingLog),
    Slots(&'a SlidingSlots),
    HeldPermits(&'a Concurrency),
}

/// A state that does not fit into a slot.
#[derive(Debug)]
pub(super) enum SpilledState {
    Log(Log),
    Slots(Slots),
    HeldPermits(HeldPermits),
}

/// The fixed memory of a spilled state: its entry in the slab, and an allocation.
const STATE_BYTES: usize = size_of::<SpilledState>() * 3 / 2 + 48;
/// The memory of a permit in the register of permits.
const PERMIT_BYTES: usize = 96;

impl SpilledState {
    /// The memory that it takes, about.
    pub(super) fn size(&self) -> StateSize {
        let bytes = STATE_BYTES
            + match self {
                Self::Log(log) => log.heap_bytes(),
                Self::Slots(slots) => slots.heap_bytes(),
                Self::HeldPermits(permits) => permits.heap_bytes() + permits.len() * PERMIT_BYTES,
            };
        let holds_permits = matches!(self, Self::HeldPermits(permits) if permits.len() > 0);
        StateSize {
            bytes,
            permit_bytes: if holds_permits { bytes } else { 0 },
            permit_keys: usize::from(holds_permits),
        }
    }
}

impl SpilledForm<'_> {
    /// The state of a key that was never charged. Allocates nothing.
    pub(super) fn fresh(self) -> SpilledState {
        match self {
            Self::Log(_) => SpilledState::Log(Log::default()),
            Self::Slots(_) => SpilledState::Slots(Slots::default()),
            Self::HeldPermits(_) => SpilledState::HeldPermits(HeldPermits::default()),
        }
    }

    /// Whether this limit can go on from a state: it is of the same algorithm and shape. Only keys that
    /// have the same hash, or a snapshot that was tampered with, lead to another.
    pub(super) fn owns(self, state: &SpilledState) -> bool {
        match (self, state) {
            (Self::Log(_), SpilledState::Log(_))
            | (Self::HeldPermits(_), SpilledState::HeldPermits(_)) => true,
            (Self::Slots(form), SpilledState::Slots(slots)) => form.fits(slots),
            _ => false,
        }
    }

    /// Decides and changes nothing. A state that is not its own counts as fresh.
    pub(super) fn decide(self, state: Option<&SpilledState>, cost: u64, now: Timestamp) -> Outcome {
        match (self, state.filter(|state| self.owns(state))) {
            (Self::Log(form), Some(SpilledState::Log(log))) => form.decide(log, cost, now),
            (Self::Slots(form), Some(SpilledState::Slots(slots))) => form.decide(slots, cost, now),
            (Self::HeldPermits(form), Some(SpilledState::HeldPermits(permits))) => {
                form.decide(permits, cost, now)
            }
            (Self::Log(form), _) => form.decide(&Log::default(), cost, now),
            (Self::Slots(form), _) => form.decide(&Slots::default(), cost, now),
            (Self::HeldPermits(form), _) => form.decide(&HeldPermits::default(), cost, now),
        }
    }

    /// Applies a charge that was allowed. Calls `on_end` with each permit that has ended.
    pub(super) fn charge(
        self,
        state: &mut SpilledState,
        task: &Task<'_>,
        on_end: impl FnMut(PermitId),
    ) {
        match (self, state) {
            (Self::Log(form), SpilledState::Log(log)) => form.charge(log, task.cost, task.now),
            (Self::Slots(form), SpilledState::Slots(slots)) => {
                form.charge(slots, task.cost, task.now);
            }
            (Self::HeldPermits(form), SpilledState::HeldPermits(permits)) => {
                if let Some(permit) = task.permit {
                    form.charge(permits, permit, task.cost, task.now, on_end);
                }
            }
            _ => {}
        }
    }

    /// Takes as much as fits. Concurrency has nothing to settle.
    pub(super) fn settle(self, state: &mut SpilledState, task: &Task<'_>) {
        match (self, state) {
            (Self::Log(form), SpilledState::Log(log)) => form.settle(log, task.cost, task.now),
            (Self::Slots(form), SpilledState::Slots(slots)) => {
                form.settle(slots, task.cost, task.now);
            }
            _ => {}
        }
    }

    /// Takes back a charge made as of `charged_at`.
    pub(super) fn give_back(
        self,
        state: &mut SpilledState,
        task: &Task<'_>,
        charged_at: Timestamp,
    ) {
        match (self, state) {
            (Self::Log(form), SpilledState::Log(log)) => {
                form.give_back(log, task.cost, charged_at, task.now);
            }
            (Self::Slots(form), SpilledState::Slots(slots)) => {
                form.give_back(slots, task.cost, charged_at, task.now);
            }
            (Self::HeldPermits(_), SpilledState::HeldPermits(permits)) => {
                if let Some(permit) = task.permit {
                    permits.release(permit, Some(task.now));
                }
            }
            _ => {}
        }
    }

    /// How much of a charge made as of `charged_at` would be given back. Permits are not counted.
    pub(super) fn given_back(
        self,
        state: &SpilledState,
        task: &Task<'_>,
        charged_at: Timestamp,
    ) -> u64 {
        match (self, state) {
            (Self::Log(form), SpilledState::Log(log)) => {
                form.given_back(log, task.cost, charged_at, task.now)
            }
            (Self::Slots(form), SpilledState::Slots(slots)) if form.fits(slots) => {
                form.given_back(slots, task.cost, charged_at, task.now)
            }
            _ => 0,
        }
    }

    /// Moves the state to the present if its clock has been set back since.
    pub(super) fn rebase(self, state: &mut SpilledState, now: Timestamp) {
        match (self, state) {
            (Self::Log(form), SpilledState::Log(log)) => form.rebase(log, now),
            (Self::Slots(form), SpilledState::Slots(slots)) => form.rebase(slots, now),
            (Self::HeldPermits(form), SpilledState::HeldPermits(permits)) => {
                form.rebase(permits, now);
            }
            _ => {}
        }
    }
}
