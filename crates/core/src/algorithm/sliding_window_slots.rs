//! Sliding window slots: counters, one for each part of the window.
//!
//! The slot that contains the window's start counts fully if `strict`, otherwise not at all. So `strict` never admits
//! more than the limit in any interval of one window's length.

use std::collections::VecDeque;

use super::{AlgorithmVerdict, set_back};
use crate::limit::MAX_SLOTS;
use crate::outcome::Outcome;
use crate::time::{Micros, Timestamp};

/// The most counts that a limit has: one more than slots if it is strict.
pub(crate) const MAX_RING: usize = MAX_SLOTS as usize + 1;

/// The parameters of a window cut into slots. Made by [`Limit::new`](crate::Limit::new).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingSlots {
    count: u64,
    window: Micros,
    slot: u64,
    counted: u64,
}

/// The usage of each of the latest slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slots {
    changed_at: Timestamp,
    /// One count for each slot from the first used one to the one that holds `changed_at`. Earlier slots are zero. A
    /// key that is used only once has a single count.
    counts: VecDeque<u32>,
}

impl SlidingSlots {
    pub(crate) fn new(count: u64, window: Micros, slots: u32, strict: bool) -> Self {
        let slot = window.get() / u64::from(slots);
        Self {
            count,
            window,
            slot,
            counted: u64::from(slots) + u64::from(strict),
        }
    }

    /// The number of requests that a window admits.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The window.
    pub fn window(&self) -> Micros {
        self.window
    }

    /// The length of one slot.
    pub fn slot(&self) -> Micros {
        Micros::new(self.slot)
    }

    /// How many slots count at any time, the present one among them.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// Whether these slots are no more than this limit counts.
    pub(crate) fn fits(&self, slots: &Slots) -> bool {
        slots.counts.len() as u64 <= self.counted
    }

    /// Decides one charge and changes nothing; [`charge`](Self::charge) applies an allowed one.
    pub fn decide(&self, slots: &Slots, cost: u64, now: Timestamp) -> Outcome {
        let changed_at = slots.changed_at - set_back(slots.changed_at, now, self.window);
        let at = now.max(changed_at);
        let used = self.used(slots, changed_at, at);

        let verdict = if cost == 0 || used.saturating_add(cost) <= self.count {
            AlgorithmVerdict::ALLOWED
        } else if cost > self.count {
            AlgorithmVerdict::NEVER
        } else {
            let excess = used - (self.count - cost);
            AlgorithmVerdict::denied_until(self.frees(slots, changed_at, at, excess), now)
        };
        let taken = if verdict.allowed { cost } else { 0 };
        let reset_at = if taken > 0 {
            self.stops_counting(at, 0)
        } else if used > 0 {
            self.frees(slots, changed_at, at, used)
        } else {
            now
        };
        verdict.outcome(self.count, used.saturating_add(taken), reset_at, at)
    }

    /// Charges `cost`, which was allowed.
    pub fn charge(&self, slots: &mut Slots, cost: u64, now: Timestamp) {
        self.bring_forward(slots, now);
        if let Some(count) = slots.counts.back_mut() {
            *count = count.saturating_add(u32::try_from(cost).unwrap_or(u32::MAX));
        }
    }

    /// Moves the state to the present if its clock has been set back since.
    pub fn rebase(&self, slots: &mut Slots, now: Timestamp) {
        slots.changed_at = slots.changed_at - set_back(slots.changed_at, now, self.window);
    }

    /// Adds a cost that is known only afterwards, up to the limit.
    pub fn settle(&self, slots: &mut Slots, cost: u64, now: Timestamp) {
        let room = self.decide(slots, 0, now).remaining;
        self.charge(slots, cost.min(room), now);
    }

    /// Takes back `cost` in the slot in which it was charged, as of `charged_at`, while it counts.
    pub fn give_back(&self, slots: &mut Slots, cost: u64, charged_at: Timestamp, now: Timestamp) {
        self.rebase(slots, now);
        let (newest, charged) = (self.number(slots.changed_at), self.number(charged_at));
        let age = newest.wrapping_sub(charged);
        if charged <= newest
            && age < self.counted
            && let Some(index) = slots.index(age)
        {
            let count = &mut slots.counts[index];
            *count = count.saturating_sub(u32::try_from(cost).unwrap_or(u32::MAX));
        }
    }

    /// How much [`give_back`](Self::give_back) takes back of what counts.
    pub fn given_back(
        &self,
        slots: &Slots,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> u64 {
        let latest = slots.changed_at - set_back(slots.changed_at, now, self.window);
        let (newest, charged) = (self.number(latest), self.number(charged_at));
        let present = self.number(now.max(latest));
        if charged > newest || present - charged >= self.counted {
            return 0;
        }
        let count = slots.index(newest - charged);
        count.map_or(0, |index| cost.min(u64::from(slots.counts[index])))
    }

    /// Clears the slots that have passed since the last change, up to the one that holds `now`.
    fn bring_forward(&self, slots: &mut Slots, now: Timestamp) {
        self.rebase(slots, now);
        let at = now.max(slots.changed_at);
        let passed = self.number(at) - self.number(slots.changed_at);
        slots.changed_at = at;
        if slots.counts.is_empty() || passed >= self.counted {
            slots.counts = VecDeque::from([0]);
            return;
        }
        for _ in 0..passed {
            if slots.counts.len() as u64 == self.counted {
                slots.counts.pop_front();
            }
            slots.trim();
            slots.counts.push_back(0);
        }
    }

    /// The usage at `at` of a state last changed at `changed_at`.
    fn used(&self, slots: &Slots, changed_at: Timestamp, at: Timestamp) -> u64 {
        slots.latest(self.counting(changed_at, at)).sum()
    }

    /// The first instant at which at least `excess` of the usage at `at` has left the window.
    fn frees(&self, slots: &Slots, changed_at: Timestamp, at: Timestamp, excess: u64) -> Timestamp {
        let mut freed = 0;
        let counts = slots.latest(self.counting(changed_at, at));
        let ages = (0..counts.len() as u64).rev();
        for (age, count) in ages.zip(counts) {
            freed += count;
            if freed >= excess {
                return self.stops_counting(changed_at, age);
            }
        }
        at
    }

    /// Number of slots, ending with the one of `changed_at`, that still count at `at`.
    fn counting(&self, changed_at: Timestamp, at: Timestamp) -> u64 {
        let passed = self.number(at) - self.number(changed_at);
        self.counted.saturating_sub(passed)
    }

    /// When the slot that is `age` slots before the one of `changed_at` stops counting.
    fn stops_counting(&self, changed_at: Timestamp, age: u64) -> Timestamp {
        let number = self.number(changed_at) + self.counted - age;
        Timestamp::from_micros(number.saturating_mul(self.slot))
    }

    fn number(&self, at: Timestamp) -> u64 {
        at.as_micros() / self.slot
    }
}

impl Slots {
    /// The slots with these counts, the latest last; none if there are more than a limit can have.
    pub(crate) fn from_counts(changed_at: Timestamp, counts: Box<[u32]>) -> Option<Self> {
        if counts.len() > MAX_RING {
            return None;
        }
        let counts = counts.into_iter().skip_while(|count| *count == 0);
        Some(Self {
            changed_at,
            counts: counts.collect(),
        })
    }

    /// The memory that it takes next to itself, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u32>()
    }

    /// When something was last charged.
    pub(crate) fn changed_at(&self) -> Timestamp {
        self.changed_at
    }

    /// How many counts there are.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// The usage of each slot, latest last.
    pub(crate) fn counts(&self) -> impl Iterator<Item = u32> {
        self.counts.iter().copied()
    }

    /// The usage of the latest slots, at most `most`, latest last.
    fn latest(&self, most: u64) -> impl ExactSizeIterator<Item = u64> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let first = self.counts.len().saturating_sub(most);
        self.counts.range(first..).map(|count| u64::from(*count))
    }

    /// Forgets slots at the beginning in which nothing was used.
    fn trim(&mut self) {
        while self.counts.front() == Some(&0) {
            self.counts.pop_front();
        }
    }

    /// The index of the count that is `age` slots before the latest.
    fn index(&self, age: u64) -> Option<usize> {
        let age = usize::try_from(age).ok()?;
        self.counts.len().checked_sub(age + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Retry;

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn slots_leave_one_by_one() {
        let limit = SlidingSlots::new(10, Micros::MINUTE, 6, false);
        let mut slots = Slots::default();
        limit.charge(&mut slots, 4, seconds(605)); // slot 60
        limit.charge(&mut slots, 6, seconds(625)); // slot 62
        #[rustfmt::skip]
        let table = [
            // name                            cost at   allowed left retry                                        reset
            ("full",                           1,   630, false,  0,   Retry::After(Micros::from_seconds(30)),      680),
            ("needs both slots to leave",      5,   630, false,  0,   Retry::After(Micros::from_seconds(50)),      680),
            ("so does the whole limit",        10,  630, false,  0,   Retry::After(Micros::from_seconds(50)),      680),
            ("the first slot has left",        4,   660, true,   0,   Retry::Now,                                  720),
            ("a peek at what is left",         0,   660, true,   4,   Retry::Now,                                  680),
            ("all have left",                  0,   680, true,   10,  Retry::Now,                                  680),
            ("never more than the limit",      11,  680, false,  10,  Retry::Never,                                680),
        ];
        for (name, cost, at, allowed, left, retry, reset) in table {
            let got = limit.decide(&slots, cost, seconds(at));
            let wanted = (allowed, left, retry, seconds(reset));
            assert_eq!(
                (got.allowed, got.remaining, got.retry, got.reset_at),
                wanted,
                "{name}"
            );
        }
    }

    #[test]
    fn strict_counts_the_slot_that_is_partly_gone() {
        let limit = SlidingSlots::new(10, Micros::MINUTE, 6, true);
        let mut slots = Slots::default();
        limit.charge(&mut slots, 10, seconds(609));
        assert!(
            !limit.decide(&slots, 1, seconds(669)).allowed,
            "60 s later to the second"
        );
        assert!(limit.decide(&slots, 1, seconds(670)).allowed);
    }

    #[test]
    fn give_back_finds_its_slot() {
        let limit = SlidingSlots::new(10, Micros::MINUTE, 6, false);
        let mut slots = Slots::default();
        limit.charge(&mut slots, 4, seconds(605));
        limit.charge(&mut slots, 5, seconds(625));
        limit.give_back(&mut slots, 3, seconds(605), seconds(630));
        assert_eq!(limit.decide(&slots, 0, seconds(630)).remaining, 4);
        limit.charge(&mut slots, 1, seconds(690));
        limit.give_back(&mut slots, 9, seconds(605), seconds(690));
        assert_eq!(limit.decide(&slots, 0, seconds(690)).remaining, 9);
    }

    #[test]
    fn slots_say_what_they_were_made_of() {
        let limit = SlidingSlots::new(10, Micros::MINUTE, 6, true);
        assert_eq!((limit.count(), limit.window()), (10, Micros::MINUTE));
        assert_eq!(
            (limit.slot(), limit.counted()),
            (Micros::from_seconds(10), 7)
        );
        let mut slots = Slots::default();
        assert!(limit.fits(&slots) && slots.len() == 0);
        limit.charge(&mut slots, 4, seconds(605));
        limit.charge(&mut slots, 2, seconds(625));
        assert!(limit.fits(&slots));
        let fewer = SlidingSlots::new(10, Micros::MINUTE, 2, false);
        assert!(!fewer.fits(&slots));
        assert_eq!((slots.len(), slots.changed_at()), (3, seconds(625)));
        let counts: Vec<u32> = slots.counts().collect();
        assert_eq!(counts, [4, 0, 2]);
    }

    /// A client that invents keys uses each once.
    #[test]
    fn slots_take_memory_from_the_first_that_is_used_to_the_last() {
        let limit = SlidingSlots::new(10, Micros::HOUR, 3_600, true);
        let mut slots = Slots::default();
        limit.charge(&mut slots, 1, seconds(10_000));
        assert!(slots.heap_bytes() <= 16, "{}", slots.heap_bytes());
        limit.charge(&mut slots, 1, seconds(10_999));
        assert_eq!(slots.len(), 1_000);
        limit.charge(&mut slots, 1, seconds(13_600));
        assert_eq!(slots.len(), 3_601, "strict counts one more");
        limit.charge(&mut slots, 1, seconds(13_601));
        let counts: Vec<u32> = slots.counts().collect();
        assert_eq!((counts.len(), counts[0]), (2_603, 1), "from the second on");
        limit.charge(&mut slots, 1, seconds(99_999));
        assert_eq!(slots.len(), 1);
        assert!(slots.heap_bytes() <= 16, "{}", slots.heap_bytes());
    }

    #[test]
    fn counts_make_slots_again() {
        let limit = SlidingSlots::new(10, Micros::MINUTE, 6, false);
        let slots = Slots::from_counts(seconds(625), [0, 0, 0, 4, 0, 2].into()).unwrap();
        assert_eq!(limit.decide(&slots, 0, seconds(630)).remaining, 4);
        assert_eq!(limit.decide(&slots, 0, seconds(660)).remaining, 8);
        let counts: Vec<u32> = slots.counts().collect();
        assert_eq!(counts, [4, 0, 2]);
        assert!(Slots::from_counts(seconds(625), vec![0; 3_601].into()).is_some());
        assert!(Slots::from_counts(seconds(625), vec![0; 3_602].into()).is_none());
    }

    #[test]
    fn what_is_settled_fits_into_the_limit() {
        let limit = SlidingSlots::new(10, Micros::MINUTE, 6, false);
        for (cost, left) in [(1, 5), (6, 0), (99, 0)] {
            let mut slots = Slots::default();
            limit.charge(&mut slots, 4, seconds(605));
            limit.settle(&mut slots, cost, seconds(625));
            assert_eq!(
                limit.decide(&slots, 0, seconds(625)).remaining,
                left,
                "{cost}"
            );
        }
    }

    #[test]
    fn slots_of_a_clock_that_was_set_back_are_moved_to_now_with_their_usage() {
        let limit = SlidingSlots::new(10, Micros::MINUTE, 6, false);
        let mut slots = Slots::default();
        limit.charge(&mut slots, 7, seconds(6_005));
        let got = limit.decide(&slots, 4, seconds(605));
        assert_eq!(
            (got.allowed, got.remaining, got.at),
            (false, 3, seconds(605))
        );
        assert_eq!(got.retry, Retry::After(Micros::from_seconds(55)));
        limit.rebase(&mut slots, seconds(605));
        assert_eq!(slots.changed_at(), seconds(605));
        // A clock that goes back a little: as of the last change.
        let got = limit.decide(&slots, 4, seconds(595));
        assert_eq!((got.at, got.remaining), (seconds(605), 3));
        limit.give_back(&mut slots, 2, seconds(600), seconds(606));
        assert_eq!(limit.decide(&slots, 0, seconds(606)).remaining, 5);
        limit.give_back(&mut slots, 2, seconds(610), seconds(606));
        assert_eq!(
            limit.decide(&slots, 0, seconds(606)).remaining,
            5,
            "a later slot"
        );
        limit.give_back(&mut Slots::default(), 2, Timestamp::EPOCH, seconds(606));
    }

    #[test]
    fn what_has_stopped_counting_is_not_given_back_from_the_slot_in_its_position() {
        let limit = SlidingSlots::new(10, Micros::MINUTE, 6, false);
        let mut slots = Slots::default();
        limit.charge(&mut slots, 4, seconds(605));
        limit.charge(&mut slots, 5, seconds(665));
        limit.give_back(&mut slots, 4, seconds(605), seconds(666));
        assert_eq!(limit.decide(&slots, 0, seconds(666)).remaining, 5);
        limit.give_back(&mut slots, 5, seconds(665), seconds(666));
        let got = limit.decide(&slots, 0, seconds(666));
        assert_eq!(
            (got.remaining, got.reset_at),
            (10, seconds(666)),
            "whole now"
        );
    }

    #[test]
    fn a_long_pause_empties_all_slots() {
        let limit = SlidingSlots::new(10, Micros::MINUTE, 6, false);
        let mut slots = Slots::default();
        for second in (605..665).step_by(10) {
            limit.charge(&mut slots, 1, seconds(second));
        }
        assert_eq!(limit.decide(&slots, 0, seconds(659)).remaining, 4);
        limit.charge(&mut slots, 1, seconds(99_999));
        assert_eq!(limit.decide(&slots, 0, seconds(99_999)).remaining, 9);
    }
}
