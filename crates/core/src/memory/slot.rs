//! A slot of the table: 32 bytes for a key's hash, its state and a tag for the sweep.

use crate::algorithm::{BucketState, CounterState, FixedWindowState};
use crate::time::{Micros, Timestamp};

/// Bits of a [`Timestamp`].
const TIME: u32 = 53;
/// Bits of a span within a window.
const SPAN: u32 = 45;
/// The most that a window's state holds next to its times. A larger number takes the bits of one of them.
pub(super) const MOST_IN_WINDOW: u64 = mask(128 - TIME - SPAN);
/// Bits of one of two counters.
const HALF: u32 = 37;

/// The keyed hash of a key, 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct KeyHash {
    pub(super) home: u64,
    pub(super) rest: u64,
}

impl KeyHash {
    /// The bits that choose the stripe. They are from the half that a slot stores completely, so that a slot of a
    /// snapshot finds its stripe in a store with another number of stripes. The index in the table comes from the other
    /// end.
    pub(super) fn stripe_bits(self) -> u64 {
        self.home & Tag::MASK
    }
}

/// A slot of the table. Aligned so that none crosses a cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(align(32))]
pub(super) struct Slot {
    pub(super) home: u64,
    /// The hash's other bits, with the tag in place of the lowest 16.
    rest_and_tag: u64,
    pub(super) words: [u64; 2],
}

/// The properties of a slot that do not depend on its limit, in 16 bits.
///
/// From the low end: 11 bits for the time until the state is like a fresh one, a bit for a key
/// that is being denied, two for the kind, one for a window's state whose usage takes the bits of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tag(u64);

impl Tag {
    const MASK: u64 = 0xffff;
    const LIFE: u64 = 0x07ff;
    const DENIED: u64 = 0x0800;
    const INLINE: u64 = 0x1000;
    const SPILLED: u64 = 0x2000;
    const WIDE: u64 = 0x4000;
    const KNOWN: u64 = Self::LIFE | Self::DENIED | Self::INLINE | Self::SPILLED | Self::WIDE;
}

impl Slot {
    pub(super) const EMPTY: Self = Self {
        home: 0,
        rest_and_tag: 0,
        words: [0; 2],
    };

    pub(super) fn is_empty(self) -> bool {
        self.rest_and_tag & (Tag::INLINE | Tag::SPILLED) == 0
    }

    #[inline]
    pub(super) fn holds(&self, hash: KeyHash) -> bool {
        // The tag is shifted out; an empty slot holds no hash, whatever its bits.
        self.home == hash.home && (self.rest_and_tag ^ hash.rest) <= Tag::MASK && !self.is_empty()
    }

    /// Everything that it holds, for a snapshot.
    pub(super) fn to_raw(self) -> [u64; 4] {
        [self.home, self.rest_and_tag, self.words[0], self.words[1]]
    }

    /// The slot that holds this; none if no slot can. An empty one if it has no state.
    pub(super) fn from_raw([home, rest_and_tag, first, second]: [u64; 4]) -> Option<Self> {
        let tag = rest_and_tag & Tag::MASK;
        let both = Tag::INLINE | Tag::SPILLED;
        let is_wide = tag & Tag::WIDE != 0;
        let is_possible =
            tag & !Tag::KNOWN == 0 && tag & both != both && (!is_wide || tag & Tag::INLINE != 0);
        is_possible.then_some(Self {
            home,
            rest_and_tag,
            words: [first, second],
        })
    }

    /// The hash of its key, as far as it is known: enough to find it.
    pub(super) fn hash(&self) -> KeyHash {
        KeyHash {
            home: self.home,
            rest: self.rest_and_tag & !Tag::MASK,
        }
    }

    /// The state of `hash` in these words, like a fresh one `life` after the time in their low bits.
    #[inline]
    pub(super) fn inline(hash: KeyHash, words: [u64; 2], life: Micros) -> Self {
        let tag = Tag::INLINE | encode_life(life);
        Self {
            home: hash.home,
            rest_and_tag: (hash.rest & !Tag::MASK) | tag,
            words,
        }
    }

    /// The state of a window of the clock with more usage than the usual form holds: when it was last changed, and what
    /// is used. When it was opened follows from its limit.
    pub(super) fn wide_window(hash: KeyHash, state: (Timestamp, u64), life: Micros) -> Self {
        let (changed_at, used) = state;
        let bits = u128::from(changed_at.as_micros()) | u128::from(used.min(mask(TIME))) << TIME;
        let mut slot = Self::inline(hash, split(bits), life);
        slot.rest_and_tag |= Tag::WIDE;
        slot
    }

    /// When such a state was last changed, and what is used. None of any other.
    #[inline]
    pub(super) fn wide(&self) -> Option<(Timestamp, u64)> {
        if self.rest_and_tag & Tag::WIDE == 0 {
            return None;
        }
        let bits = join(self.words);
        let changed_at = Timestamp::from_micros(low(bits, TIME));
        Some((changed_at, low(bits >> TIME, TIME)))
    }

    /// The state of `hash` is kept elsewhere, at `index`, and like a fresh one at `fresh_at`.
    pub(super) fn spilled(hash: KeyHash, index: usize, fresh_at: Timestamp) -> Self {
        let words = [fresh_at.as_micros(), index as u64];
        let rest_and_tag = (hash.rest & !Tag::MASK) | Tag::SPILLED;
        Self {
            home: hash.home,
            rest_and_tag,
            words,
        }
    }

    /// Where a spilled state is kept.
    pub(super) fn spilled_at(&self) -> Option<usize> {
        let is_spilled = self.rest_and_tag & Tag::SPILLED != 0;
        is_spilled.then(|| usize::try_from(self.words[1]).unwrap_or(usize::MAX))
    }

    /// A spilled state is kept at `index` now.
    pub(super) fn set_spilled_at(&mut self, index: usize) {
        self.words[1] = index as u64;
    }

    /// When the state is like a fresh one at the latest.
    pub(super) fn fresh_at(&self) -> Timestamp {
        let time = Timestamp::from_micros(self.words[0] & mask(TIME));
        if self.rest_and_tag & Tag::SPILLED != 0 {
            time
        } else {
            time + decode_life(self.rest_and_tag & Tag::LIFE)
        }
    }

    pub(super) fn is_denied(&self) -> bool {
        self.rest_and_tag & Tag::DENIED != 0
    }

    pub(super) fn mark_denied(&mut self) {
        self.rest_and_tag |= Tag::DENIED;
    }

    pub(super) fn clear_denied(&mut self) {
        self.rest_and_tag &= !Tag::DENIED;
    }

    /// A spilled state is like a fresh one at `fresh_at` now.
    pub(super) fn set_fresh_at(&mut self, fresh_at: Timestamp) {
        debug_assert!(
            self.spilled_at().is_some(),
            "the words of an inline state are its own"
        );
        self.words[0] = fresh_at.as_micros();
    }
}

/// A span as a small floating-point number, rounded up by at most a 32nd: below 32 as it is, above
/// as five bits after the leading one and where that one stands.
#[inline]
fn encode_life(life: Micros) -> u64 {
    let life = life.get();
    if life < 32 {
        return life;
    }
    let shift = life.ilog2() - 5;
    let rounded = (life + (1 << shift) - 1) >> shift; // 32 to 64
    u64::from(shift) * 32 + rounded
}

fn decode_life(code: u64) -> Micros {
    if code < 32 {
        return Micros::new(code);
    }
    let shift = (code - 32) / 32;
    Micros::new(((code - 32) % 32 + 32) << shift)
}

/// A state that fits into two words, with the time from which its life counts in the low bits.
pub(super) trait Packed: Copy + PartialEq {
    fn pack(self) -> [u64; 2];
    fn unpack(words: [u64; 2]) -> Self;
    /// The time from which its life counts.
    fn since(self) -> Timestamp;
}

impl Packed for BucketState {
    #[inline]
    fn pack(self) -> [u64; 2] {
        let bits = u128::from(self.changed_at.as_micros())
            | u128::from(self.part) << TIME
            | u128::from(self.whole.min(mask(128 - TIME - SPAN))) << (TIME + SPAN);
        split(bits)
    }

    #[inline]
    fn unpack(words: [u64; 2]) -> Self {
        let bits = join(words);
        Self {
            changed_at: Timestamp::from_micros(low(bits, TIME)),
            part: low(bits >> TIME, SPAN),
            whole: low(bits >> (TIME + SPAN), 128 - TIME - SPAN),
        }
    }

    fn since(self) -> Timestamp {
        self.changed_at
    }
}

impl Packed for FixedWindowState {
    #[inline]
    fn pack(self) -> [u64; 2] {
        let bits = u128::from(self.opened_at.as_micros())
            | u128::from(self.changed_at.since(self.opened_at).get()) << TIME
            | u128::from(self.used.min(mask(128 - TIME - SPAN))) << (TIME + SPAN);
        split(bits)
    }

    #[inline]
    fn unpack(words: [u64; 2]) -> Self {
        let bits = join(words);
        let opened_at = Timestamp::from_micros(low(bits, TIME));
        Self {
            opened_at,
            changed_at: opened_at + Micros::new(low(bits >> TIME, SPAN)),
            used: low(bits >> (TIME + SPAN), 128 - TIME - SPAN),
        }
    }

    fn since(self) -> Timestamp {
        self.opened_at
    }
}

impl Packed for CounterState {
    #[inline]
    fn pack(self) -> [u64; 2] {
        let bits = u128::from(self.changed_at.as_micros())
            | u128::from(self.current.min(mask(HALF))) << TIME
            | u128::from(self.previous.min(mask(HALF))) << (TIME + HALF);
        split(bits)
    }

    #[inline]
    fn unpack(words: [u64; 2]) -> Self {
        let bits = join(words);
        Self {
            changed_at: Timestamp::from_micros(low(bits, TIME)),
            current: low(bits >> TIME, HALF),
            previous: low(bits >> (TIME + HALF), HALF),
        }
    }

    fn since(self) -> Timestamp {
        self.changed_at
    }
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the mask leaves no more bits than fit"
)]
fn low(bits: u128, count: u32) -> u64 {
    bits as u64 & mask(count)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "each half is taken on purpose"
)]
fn split(bits: u128) -> [u64; 2] {
    [bits as u64, (bits >> 64) as u64]
}

fn join(words: [u64; 2]) -> u128 {
    u128::from(words[0]) | u128::from(words[1]) << 64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_time() -> impl Strategy<Value = Timestamp> {
        (0..=Timestamp::MAX.as_micros()).prop_map(Timestamp::from_micros)
    }

    #[test]
    fn a_life_of_few_digits_is_kept_as_it_is() {
        for shift in 0..=47 {
            for digits in 0..64 {
                let life = Micros::new(digits << shift);
                assert_eq!(decode_life(encode_life(life)), life);
            }
        }
    }

    #[test]
    fn words_are_a_slot_if_their_tag_is_known_and_of_one_kind() {
        for tag in 0..=0xffff_u64 {
            let is_known = tag < 0x8000;
            let is_of_both_kinds = tag & 0x3000 == 0x3000;
            let is_wide_window = tag & 0x4000 == 0 || tag & 0x1000 != 0;
            let is_possible = is_known && !is_of_both_kinds && is_wide_window;
            let slot = Slot::from_raw([1, 5 << 16 | tag, 2, 3]);
            assert_eq!(slot.is_some(), is_possible, "{tag:x}");
        }
    }

    proptest! {
        #[test]
        fn bucket_states_are_unpacked_as_packed(
            changed_at in any_time(), part in 0..31_622_400_000_000_u64, whole in 0..(1_u64 << 30),
        ) {
            let state = BucketState { whole, part, changed_at };
            prop_assert_eq!(BucketState::unpack(state.pack()), state);
        }

        #[test]
        fn window_states_are_unpacked_as_packed(
            opened_at in any_time(), open_for in 0..31_622_400_000_000_u64, used in 0..(1_u64 << 30),
        ) {
            let changed_at = opened_at + Micros::new(open_for);
            let state = FixedWindowState { opened_at, changed_at, used };
            prop_assert_eq!(FixedWindowState::unpack(state.pack()), state);
        }

        #[test]
        fn wide_windows_are_read_as_written(changed_at in any_time(), used in 0..(1_u64 << 53), life: u64) {
            let hash = KeyHash { home: 1, rest: 2 << 16 };
            let mut slot = Slot::wide_window(hash, (changed_at, used), Micros::new(life));
            slot.mark_denied();
            prop_assert!(slot.holds(hash));
            prop_assert_eq!(slot.wide(), Some((changed_at, used)));
            prop_assert!(slot.fresh_at() >= changed_at);
            let raw = Slot::from_raw(slot.to_raw());
            prop_assert_eq!(raw, Some(slot));
            prop_assert_eq!(Slot::inline(hash, slot.words, Micros::ZERO).wide(), None);
        }

        #[test]
        fn counter_states_are_unpacked_as_packed(
            changed_at in any_time(), current in 0..(1_u64 << 37), previous in 0..(1_u64 << 37),
        ) {
            let state = CounterState { changed_at, current, previous };
            prop_assert_eq!(CounterState::unpack(state.pack()), state);
        }

        #[test]
        fn a_life_is_rounded_up_by_a_32nd_at_most(life in 0..=Micros::MAX.get()) {
            let coded = encode_life(Micros::new(life));
            prop_assert!(coded <= Tag::LIFE);
            let decoded = decode_life(coded).get();
            prop_assert!(decoded >= life);
            prop_assert!(decoded - life <= life / 32);
        }

        #[test]
        fn a_slot_holds_its_hash_and_no_other(home: u64, rest: u64, other: u64, life: u64, denied: bool) {
            let hash = KeyHash { home, rest };
            let mut slot = Slot::inline(hash, [0; 2], Micros::new(life));
            if denied {
                slot.mark_denied();
            }
            prop_assert!(slot.holds(hash));
            prop_assert!(!Slot::EMPTY.holds(hash));
            prop_assert_eq!(slot.holds(KeyHash { home, rest: other }), other >> 16 == rest >> 16);
            let elsewhere = KeyHash { home: home ^ 1, rest };
            prop_assert!(!slot.holds(elsewhere));
        }
    }
}
