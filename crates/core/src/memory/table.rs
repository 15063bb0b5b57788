//! An open table of slots: linear probing, growing by an eighth at a time, so that between 71 and
//! 80 of 100 places are in use once it is past its first few hundred keys.
//!
//! Knows hashes and places; what a slot's words mean is the stripe's affair.

use super::slot::{KeyHash, Slot};

/// Up to this many places a table doubles; above, it grows by an eighth.
const DOUBLES_TO: usize = 256;
const SMALLEST: usize = 8;

/// The slots of one stripe.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Box<[Slot]>,
    len: usize,
}

impl Table {
    /// How many places there are, empty ones among them.
    pub(super) fn places(&self) -> usize {
        self.slots.len()
    }

    /// The slot at `place`, empty or not.
    pub(super) fn get(&self, place: usize) -> Slot {
        self.slots[place]
    }

    pub(super) fn get_mut(&mut self, place: usize) -> &mut Slot {
        &mut self.slots[place]
    }

    /// Where `hash` is, if it is there.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash) -> Option<usize> {
        let places = self.slots.len();
        if places == 0 {
            return None;
        }
        let mut place = home_among(hash.home, places);
        // There is always an empty place: a table is never full.
        loop {
            let slot = &self.slots[place];
            if slot.holds(hash) {
                return Some(place);
            }
            if slot.is_empty() {
                return None;
            }
            place += 1;
            if place == places {
                place = 0;
            }
        }
    }

    /// Visits slots in the order of their homes, those with the home `from` first, at about `most`
    /// places. Returns the home to go on from; none if these were the last.
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
        let places = self.slots.len();
        if places == 0 {
            return None;
        }
        let first = home_among(from, places);
        let is_empty = |place: &usize| self.slots[*place].is_empty();
        // A part ends at an empty place: no slot before it has its home after it, or the reverse.
        let last = first.saturating_add(most.max(1)).min(places);
        let gap = if last < places {
            let before = (first..last).rev().find(is_empty);
            before.or_else(|| (last..places).find(is_empty))
        } else {
            None
        };
        let end = gap.map_or(places, |gap| gap + 1);
        let next = (end < places).then(|| first_home(end, places));
        let is_in_part = |slot: &&Slot| {
            !slot.is_empty() && slot.home() >= from && next.is_none_or(|next| slot.home() < next)
        };
        self.slots[first..end]
            .iter()
            .filter(is_in_part)
            .for_each(&mut visit);
        if next.is_none() {
            // A run that reaches the end of the table goes on at its beginning.
            let rest = self.slots[..first].iter();
            rest.take_while(|slot| !slot.is_empty())
                .filter(is_in_part)
                .for_each(visit);
        }
        next
    }

    /// Adds a slot whose hash is not there yet.
    pub(super) fn insert(&mut self, slot: Slot) {
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            self.resize(next_size(self.slots.len()));
        }
        self.place(slot);
        self.len += 1;
    }

    /// Empties the place, and closes the gap in every run of slots that went through it.
    pub(super) fn remove(&mut self, place: usize) {
        let places = self.slots.len();
        let distance = |from: usize, to: usize| {
            if to >= from {
                to - from
            } else {
                to + places - from
            }
        };
        let mut gap = place;
        let mut next = place;
        loop {
            next = if next + 1 == places { 0 } else { next + 1 };
            let slot = self.slots[next];
            if slot.is_empty() {
                break;
            }
            // A slot may move back to the gap unless it would pass its home.
            if distance(home_among(slot.home(), places), next) >= distance(gap, next) {
                self.slots[gap] = slot;
                gap = next;
            }
        }
        self.slots[gap] = Slot::EMPTY;
        self.len -= 1;
    }

    /// Gives memory back when most places are empty.
    pub(super) fn shrink(&mut self) {
        if self.len == 0 {
            self.slots = Box::default();
        } else if self.len * 3 < self.slots.len() && self.slots.len() > SMALLEST {
            let mut fitting = SMALLEST;
            while self.len * 5 > fitting * 3 {
                fitting = next_size(fitting);
            }
            self.resize(fitting);
        }
    }

    fn resize(&mut self, places: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::EMPTY; places].into());
        for slot in old {
            if !slot.is_empty() {
                self.place(slot);
            }
        }
    }

    fn place(&mut self, slot: Slot) {
        let places = self.slots.len();
        let mut place = home_among(slot.home(), places);
        while !self.slots[place].is_empty() {
            place = if place + 1 == places { 0 } else { place + 1 };
        }
        self.slots[place] = slot;
    }
}

fn next_size(places: usize) -> usize {
    match places {
        0 => SMALLEST,
        1..DOUBLES_TO => places * 2,
        _ => places + places / 8,
    }
}

/// The place at which `home` would like to be, in proportion to its size.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the product's high half is below `places`"
)]
#[inline]
fn home_among(home: u64, places: usize) -> usize {
    ((u128::from(home) * places as u128) >> 64) as usize
}

/// The smallest home whose place is `place`, which is one of `places`.
fn first_home(place: usize, places: usize) -> u64 {
    let home = ((place as u128) << 64).div_ceil(places as u128);
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
                    (false, Some(place)) => {
                        table.remove(place);
                        set.remove(&key);
                        table.shrink();
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(table.len, set.len());
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
                        (false, Some(place)) => {
                            table.remove(place);
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
        let fewest = table.places().div_ceil(1_024);
        assert!((fewest..fewest + fewest / 8).contains(&visits), "{visits}");
    }

    #[test]
    fn an_emptied_table_gives_its_memory_back() {
        let mut table = Table::default();
        for key in 0..5_000 {
            table.insert(Slot::inline(hash(key), [key, 0], Micros::ZERO));
        }
        assert!(
            table.places() * 71 <= 5_000 * 100 + 71,
            "{} places",
            table.places()
        );
        for key in 0..5_000 {
            table.remove(table.find(hash(key)).unwrap());
            table.shrink();
        }
        assert_eq!((table.len, table.places()), (0, 0));
    }
}
