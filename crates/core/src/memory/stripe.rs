//! One part of the store, under one lock: a table of slots and the states that do not fit into it.

mod adjust;

use slab::Slab;

use super::forms::{InlineForm, SpilledForm, SpilledState, StateHome, StateStep, Task};
use super::shared::{SharedCounts, StateSize};
use super::slot::{KeyHash, Packed, Slot};
use super::table::Table;
use crate::algorithm::{BucketState, CounterState, Form, HeldPermits};
use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::time::{Micros, Timestamp};

/// How many keys are looked at to find the one nearest to fresh.
const LOOKED_AT: usize = 512;
/// How long an idle key stays. Without this, a key that is idle for a moment between requests would be removed and
/// inserted again for every request.
const LINGERS: Micros = Micros::SECOND;
/// The number of slots that a new key sweeps. Enough that new keys alone keep idle ones to a quarter.
const SWEPT_PER_KEY: usize = 4;

/// The order of the fields makes a decision touch only the first cache line and the one that names the key's chunk.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Stripe {
    /// The time at which the stripe was last used, by the store's own clock.
    pub(super) used_at: Timestamp,
    /// Charges since the last sweep.
    charges: u32,
    /// How often a state was changed, other than by time. Wraps around.
    pub(crate) changes: u32,
    /// Boxed because most stores have no spilled states, and there are many stripes.
    spilled: Option<Box<Slab<SpilledEntry>>>,
    table: Table,
}

/// A spilled state, with the hash by which permits know its key.
#[derive(Debug)]
struct SpilledEntry {
    hash: KeyHash,
    state: SpilledState,
}

impl Stripe {
    /// Decides as a charge would and changes nothing.
    pub(super) fn ask(&self, task: &Task<'_>) -> Outcome {
        match StateHome::from(task.limit.form()) {
            StateHome::Bucket(form) => self.ask_inline(form, task),
            StateHome::FixedWindow(form) => self.ask_inline(form, task),
            StateHome::SlidingCounter(form) => self.ask_inline(form, task),
            StateHome::Spilled(form) => {
                form.decide(self.find_spilled(task.hash), task.cost, task.now)
            }
        }
    }

    /// The fast path for a known key with enough left, as nearly all have. Does the same as [`apply`](Self::apply), in
    /// fewer steps. For any other charge, returns `None` and changes nothing.
    #[inline]
    pub(super) fn admit(
        &mut self,
        hash: KeyHash,
        limit: &Limit,
        cost: u64,
        now: Timestamp,
    ) -> Option<Outcome> {
        let Form::Bucket(bucket) = limit.form() else {
            return None;
        };
        let slot = self.table.find_mut(hash)?;
        let state = BucketState::unpack(slot.words);
        let (outcome, next) = bucket.admit(state, cost, now)?;
        *slot = bucket.slot(hash, next, outcome.reset_at);
        self.changes = self.changes.wrapping_add(1);
        Some(outcome)
    }

    /// Decides and applies the step. A denial only sets a mark.
    pub(super) fn apply(
        &mut self,
        step: StateStep,
        task: &Task<'_>,
        shared: &SharedCounts,
    ) -> Outcome {
        match StateHome::from(task.limit.form()) {
            StateHome::Bucket(form) => self.apply_inline(form, step, task, shared),
            StateHome::FixedWindow(form) => self.apply_inline(form, step, task, shared),
            StateHome::SlidingCounter(form) => self.apply_inline(form, step, task, shared),
            StateHome::Spilled(form) => self.apply_spilled(form, step, task, shared),
        }
    }

    /// Removes a key. Its charges so far can no longer be given back. False if it has no state.
    pub(super) fn forget(&mut self, hash: KeyHash, limit: &Limit, shared: &SharedCounts) -> bool {
        let Some(slot_index) = self.table.find(hash) else {
            return false;
        };
        if let Some(last_charge) = self.last_charge(slot_index, limit) {
            shared.resets.add(hash, last_charge);
        }
        self.note_change();
        self.remove(slot_index, shared);
        true
    }

    /// When a key was last charged; none of permits, which have names.
    fn last_charge(&self, slot_index: usize, limit: &Limit) -> Option<Timestamp> {
        let slot = self.table.get(slot_index);
        match StateHome::from(limit.form()) {
            StateHome::Bucket(_) => Some(BucketState::unpack(slot.words).changed_at),
            StateHome::FixedWindow(form) => Some(form.read(&slot).changed_at),
            StateHome::SlidingCounter(_) => Some(CounterState::unpack(slot.words).changed_at),
            StateHome::Spilled(_) => match &self.spilled.as_ref()?.get(slot.spilled_at()?)?.state {
                SpilledState::Log(log) => Some(log.changed_at()),
                SpilledState::Slots(slots) => Some(slots.changed_at()),
                SpilledState::HeldPermits(_) => None,
            },
        }
    }

    #[inline]
    fn note_change(&mut self) {
        self.changes = self.changes.wrapping_add(1);
    }

    /// Copies about `most` slots in the order of their homes, from the home `from`: inline states to `slots`, the
    /// hashes of spilled ones to `spilled`. Returns the home to continue from, as [`Table::visit`] does.
    pub(super) fn copy(
        &self,
        from: u64,
        most: usize,
        slots: &mut Vec<Slot>,
        spilled: &mut Vec<KeyHash>,
    ) -> Option<u64> {
        self.table
            .visit(from, most, |slot| match slot.spilled_at() {
                None => slots.push(*slot),
                Some(_) => spilled.push(slot.hash()),
            })
    }

    /// A state that does not fit into a slot, with its slot and its key's whole hash.
    pub(super) fn spilled_state(&self, hash: KeyHash) -> Option<(Slot, KeyHash, &SpilledState)> {
        let slot = self.table.get(self.table.find(hash)?);
        let SpilledEntry { hash, state } = self.spilled.as_ref()?.get(slot.spilled_at()?)?;
        Some((slot, *hash, state))
    }

    /// Adds a state from a snapshot and replaces the current state of its key. A full store evicts another key, as for
    /// a new key. False if no key here can be evicted.
    pub(super) fn restore(
        &mut self,
        mut slot: Slot,
        spilled: Option<(KeyHash, SpilledState)>,
        idle_at: Option<Timestamp>,
        shared: &SharedCounts,
    ) -> bool {
        if let Some(slot_index) = self.table.find(slot.hash()) {
            self.remove(slot_index, shared);
        }
        let has_room = !shared.is_full() || self.evict(idle_at, shared);
        if let Some((hash, state)) = spilled {
            if let SpilledState::HeldPermits(permits) = &state {
                for permit in permits.iter() {
                    shared.permits.add(permit.id, hash);
                }
            }
            shared.count_outside(StateSize::default(), state.size());
            let spilled = self.spilled.get_or_insert_default();
            slot.set_spilled_at(spilled.insert(SpilledEntry { hash, state }));
        }
        self.table.insert(slot);
        shared.count_key();
        has_room
    }

    /// Does something to the permits of a key. False if it has none.
    pub(super) fn with_permits(
        &mut self,
        hash: KeyHash,
        act: impl FnOnce(&mut HeldPermits) -> bool,
        shared: &SharedCounts,
    ) -> bool {
        let Some(slot_index) = self.table.find(hash) else {
            return false;
        };
        let Some(state) = self.spilled_mut(slot_index) else {
            return false;
        };
        let before = state.size();
        let SpilledState::HeldPermits(permits) = state else {
            return false;
        };
        let done = act(permits);
        let fresh_at = permits.last_end();
        shared.count_outside(before, state.size());
        self.table.get_mut(slot_index).set_fresh_at(fresh_at);
        self.note_change();
        done
    }

    /// Counts a charge. True for every one in `period`.
    #[inline]
    pub(super) fn count_charge(&mut self, period: u32) -> bool {
        self.charges = self.charges.saturating_add(1);
        let is_due = self.charges >= period;
        if is_due {
            self.charges = 0;
        }
        is_due
    }

    /// Examines the next `count` slots and removes keys that have been idle for a while at `now`.
    pub(super) fn sweep(&mut self, count: usize, now: Timestamp, shared: &SharedCounts) {
        let mut removed = 0;
        for _ in 0..count {
            if self.table.hand() >= self.table.capacity() {
                self.table.set_hand(0);
            }
            if self.table.capacity() == 0 {
                break;
            }
            let hand = self.table.hand();
            let slot = self.table.get(hand);
            if !slot.is_empty() && slot.fresh_at() + LINGERS <= now {
                // Another slot may have moved to this index: examine it again.
                self.remove(hand, shared);
                removed += 1;
            } else {
                self.table.set_hand(hand + 1);
            }
        }
        if removed > 0 {
            shared.count_expired(removed);
            self.table.shrink();
        }
    }

    /// The number of slots that a sweep of the whole stripe examines.
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Evicts the least valuable key: one that is idle at `idle_at`, else the one nearest to idle; keys that are being
    /// denied come last. Never a key with permits. False if there is no candidate.
    pub(super) fn evict(&mut self, idle_at: Option<Timestamp>, shared: &SharedCounts) -> bool {
        let is_idle = |fresh_at: Timestamp| idle_at.is_some_and(|now| fresh_at <= now);
        let mut looked_at = 0;
        let mut least: Option<((bool, Timestamp), usize)> = None;
        for _ in 0..self.table.capacity() {
            let next = self.table.hand() + 1;
            let hand = if next >= self.table.capacity() {
                0
            } else {
                next
            };
            self.table.set_hand(hand);
            let slot = self.table.get(hand);
            if slot.is_empty() {
                continue;
            }
            if is_idle(slot.fresh_at()) {
                self.remove(hand, shared);
                shared.count_expired(1);
                return true;
            }
            if self.holds_permits(&slot) {
                continue;
            }
            let missed = (slot.is_denied(), slot.fresh_at());
            if least.is_none_or(|(so_far, _)| missed < so_far) {
                least = Some((missed, hand));
            }
            looked_at += 1;
            if looked_at == LOOKED_AT {
                break;
            }
        }
        let Some((_, slot_index)) = least else {
            return false;
        };
        self.remove(slot_index, shared);
        shared.count_evicted();
        true
    }

    fn holds_permits(&self, slot: &Slot) -> bool {
        let state = |index| self.spilled.as_ref()?.get(index).map(|entry| &entry.state);
        let state = slot.spilled_at().and_then(state);
        matches!(state, Some(SpilledState::HeldPermits(_)))
    }

    fn ask_inline<F: InlineForm>(&self, form: &F, task: &Task<'_>) -> Outcome {
        let known = self
            .table
            .find(task.hash)
            .map(|slot_index| form.read(&self.table.get(slot_index)));
        let state = known.unwrap_or_default();
        form.step(StateStep::Charge, state, task.cost, task.now).0
    }

    fn apply_inline<F: InlineForm>(
        &mut self,
        form: &F,
        step: StateStep,
        task: &Task<'_>,
        shared: &SharedCounts,
    ) -> Outcome {
        let slot_index = self.table.find(task.hash);
        let state = slot_index
            .map(|slot_index| form.read(&self.table.get(slot_index)))
            .unwrap_or_default();
        let (outcome, next) = form.step(step, state, task.cost, task.now);
        match slot_index {
            Some(slot_index) => {
                let slot = self.table.get_mut(slot_index);
                // A limit that was lowered takes longer to forget, which the slot has to know.
                if next != state || outcome.reset_at > slot.fresh_at() {
                    *slot = form.slot(task.hash, next, outcome.reset_at);
                    self.changes = self.changes.wrapping_add(1);
                }
                if !outcome.allowed {
                    slot.mark_denied();
                }
            }
            // Insert a key only if it has usage: giving back to a removed key leaves none.
            None if outcome.reset_at > task.now => {
                let slot = form.slot(task.hash, next, outcome.reset_at);
                self.insert(slot, task, shared);
            }
            None => {}
        }
        outcome
    }

    fn apply_spilled(
        &mut self,
        form: SpilledForm<'_>,
        step: StateStep,
        task: &Task<'_>,
        shared: &SharedCounts,
    ) -> Outcome {
        let asked = form.decide(self.find_spilled(task.hash), task.cost, task.now);
        let creates = match step {
            StateStep::Charge => asked.allowed && task.takes(),
            StateStep::Settle | StateStep::SettleInFull => task.takes(),
            StateStep::GiveBack(_) => false,
        };
        let slot_index = match self.table.find(task.hash) {
            Some(slot_index) => slot_index,
            None if creates => self.insert_spilled(form.fresh(), task, shared),
            None if step == StateStep::Charge => return asked,
            None => return asked.with_remaining_of(form.decide(None, 0, task.now)),
        };
        let Some(state) = self.spilled_mut(slot_index) else {
            return asked;
        };
        let before = state.size();
        if !form.owns(state) {
            let other = std::mem::replace(state, form.fresh());
            unregister(&other, task.hash, shared);
        }
        match step {
            StateStep::Charge if !asked.allowed => form.rebase(state, task.now),
            StateStep::Charge if task.takes() => {
                form.charge(state, task, |ended| shared.permits.remove(ended, task.hash));
                if let (SpilledForm::HeldPermits(_), Some(permit)) = (form, task.permit) {
                    shared.permits.add(permit, task.hash);
                }
            }
            StateStep::Charge => {}
            StateStep::Settle | StateStep::SettleInFull => form.settle(state, task),
            StateStep::GiveBack(charged_at) => {
                form.give_back(state, task, charged_at);
                if let (SpilledForm::HeldPermits(_), Some(permit)) = (form, task.permit) {
                    shared.permits.remove(permit, task.hash);
                }
            }
        }
        let size = state.size();
        shared.count_outside(before, size);
        if size.bytes > before.bytes && shared.is_over() {
            // Room is made right after this charge.
            self.charges = u32::MAX;
        }
        if task.takes() && (asked.allowed || step != StateStep::Charge) {
            self.note_change();
        }
        let after = form.decide(self.find_spilled(task.hash), 0, task.now);
        // By the state's own time. After a clock was set back, a charge that changes nothing sees the state rebased,
        // but leaves it unchanged.
        let fresh_at = match self.find_spilled(task.hash) {
            Some(SpilledState::HeldPermits(permits)) => permits.last_end(),
            _ if step == StateStep::Charge && asked.allowed && !task.takes() => {
                self.table.get(slot_index).fresh_at().max(after.reset_at)
            }
            _ => after.reset_at,
        };
        let slot = self.table.get_mut(slot_index);
        slot.set_fresh_at(fresh_at);
        if asked.allowed {
            slot.clear_denied();
        } else {
            slot.mark_denied();
        }
        if step == StateStep::Charge {
            asked
        } else {
            asked.with_remaining_of(after)
        }
    }

    fn insert_spilled(
        &mut self,
        state: SpilledState,
        task: &Task<'_>,
        shared: &SharedCounts,
    ) -> usize {
        shared.count_outside(StateSize::default(), state.size());
        let spilled = self.spilled.get_or_insert_default();
        let index = spilled.insert(SpilledEntry {
            hash: task.hash,
            state,
        });
        self.insert(Slot::spilled(task.hash, index, task.now), task, shared);
        // Just inserted, so it is found.
        self.table.find(task.hash).unwrap_or_default()
    }

    fn insert(&mut self, slot: Slot, task: &Task<'_>, shared: &SharedCounts) {
        if shared.is_full() && !self.evict(shared.idle_at(task.now), shared) {
            // Nothing here to make room: the store does it elsewhere, right after this charge.
            self.charges = u32::MAX;
        }
        if let Some(now) = shared.idle_at(task.now) {
            self.sweep(SWEPT_PER_KEY, now, shared);
        }
        self.table.insert(slot);
        self.note_change();
        shared.count_key();
    }

    fn remove(&mut self, slot_index: usize, shared: &SharedCounts) {
        let slot = self.table.get(slot_index);
        self.table.remove(slot_index);
        shared.uncount_key();
        let (Some(index), Some(spilled)) = (slot.spilled_at(), self.spilled.as_mut()) else {
            return;
        };
        let Some(SpilledEntry { hash, state }) = spilled.try_remove(index) else {
            return;
        };
        shared.count_outside(state.size(), StateSize::default());
        unregister(&state, hash, shared);
        if spilled.is_empty() {
            self.spilled = None;
        }
    }

    fn find_spilled(&self, hash: KeyHash) -> Option<&SpilledState> {
        let index = self.table.get(self.table.find(hash)?).spilled_at()?;
        Some(&self.spilled.as_ref()?.get(index)?.state)
    }

    fn spilled_mut(&mut self, slot_index: usize) -> Option<&mut SpilledState> {
        let index = self.table.get(slot_index).spilled_at()?;
        Some(&mut self.spilled.as_mut()?.get_mut(index)?.state)
    }
}

/// Forgets the permits of a state that goes.
fn unregister(state: &SpilledState, hash: KeyHash, shared: &SharedCounts) {
    if let SpilledState::HeldPermits(permits) = state {
        for permit in permits.iter() {
            shared.permits.remove(permit.id, hash);
        }
    }
}
