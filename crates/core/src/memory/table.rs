//! A hash table of slots with linear probing. It grows by about an eighth at a time, so that 71 to 80 of 100 slots are
//! in use once it has more than eight chunks.
//!
//! A large table consists of chunks of one size, and grows in place by more of them. So growing frees next to
//! nothing: tables that grow at the same time, as those of all stripes do, leave no holes in the allocator that
//! are too small for their next sizes.
//!
//! Knows only hashes and indices; the stripe interprets a slot's words.

use smallvec::SmallVec;

use super::slot::{KeyHash, Slot};

/// The number of slots in a chunk: 8 KiB minus one slot. Allocators have size classes, and some need up to 31 bytes
/// more for the alignment of slots: with one more slot, a chunk would fall into the next class.
const CHUNK: usize = 255;
/// The number of chunks that are found without following another pointer.
const NEAR_CHUNKS: usize = 8;
/// Up to this many slots a table doubles; then it gets its first chunk. A table that is replaced by a larger one may be
/// freed by another thread than the one that allocated it, and then its memory waits for that thread to allocate the
/// same size, which it does not do again: all stripes grow at the same time. So few sizes, and small ones, are left
/// behind.
const DOUBLES_TO: usize = 31;
const SMALLEST: usize = 7;

/// The slots of one stripe. The order of the fields puts everything except the chunks into a stripe's first cache line.
/// No table ever has `u32::MAX` slots.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Table {
    len: u32,
    /// Where the next sweep goes on.
    hand: u32,
    slots: TableSlots,
}

#[derive(Debug)]
enum TableSlots {
    /// Fewer than a chunk.
    Few(Box<[Slot]>),
    Chunks(SmallVec<[Box<SlotChunk>; NEAR_CHUNKS]>),
}

type SlotChunk = [Slot; CHUNK];

impl Default for TableSlots {
    fn default() -> Self {
        Self::Few(Box::default())
    }
}

impl TableSlots {
    /// Allocates `capacity` empty slots: less than a chunk, or whole chunks.
    fn empty(capacity: usize) -> Self {
        if capacity < CHUNK {
            return Self::Few(vec![Slot::EMPTY; capacity].into());
        }
        let chunks = std::iter::repeat_with(|| Box::new([Slot::EMPTY; CHUNK]));
        Self::Chunks(chunks.take(capacity / CHUNK).collect())
    }
}

impl Table {
    /// The number of slots, including empty ones.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        match &self.slots {
            TableSlots::Few(slots) => slots.len(),
            TableSlots::Chunks(chunks) => chunks.len() * CHUNK,
        }
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    /// Where the next sweep goes on.
    pub(super) fn hand(&self) -> usize {
        self.hand as usize
    }

    /// Lets the next sweep continue at `index`.
    pub(super) fn set_hand(&mut self, index: usize) {
        self.hand = u32::try_from(index).unwrap_or(0);
    }

    /// The slot at `index`, empty or not.
    pub(super) fn get(&self, index: usize) -> Slot {
        match &self.slots {
            TableSlots::Few(slots) => slots[index],
            TableSlots::Chunks(chunks) => chunks[index / CHUNK][index % CHUNK],
        }
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Slot {
        match &mut self.slots {
            TableSlots::Few(slots) => &mut slots[index],
            TableSlots::Chunks(chunks) => &mut chunks[index / CHUNK][index % CHUNK],
        }
    }

    fn take(&mut self, index: usize) -> Slot {
        std::mem::replace(self.get_mut(index), Slot::EMPTY)
    }

    /// Where `hash` is, if it is there.
    pub(super) fn find(&self, hash: KeyHash) -> Option<usize> {
        match &self.slots {
            TableSlots::Few(slots) => find_among_few(slots, hash),
            TableSlots::Chunks(chunks) => {
                let (chunk, within) = find_in_chunks(chunks, hash)?;
                Some(chunk * CHUNK + within)
            }
        }
    }

    /// The slot of `hash`, if it is there.
    #[inline]
    pub(super) fn find_mut(&mut self, hash: KeyHash) -> Option<&mut Slot> {
        match &mut self.slots {
            TableSlots::Few(slots) => slots.get_mut(find_among_few(slots, hash)?),
            TableSlots::Chunks(chunks) => {
                let (chunk, within) = find_in_chunks(chunks, hash)?;
                chunks.get_mut(chunk)?.get_mut(within)
            }
        }
    }

    /// Visits about `most` slots in the order of their homes, starting with the home `from`. Returns the home to
    /// continue from, or `None` at the end.
    ///
    /// A home says nothing about the size of the table or about other slots. So calls that follow one
    /// another visit every slot that is there all the time, once, whatever else is added, removed or
    /// moved in between.
    pub(super) fn visit(
        &self,
        from: u64,
        most: usize,
        mut visit: impl FnMut(&Slot),
    ) -> Option<u64> {
        let capacity = self.capacity();
        if capacity == 0 {
            return None;
        }
        let first = home_among(from, capacity);
        let is_empty = |index: &usize| self.get(*index).is_empty();
        // A part ends at an empty slot: no slot before it has its home after it, or the reverse.
        let last = first.saturating_add(most.max(1)).min(capacity);
        let gap = if last < capacity {
            let before = (first..last).rev().find(is_empty);
            before.or_else(|| (last..capacity).find(is_empty))
        } else {
            None
        };
        let end = gap.map_or(capacity, |gap| gap + 1);
        let next = (end < capacity).then(|| first_home(end, capacity));
        let is_in_part = |slot: &Slot| {
            !slot.is_empty() && slot.home >= from && next.is_none_or(|next| slot.home < next)
        };
        let part = (first..end).map(|index| self.get(index));
        part.filter(is_in_part).for_each(|slot| visit(&slot));
        if next.is_none() {
            // A run that reaches the end of the table goes on at its beginning.
            let rest = (0..first).map(|index| self.get(index));
            rest.take_while(|slot| !slot.is_empty())
                .filter(is_in_part)
                .for_each(|slot| visit(&slot));
        }
        next
    }

    /// Adds a slot whose hash is not there yet.
    pub(super) fn insert(&mut self, slot: Slot) {
        if (self.len() + 1) * 5 > self.capacity() * 4 {
            self.grow();
        }
        self.place(slot);
        self.len += 1;
    }

    /// Empties the slot at `index`, and closes the gap in every run of slots that went through it.
    pub(super) fn remove(&mut self, index: usize) {
        let capacity = self.capacity();
        let distance = |from: usize, to: usize| {
            if to >= from {
                to - from
            } else {
                to + capacity - from
            }
        };
        let mut gap = index;
        let mut next = index;
        loop {
            next = if next + 1 == capacity { 0 } else { next + 1 };
            let slot = self.get(next);
            if slot.is_empty() {
                break;
            }
            // A slot may move back to the gap unless it would pass its home.
            if distance(home_among(slot.home, capacity), next) >= distance(gap, next) {
                *self.get_mut(gap) = slot;
                gap = next;
            }
        }
        *self.get_mut(gap) = Slot::EMPTY;
        self.len -= 1;
    }

    /// Frees memory when most slots are empty.
    pub(super) fn shrink(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        } else if self.len() * 3 < self.capacity() && self.capacity() > SMALLEST {
            let mut fitting = SMALLEST;
            while self.len() * 5 > fitting * 3 {
                fitting = next_size(fitting);
            }
            if fitting < self.capacity() {
                self.resize(fitting);
            }
        }
    }

    /// Moves all slots to a table of another size.
    fn resize(&mut self, capacity: usize) {
        let old = std::mem::replace(&mut self.slots, TableSlots::empty(capacity));
        let slots = match &old {
            TableSlots::Few(slots) => &slots[..],
            TableSlots::Chunks(_) => &[],
        };
        let chunks = match &old {
            TableSlots::Few(_) => &[][..],
            TableSlots::Chunks(chunks) => chunks,
        };
        let all = slots
            .iter()
            .chain(chunks.iter().flat_map(|chunk| &chunk[..]));
        all.filter(|slot| !slot.is_empty())
            .for_each(|slot| self.place(*slot));
    }

    /// Makes room for more slots.
    fn grow(&mut self) {
        let old = self.capacity();
        let capacity = next_size(old);
        let TableSlots::Chunks(chunks) = &mut self.slots else {
            return self.resize(capacity);
        };
        let TableSlots::Chunks(new) = TableSlots::empty(capacity - old) else {
            return self.resize(capacity);
        };
        *chunks = [std::mem::take(chunks), new]
            .into_iter()
            .flatten()
            .collect();
        // First move all slots to the end, then each from there to its new home. The home is never behind the slot,
        // unless slots at the end do not fit there and wrap around to the beginning.
        let mut packed = capacity;
        for from in (0..old).rev() {
            let slot = self.take(from);
            if !slot.is_empty() {
                packed -= 1;
                *self.get_mut(packed) = slot;
            }
        }
        let mut behind = Vec::new();
        for from in packed..capacity {
            let slot = self.take(from);
            let mut index = home_among(slot.home, capacity);
            while index < from && !self.get(index).is_empty() {
                index += 1;
            }
            if index <= from {
                *self.get_mut(index) = slot;
            } else {
                behind.push(slot);
            }
        }
        for slot in behind {
            self.place(slot);
        }
    }

    fn place(&mut self, slot: Slot) {
        let capacity = self.capacity();
        let mut index = home_among(slot.home, capacity);
        while !self.get(index).is_empty() {
            index = if index + 1 == capacity { 0 } else { index + 1 };
        }
        *self.get_mut(index) = slot;
    }
}

/// The index of `hash`. The loop ends because a table always has an empty slot.
#[inline]
fn find_among_few(slots: &[Slot], hash: KeyHash) -> Option<usize> {
    let mut index = home_among(hash.home, slots.len());
    loop {
        let slot = slots.get(index)?;
        if slot.holds(hash) {
            return Some(index);
        }
        if slot.is_empty() {
            return None;
        }
        index += 1;
        if index == slots.len() {
            index = 0;
        }
    }
}

/// The chunk of `hash`, and its index there. The loop ends because a table always has an empty slot.
#[inline]
fn find_in_chunks(chunks: &[Box<SlotChunk>], hash: KeyHash) -> Option<(usize, usize)> {
    let home = home_among(hash.home, chunks.len() * CHUNK);
    let (mut chunk, mut within) = (home / CHUNK, home % CHUNK);
    loop {
        for slot in &chunks.get(chunk)?[within..] {
            if slot.holds(hash) {
                return Some((chunk, within));
            }
            if slot.is_empty() {
                return None;
            }
            within += 1;
        }
        within = 0;
        chunk += 1;
        if chunk == chunks.len() {
            chunk = 0;
        }
    }
}

/// The next larger capacity. Below a chunk it is one slot less than a size class of allocators.
fn next_size(capacity: usize) -> usize {
    match capacity {
        0 => SMALLEST,
        1..DOUBLES_TO => capacity * 2 + 1,
        DOUBLES_TO..CHUNK => CHUNK,
        // By an eighth, in chunks.
        _ => capacity + (capacity / 8 / CHUNK).max(1) * CHUNK,
    }
}

/// The index at which a probe for `home` begins, in proportion to the capacity.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the product's high half is below `capacity`"
)]
#[inline]
fn home_among(home: u64, capacity: usize) -> usize {
    if cfg!(target_pointer_width = "64") {
        return ((u128::from(home) * capacity as u128) >> 64) as usize;
    }
    // By halves: there are no wide products, and a capacity is a short word.
    let (high, low) = (home >> 32, home & u64::from(u32::MAX));
    let capacity = capacity as u64;
    ((high * capacity + ((low * capacity) >> 32)) >> 32) as usize
}

/// The smallest home whose probe begins at `index`.
fn first_home(index: usize, capacity: usize) -> u64 {
    let home = ((index as u128) << 64).div_ceil(capacity as u128);
    u64::try_from(home).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Micros;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn hash(key: u64) -> KeyHash {
        // Few homes, so that long runs form and wrap around the end.
        KeyHash {
            home: key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 0xfff0_0000_0000_0000,
            rest: key << 16,
        }
    }

    #[test]
    fn sizes_are_one_slot_less_than_size_classes_and_then_whole_chunks() {
        let sizes = std::iter::successors(Some(0), |capacity| Some(next_size(*capacity)));
        let sizes: Vec<usize> = sizes.take(7).collect();
        assert_eq!(sizes, [0, 7, 15, 31, CHUNK, 2 * CHUNK, 3 * CHUNK]);
        assert_eq!(size_of::<SlotChunk>() + align_of::<Slot>(), 8_192);
        assert_eq!(next_size(24 * CHUNK), 27 * CHUNK);
    }

    proptest! {
        #[test]
        fn it_holds_what_a_set_holds(steps in prop::collection::vec((any::<bool>(), 0..400_u64), 1..1_500)) {
            let (mut table, mut set) = (Table::default(), BTreeSet::new());
            for (insert, key) in steps {
                match (insert, table.find(hash(key))) {
                    (true, None) => {
                        table.insert(Slot::inline(hash(key), [key, 0], Micros::ZERO));
                        set.insert(key);
                    }
                    (false, Some(index)) => {
                        table.remove(index);
                        set.remove(&key);
                        table.shrink();
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(table.len(), set.len());
            for key in 0..400 {
                prop_assert_eq!(table.find(hash(key)).is_some(), set.contains(&key));
            }
        }
    }

    proptest! {
        /// While other slots come and go, and the table grows and shrinks.
        #[test]
        fn slots_that_stay_are_visited_once_whatever_else_changes(
            scattered: bool,
            others in 0..3_000_u64,
            most in 1..200_usize,
            changes in prop::collection::vec((any::<bool>(), 1_000..4_000_u64), 0..600),
        ) {
            let hash = |key: u64| if scattered {
                KeyHash { home: key.wrapping_mul(0x9e37_79b9_7f4a_7c15), rest: key << 16 }
            } else {
                hash(key)
            };
            let slot = |key: u64| Slot::inline(hash(key), [key, 0], Micros::ZERO);
            let mut table = Table::default();
            (0..1_000 + others).for_each(|key| table.insert(slot(key)));
            let (mut changes, mut visited) = (changes.into_iter(), Vec::new());
            let mut from = Some(0);
            while let Some(home) = from {
                from = table.visit(home, most, |slot| visited.push(slot.words[0]));
                prop_assert!(from.is_none_or(|next| next > home));
                for (insert, key) in changes.by_ref().take(20) {
                    match (insert, table.find(hash(key))) {
                        (true, None) => table.insert(slot(key)),
                        (false, Some(index)) => {
                            table.remove(index);
                            table.shrink();
                        }
                        _ => {}
                    }
                }
            }
            let all = visited.len();
            visited.sort_unstable();
            visited.dedup();
            let staying: Vec<u64> = visited.iter().copied().filter(|key| *key < 1_000).collect();
            prop_assert_eq!(staying, (0..1_000).collect::<Vec<u64>>());
            // One that went and came back with the same home is visited at most once, too.
            prop_assert_eq!(visited.len(), all);
        }
    }

    #[test]
    fn one_visit_looks_at_no_more_slots_than_it_may() {
        let mut table = Table::default();
        for key in 0..20_000_u64 {
            let home = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let hash = KeyHash {
                home,
                rest: key << 16,
            };
            table.insert(Slot::inline(hash, [key, 0], Micros::ZERO));
        }
        let (mut from, mut visits, mut all) = (Some(0), 0, 0);
        while let Some(home) = from {
            let mut slots = 0;
            from = table.visit(home, 1_024, |_| slots += 1);
            assert!(slots <= 1_024, "{slots}");
            visits += 1;
            all += slots;
        }
        assert_eq!(all, 20_000);
        let fewest = table.capacity().div_ceil(1_024);
        assert!((fewest..fewest + fewest / 8).contains(&visits), "{visits}");
    }

    #[test]
    fn an_emptied_table_gives_its_memory_back() {
        let mut table = Table::default();
        for key in 0..5_000 {
            table.insert(Slot::inline(hash(key), [key, 0], Micros::ZERO));
        }
        assert!(
            table.capacity() * 71 <= 5_000 * 100 + 71,
            "{} capacity",
            table.capacity()
        );
        for key in 0..5_000 {
            table.remove(table.find(hash(key)).unwrap());
            table.shrink();
        }
        assert_eq!((table.len(), table.capacity()), (0, 0));
    }

    /// Homes that are spread evenly.
    fn scattered(key: u64) -> Slot {
        let home = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let rest = key << 16;
        Slot::inline(KeyHash { home, rest }, [key, 0], Micros::ZERO)
    }

    #[test]
    fn a_growing_table_has_a_fifth_of_its_slots_empty_and_a_large_one_not_many_more() {
        let mut table = Table::default();
        for key in 0..20_000 {
            let before = table.capacity();
            table.insert(scattered(key));
            let (len, capacity) = (table.len(), table.capacity());
            if capacity != before {
                assert!(len * 5 > before * 4, "{len} fit in {before}");
            }
            assert!(len * 5 <= capacity * 4, "{len} in {capacity}");
            if capacity > NEAR_CHUNKS * CHUNK {
                assert!(len * 100 >= capacity * 71, "{len} in {capacity}");
            }
        }
    }

    #[test]
    fn a_table_shrinks_when_less_than_a_third_is_full_and_has_room_to_grow_again() {
        let mut table = Table::default();
        (0..20_000).for_each(|key| table.insert(scattered(key)));
        for key in 0..19_999 {
            let index = table.find(scattered(key).hash()).unwrap();
            table.remove(index);
            let before = table.capacity();
            table.shrink();
            let (len, capacity) = (table.len(), table.capacity());
            // A third, or less if the next smaller table would be too full.
            let is_chunk = capacity == CHUNK && len * 5 > DOUBLES_TO * 3;
            let is_full_enough = len * 10 >= capacity * 3 || is_chunk || capacity == SMALLEST;
            assert!(is_full_enough, "{len} in {capacity}");
            if capacity != before {
                assert!(len * 3 < before, "{len} fill a third of {before}");
                assert!(len * 5 <= capacity * 3, "{len} in {capacity}");
            }
        }
        assert!(table.find(scattered(19_999).hash()).is_some());
    }
}
