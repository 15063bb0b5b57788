//! The keys of the current period, with their counts: the one structure that a decision changes.
//!
//! A table has a fixed number of slots at most. When it is full, the keys with the smallest counts are removed, and
//! the table remembers how large the count of a removed key may have been (`error`). A key that comes again starts
//! from zero with that error on record, so that its true count lies between `count` and `count + before`. Keys that
//! were never removed have exact counts. This is the algorithm of Misra and Gries: with `k` keys kept, the error is at
//! most the whole weight divided by `k + 1`.

use std::cell::RefCell;

use crate::budget::MemoryBudget;
use crate::distinct::DistinctKeys;
use crate::evidence::CLIENT_EACH_SECOND;
use crate::summary::{KeyCount, KeySummary};

/// The most slots of a table.
const MOST_SLOTS: usize = 2_048;
const FEWEST_SLOTS: usize = 16;

/// A key gets a name if its count is at least this part of the weight.
const NAMED_PART: u64 = 1_000;

thread_local! {
    /// Scratch space for selecting counts, reused so that a full table allocates nothing.
    static SCRATCH: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A key in a table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeySlot {
    /// The hash of the key; zero if the slot is empty.
    pub(crate) hash: u64,
    /// The weight since the key was inserted.
    pub(crate) count: u64,
    /// The most that it may have had before.
    before: u64,
    /// When it was last counted, in Unix seconds.
    pub(crate) seen: u32,
    is_named: bool,
    /// How many samples were taken in the second in which it was last counted.
    samples: u8,
}

impl KeySlot {
    fn upper(&self) -> u64 {
        self.count.saturating_add(self.before)
    }
}

/// One event of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyEvent {
    /// Not zero.
    pub(crate) hash: u64,
    pub(crate) weight: u64,
    /// In Unix seconds.
    pub(crate) at: u32,
    /// Whether every key gets a name, because there are few.
    pub(crate) has_free_names: bool,
}

/// What of an event is worth keeping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorthKeeping {
    /// The request with the name of its key.
    pub(crate) is_name: bool,
    /// The request as the last one, because it is the first of its second, and the key has a name.
    pub(crate) is_last: bool,
    /// The request as a sample of those that were denied.
    pub(crate) is_sample: bool,
}

impl WorthKeeping {
    #[inline]
    pub(crate) fn is_any(self) -> bool {
        self.is_name || self.is_last || self.is_sample
    }
}

/// The keys of the current period.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    /// A power of two, or none.
    slots: Box<[KeySlot]>,
    len: usize,
    /// Upper bound of the count of any key that is not in the table.
    error: u64,
    weight: u64,
    /// The weight of the previous period.
    earlier_weight: u64,
    /// Once keys have been removed, if they are counted.
    distinct: Option<DistinctKeys>,
    /// Whether it is the table of denials: of these distinct keys are counted, and samples taken.
    counts_distinct: bool,
}

impl KeyTable {
    pub(crate) fn counting_distinct() -> Self {
        Self {
            counts_distinct: true,
            ..Self::default()
        }
    }

    /// Counts an event. Returns what of it is worth keeping.
    #[inline]
    pub(crate) fn add(&mut self, event: &KeyEvent, budget: &MemoryBudget) -> WorthKeeping {
        self.weight = self.weight.saturating_add(event.weight);
        let Some(at) = self.find_or_insert(event.hash, budget) else {
            return WorthKeeping::default();
        };
        let slot = &mut self.slots[at];
        slot.count = slot.count.saturating_add(event.weight);
        let is_first = slot.seen != event.at;
        if is_first {
            (slot.seen, slot.samples) = (event.at, 0);
        }
        let is_sample = self.counts_distinct && slot.samples < CLIENT_EACH_SECOND;
        slot.samples += u8::from(is_sample);
        let is_named = slot.is_named;
        if !is_named {
            let all = self.weight.max(self.earlier_weight);
            slot.is_named = event.has_free_names || slot.count.saturating_mul(NAMED_PART) >= all;
        }
        WorthKeeping {
            is_name: slot.is_named && !is_named,
            is_last: is_named && is_first,
            is_sample,
        }
    }

    #[inline]
    fn find_or_insert(&mut self, hash: u64, budget: &MemoryBudget) -> Option<usize> {
        match self.find(hash) {
            Some(at) if self.slots[at].hash == hash => Some(at),
            _ => self.insert(hash, budget),
        }
    }

    /// The index of a key, or of the empty slot for it. A table with slots always has an empty one.
    #[inline]
    fn find(&self, hash: u64) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = home(hash, mask);
        loop {
            let slot = self.slots.get(at)?;
            if slot.hash == hash || slot.hash == 0 {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline(never)]
    fn insert(&mut self, hash: u64, budget: &MemoryBudget) -> Option<usize> {
        // Full at seven eighths.
        if self.len >= self.slots.len() / 8 * 7 && !self.grow(budget) {
            self.purge(budget);
        }
        if let Some(distinct) = &mut self.distinct {
            distinct.add(hash);
        }
        let at = self.find(hash)?;
        self.len += 1;
        self.slots[at] = KeySlot {
            hash,
            before: self.error,
            ..KeySlot::default()
        };
        Some(at)
    }

    /// Doubles the slots. False if there may not be more.
    fn grow(&mut self, budget: &MemoryBudget) -> bool {
        let more = match self.slots.len() {
            0 => FEWEST_SLOTS,
            MOST_SLOTS => return false,
            slots => slots,
        };
        if !budget.take(bytes_of(more)) {
            return false;
        }
        let slots = vec![KeySlot::default(); self.slots.len() + more].into_boxed_slice();
        let old = std::mem::replace(&mut self.slots, slots);
        for slot in old.into_iter().filter(|slot| slot.hash != 0) {
            if let Some(at) = self.find(slot.hash) {
                self.slots[at] = slot;
            }
        }
        true
    }

    /// Removes the keys with the smallest counts, at least a sixth of all.
    #[cold]
    fn purge(&mut self, budget: &MemoryBudget) {
        // Of 2,048 slots: 1,365 keys.
        let kept = self.slots.len() * 2 / 3;
        if self.counts_distinct && self.distinct.is_none() && budget.take(DistinctKeys::BYTES) {
            let mut distinct = DistinctKeys::default();
            self.used_slots().for_each(|slot| distinct.add(slot.hash));
            self.distinct = Some(distinct);
        }
        let error = self.error;
        let smallest = SCRATCH.with_borrow_mut(|counts| {
            counts.clear();
            let used = self.slots.iter().filter(|slot| slot.hash != 0);
            counts.extend(used.map(|slot| slot.upper() - error));
            if counts.len() <= kept {
                return 0;
            }
            *counts
                .select_nth_unstable_by(kept, |one, other| other.cmp(one))
                .1
        });
        self.error = self.error.saturating_add(smallest);
        for at in 0..self.slots.len() {
            while self.slots[at].hash != 0 && self.slots[at].upper() <= self.error {
                self.remove(at);
            }
        }
    }

    /// Removes a key, and moves those that come after it closer to where they belong.
    fn remove(&mut self, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.hash == 0 {
                break;
            }
            let distance = |from: usize| at.wrapping_sub(from) & mask;
            if distance(home(slot.hash, mask)) >= distance(hole) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = KeySlot::default();
        self.len -= 1;
    }

    /// The keys.
    fn used_slots(&self) -> impl Iterator<Item = &KeySlot> {
        self.slots.iter().filter(|slot| slot.hash != 0)
    }

    /// Copies the keys of the current period. Cheap enough to do under the lock.
    pub(crate) fn copied(&self) -> TableCopy {
        TableCopy {
            slots: self.used_slots().copied().collect(),
            error: self.error,
            weight: self.weight,
            distinct: self.distinct.clone(),
        }
    }

    /// Begins the next period without keys. A table that is much too large becomes smaller.
    pub(crate) fn clear(&mut self, budget: &MemoryBudget) {
        if self.distinct.take().is_some() {
            budget.give(DistinctKeys::BYTES);
        }
        let slots = self.slots.len();
        if self.len < slots / 8 || self.len == 0 {
            let kept = if self.len == 0 { 0 } else { slots / 2 };
            budget.give(bytes_of(slots - kept));
            self.slots = vec![KeySlot::default(); kept].into_boxed_slice();
        } else {
            self.slots.fill(KeySlot::default());
        }
        (self.len, self.error) = (0, 0);
        self.earlier_weight = std::mem::take(&mut self.weight);
    }
}

/// The keys of a table.
#[derive(Debug)]
pub(crate) struct TableCopy {
    pub(crate) slots: Vec<KeySlot>,
    error: u64,
    weight: u64,
    distinct: Option<DistinctKeys>,
}

impl TableCopy {
    pub(crate) fn into_summary(self) -> KeySummary {
        let count = |slot: &KeySlot| KeyCount {
            hash: slot.hash,
            lower: slot.count,
            upper: slot.upper(),
        };
        let keys = self.slots.iter().map(count).collect();
        KeySummary::new(keys, self.error, self.weight, self.distinct)
    }
}

/// The slot that a key would have if no other did.
#[inline]
fn home(hash: u64, mask: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the mask keeps the lowest bits"
    )]
    let home = hash as usize & mask;
    home
}

fn bytes_of(slots: usize) -> usize {
    slots * size_of::<KeySlot>()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn event(key: u64, weight: u64) -> KeyEvent {
        KeyEvent {
            hash: key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            weight,
            at: 7,
            has_free_names: false,
        }
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let (budget, mut table) = (MemoryBudget::new(1 << 20), KeyTable::default());
        for round in 0..10 {
            for key in 0..1_000 {
                table.add(&event(key, key + round), &budget);
            }
        }
        assert_eq!((table.len, table.error), (1_000, 0));
        for key in 0..1_000 {
            let at = table.find(event(key, 0).hash).unwrap();
            assert_eq!(table.slots[at].count, 10 * key + 45);
            assert_eq!(table.slots[at].seen, 7);
        }
        table.clear(&budget);
        table.clear(&budget);
        assert_eq!(budget.used(), 0);
    }

    /// A third of the weight is on ten keys, the rest on keys that come once, or are chosen at random.
    fn mixed(table: &mut KeyTable, budget: &MemoryBudget) -> (u64, HashMap<u64, u64>) {
        let (mut state, mut all, mut true_counts) = (1_u64, 0, HashMap::new());
        for number in 0..300_000_u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let random = state >> 33;
            let key = match number % 3 {
                0 => random % 10,
                1 => 1_000_000 + number,
                _ => 10 + random % 20_000,
            };
            let event = event(key, 1 + random % 3);
            table.add(&event, budget);
            *true_counts.entry(event.hash).or_insert(0) += event.weight;
            all += event.weight;
        }
        (all, true_counts)
    }

    #[test]
    fn true_counts_lie_within_the_bounds_and_the_error_is_small() {
        let budget = MemoryBudget::new(1 << 20);
        let mut table = KeyTable::counting_distinct();
        let (all, true_counts) = mixed(&mut table, &budget);
        assert_eq!(table.weight, all);
        assert!(
            table.error > 0 && table.error <= all / 1_366,
            "{}",
            table.error
        );
        assert!(table.len <= MOST_SLOTS / 8 * 7);
        for slot in table.used_slots() {
            let count = true_counts[&slot.hash];
            assert!(
                (slot.count..=slot.upper()).contains(&count),
                "{slot:?}: {count}"
            );
        }
        for (hash, count) in &true_counts {
            let at = table.find(*hash).unwrap();
            assert!(
                table.slots[at].hash == *hash || *count <= table.error,
                "{count}"
            );
        }
        // Those that were there from the beginning are exact.
        for key in 0..10 {
            let at = table.find(event(key, 0).hash).unwrap();
            assert_eq!(table.slots[at].count, true_counts[&event(key, 0).hash]);
        }
        let distinct = crate::distinct::estimate(table.distinct.as_ref().unwrap().registers());
        let count = true_counts.len() as u64;
        assert!(
            distinct.abs_diff(count) * 20 <= count,
            "{distinct} of {count}"
        );
    }

    #[test]
    fn without_memory_the_bounds_are_wider_and_still_true() {
        let budget = MemoryBudget::new(bytes_of(64));
        let mut table = KeyTable::default();
        let (_, true_counts) = mixed(&mut table, &budget);
        assert_eq!(table.slots.len(), 64);
        assert_eq!(budget.used(), bytes_of(64));
        for slot in table.used_slots() {
            let count = true_counts[&slot.hash];
            assert!(
                (slot.count..=slot.upper()).contains(&count),
                "{slot:?}: {count}"
            );
        }
        let mut none = KeyTable::default();
        let worth = none.add(&event(1, 1), &MemoryBudget::new(0));
        assert_eq!(worth, WorthKeeping::default());
        assert_eq!((none.weight, none.len), (1, 0));
    }

    #[test]
    fn a_key_is_named_when_it_matters() {
        let budget = MemoryBudget::new(1 << 20);
        let mut table = KeyTable::default();
        assert!(table.add(&event(1, 1), &budget).is_name, "the only key");
        assert!(!table.add(&event(1, 1), &budget).is_name, "once");
        table.add(&event(2, 5_000), &budget);
        table.clear(&budget);
        // In the next period the weight of this one counts.
        for key in 10..500 {
            assert!(!table.add(&event(key, 1), &budget).is_name);
        }
        assert!(!table.add(&event(3, 4), &budget).is_name);
        assert!(table.add(&event(3, 2), &budget).is_name);
        let free = KeyEvent {
            has_free_names: true,
            ..event(4, 1)
        };
        assert!(table.add(&free, &budget).is_name);
    }

    #[test]
    fn of_a_second_the_first_request_and_some_samples_of_a_key_are_worth_keeping() {
        let budget = MemoryBudget::new(1 << 20);
        let mut table = KeyTable::counting_distinct();
        let mut at = |at: u32| table.add(&KeyEvent { at, ..event(1, 1) }, &budget);
        let worth = |is_name, is_last, is_sample| WorthKeeping {
            is_name,
            is_last,
            is_sample,
        };
        assert_eq!(at(7), worth(true, false, true));
        for _ in 1..25 {
            assert_eq!(at(7), worth(false, false, true));
        }
        assert_eq!(at(7), worth(false, false, false));
        assert_eq!(at(8), worth(false, true, true));
        assert_eq!(at(8), worth(false, false, true));
    }
}
