//! All stripes of a store: finding the stripe of a key, locking it, and sweeping along with charges.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;

use super::forms::{SpilledState, StateStep, Task};
use super::lock::{Guard, Lock};
use super::shared::SharedCounts;
use super::slot::{KeyHash, Slot};
use super::stripe::Stripe;
use crate::clock::Clock;
#[cfg(feature = "system-clock")]
use crate::clock::SystemClock;
use crate::limit::MAX_WINDOW;
use crate::outcome::Outcome;
use crate::time::{Micros, Timestamp};

/// About the number of keys in one stripe of a full store. Work under one lock, such as growing, takes time in
/// proportion to this and not to the size of the store.
const KEYS_PER_STRIPE: usize = 16_384;
/// A smaller store has fewer stripes, down to one, so that evictions have enough keys to choose from.
const KEYS_TO_CHOOSE_FROM: usize = 1_024;
const STRIPES_FOR_THREADS: usize = 64;
/// The hash has this many bits to choose a stripe by.
const MAX_STRIPES: usize = 1 << 16;
/// Threads that read the same clock at the same time get values that differ by less than this.
const THREADS_DIFFER: Micros = Micros::from_millis(10);
/// The latest time at which anything is decided: every window that starts then has an end.
pub(super) const LATEST: Timestamp =
    Timestamp::from_micros(Timestamp::MAX.as_micros() - 2 * MAX_WINDOW.get());
/// One of this many charges on a stripe sweeps a few slots of some stripe.
const CHARGES_PER_SWEEP: u32 = 256;
/// The number of slots that it sweeps.
const SLOTS_PER_SWEEP: usize = 32;

pub(super) struct Stripes {
    all: Box<[Aligned<Lock<Stripe>>]>,
    clock: StoreClock,
    shared: Aligned<SharedCounts>,
    next_tidied: Aligned<AtomicUsize>,
}

/// The clock of a store. The system's is read without a call through a pointer.
struct StoreClock {
    #[cfg(feature = "system-clock")]
    is_system: bool,
    clock: Arc<dyn Clock>,
}

impl StoreClock {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            #[cfg(feature = "system-clock")]
            is_system: clock.is_system(),
            clock,
        }
    }

    #[inline]
    fn now(&self) -> Timestamp {
        #[cfg(feature = "system-clock")]
        if self.is_system {
            return SystemClock.now();
        }
        self.clock.now()
    }
}

/// On cache lines of its own, so that threads on different stripes do not disturb each other. In pairs: processors
/// fetch the other line of a pair, too.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Aligned<T>(T);

/// The number of stripes in which a permit looks for a key to evict.
const STRIPES_PER_PERMIT: usize = 16;

impl Stripes {
    pub(super) fn new(
        max_keys: usize,
        max_memory: usize,
        clock: Arc<dyn Clock>,
        is_clock_of_requests: bool,
    ) -> Self {
        // Enough for threads not to meet, as long as each stripe has keys to choose from when one has
        // to go; and for large stores, enough to keep the stripes small.
        let for_threads = (max_keys / KEYS_TO_CHOOSE_FROM).min(STRIPES_FOR_THREADS);
        let for_size = max_keys / KEYS_PER_STRIPE;
        let count = for_threads
            .max(for_size)
            .next_power_of_two()
            .min(MAX_STRIPES);
        // The first reading of the clock takes longer than the others: not on a request's time.
        let clock = StoreClock::new(clock);
        clock.now();
        Self {
            all: std::iter::repeat_with(Aligned::default)
                .take(count)
                .collect(),
            clock,
            shared: Aligned(SharedCounts::new(
                max_keys,
                max_memory,
                is_clock_of_requests,
            )),
            next_tidied: Aligned::default(),
        }
    }

    #[inline]
    pub(super) fn shared(&self) -> &SharedCounts {
        &self.shared.0
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The current time, for expiry; none once requests bring their own time.
    pub(super) fn idle_at(&self) -> Option<Timestamp> {
        self.shared.0.idle_at(self.clock.now())
    }

    /// The time that was given, or the clock's. It may be after [`LATEST`].
    #[inline]
    pub(super) fn time(&self, given: Option<Timestamp>) -> Timestamp {
        if let Some(now) = given {
            self.shared.0.stop_expiring();
            return now;
        }
        self.clock.now()
    }

    /// The stripe of a key.
    #[inline]
    pub(super) fn of(&self, hash: KeyHash) -> &Lock<Stripe> {
        &self.all[self.index(hash)].0
    }

    #[inline]
    fn index(&self, hash: KeyHash) -> usize {
        // The number of stripes is a power of two.
        usize::try_from(hash.stripe_bits()).unwrap_or(0) & (self.all.len() - 1)
    }

    /// Locks the stripe of `hash` at `now`; or later, if others have used it at a later time.
    #[inline]
    pub(super) fn lock(
        &self,
        hash: KeyHash,
        given: Option<Timestamp>,
        now: Timestamp,
    ) -> (Guard<'_, Stripe>, Timestamp) {
        let mut stripe = self.of(hash).lock();
        if given.is_some() {
            return (stripe, now);
        }
        let now = if stripe.used_at > now {
            self.catch_up(stripe.used_at)
        } else {
            now
        };
        stripe.used_at = now;
        (stripe, now)
    }

    /// The current time for a thread whose time is earlier than the stripe's `used_at`.
    ///
    /// The thread had to wait for the lock or for the processor, so its time is old and the clock is read again. A
    /// small remaining difference is between the clocks of two threads, and is ignored: to a small bucket it would look
    /// like a clock that was set back. A clock that really was set back is further behind.
    #[cold]
    fn catch_up(&self, used_at: Timestamp) -> Timestamp {
        let now = self.clock.now();
        if used_at.since(now) < THREADS_DIFFER {
            now.max(used_at)
        } else {
            now
        }
    }

    /// Locks the stripes of all tasks, always in the same order, so that no two threads wait for each
    /// other. Then sets the time of the tasks.
    pub(super) fn lock_all(
        &self,
        tasks: &mut [Task<'_>],
        at: Option<Timestamp>,
    ) -> LockedStripes<'_> {
        let mut indexes: SmallVec<[usize; 4]> =
            tasks.iter().map(|task| self.index(task.hash)).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let lock = |index: &usize| (*index, self.all[*index].0.lock());
        let mut locked: SmallVec<[_; 4]> = indexes.iter().map(lock).collect();
        let mut now = self.time(at);
        if at.is_none() {
            let used_at = locked
                .iter()
                .map(|(_, stripe)| stripe.used_at)
                .max()
                .unwrap_or_default();
            if used_at > now {
                now = self.catch_up(used_at);
            }
            for (_, stripe) in &mut locked {
                stripe.used_at = now;
            }
        }
        for task in tasks {
            task.now = now;
        }
        LockedStripes {
            locked,
            stripes: self,
        }
    }

    /// Lets go of a stripe after a charge, and does a little of the sweeping if it is due.
    #[inline]
    pub(super) fn finish(&self, mut stripe: Guard<'_, Stripe>) {
        let is_due = stripe.count_charge(CHARGES_PER_SWEEP);
        drop(stripe);
        if is_due {
            self.tidy();
        }
    }

    #[cold]
    fn tidy(&self) {
        let idle_at = self.idle_at();
        if let Some(now) = idle_at
            && let Some(mut stripe) = self.next_to_tidy().try_lock()
        {
            stripe.sweep(SLOTS_PER_SWEEP, now, &self.shared.0);
        }
        self.make_room(idle_at);
    }

    /// Evicts a key of another stripe, for a new key whose own stripe had none to evict.
    fn make_room(&self, idle_at: Option<Timestamp>) {
        for _ in 0..self.all.len() {
            if !self.shared.0.is_over() {
                break;
            }
            self.next_to_tidy().lock().evict(idle_at, &self.shared.0);
        }
    }

    /// If the store is over its memory, removes a few keys for a permit: counters, or only ended states if permits take
    /// too much already. False if that was not enough.
    #[cold]
    pub(super) fn makes_room_for_permit(&self) -> bool {
        let (shared, idle_at) = (&self.shared.0, self.idle_at());
        for _ in 0..STRIPES_PER_PERMIT {
            if shared.has_room_for_permit() {
                return true;
            }
            let mut stripe = self.next_to_tidy().lock();
            if !shared.is_full_of_permits() {
                stripe.evict(idle_at, shared);
            } else if let Some(now) = idle_at {
                stripe.sweep(SLOTS_PER_SWEEP, now, shared);
            }
        }
        shared.has_room_for_permit()
    }

    fn next_to_tidy(&self) -> &Lock<Stripe> {
        let next = self.next_tidied.0.fetch_add(1, Ordering::Relaxed);
        &self.all[next & (self.all.len() - 1)].0
    }

    /// Iterates over the stripes, to be locked one by one.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lock<Stripe>> {
        self.all.iter().map(|stripe| &stripe.0)
    }

    /// Like [`Stripe::restore`], but also evicts from other stripes if its own has no candidate.
    pub(super) fn restore(
        &self,
        slot: Slot,
        spilled: Option<(KeyHash, SpilledState)>,
        idle_at: Option<Timestamp>,
    ) {
        let mut stripe = self.of(slot.hash()).lock();
        let has_room = stripe.restore(slot, spilled, idle_at, &self.shared.0);
        drop(stripe);
        if !has_room {
            self.make_room(idle_at);
        }
    }

    /// Removes every idle key of one in `parts` of the stripes, and another time of the next, one stripe at a
    /// time.
    pub(super) fn sweep_part(&self, parts: usize) {
        if let Some(now) = self.idle_at() {
            for _ in 0..self.all.len().div_ceil(parts) {
                let mut stripe = self.next_to_tidy().lock();
                // One step for each slot, and one more for each removed key.
                let looks = stripe.capacity().saturating_mul(2);
                stripe.sweep(looks, now, &self.shared.0);
            }
        }
    }
}

/// The stripes of one request, locked together.
pub(super) struct LockedStripes<'a> {
    locked: SmallVec<[(usize, Guard<'a, Stripe>); 4]>,
    stripes: &'a Stripes,
}

impl LockedStripes<'_> {
    pub(super) fn get(&self, task: &Task<'_>) -> &Stripe {
        &self.locked[self.position(task)].1
    }

    /// Decides, and applies an allowed charge.
    pub(super) fn charge(&mut self, task: &Task<'_>) -> Outcome {
        let position = self.position(task);
        self.locked[position]
            .1
            .apply(StateStep::Charge, task, self.stripes.shared())
    }

    fn position(&self, task: &Task<'_>) -> usize {
        let index = self.stripes.index(task.hash);
        self.locked.partition_point(|(locked, _)| *locked < index)
    }

    /// Unlocks the stripes after a charge, and sweeps a few slots if that is due.
    pub(super) fn finish(mut self) {
        let mut is_due = false;
        for (_, stripe) in &mut self.locked {
            is_due |= stripe.count_charge(CHARGES_PER_SWEEP);
        }
        let stripes = self.stripes;
        drop(self);
        if is_due {
            stripes.tidy();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::keys::{KeyHasher, random_secret};
    use crate::store::{Charge, Scope};

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_stripe_fits_into_a_pair_of_cache_lines() {
        assert_eq!(size_of::<Aligned<Lock<Stripe>>>(), 128);
    }

    /// Small stores have few, so that a key that has to go is chosen from many. Large ones have many, so
    /// that each stays small.
    #[test]
    fn the_number_of_stripes_follows_from_the_size_of_the_store() {
        #[rustfmt::skip]
        let table = [
            (1,          1),
            (1_024,      1),
            (2_047,      1),
            (2_048,      2),
            (5_000,      4),
            (65_536,     64),
            (1_000_000,  64),
            (2_097_152,  128),
            (10_000_000, 1_024),
            (usize::MAX, 65_536),
        ];
        for (max_keys, stripes) in table {
            let clock = Arc::new(SystemClock);
            assert_eq!(
                Stripes::new(max_keys, usize::MAX, clock, false).all.len(),
                stripes,
                "{max_keys} keys"
            );
        }
    }

    /// So that threads with different keys seldom wait for each other.
    #[test]
    fn keys_are_spread_over_all_stripes() {
        let stripes = Stripes::new(1_000_000, usize::MAX, Arc::new(SystemClock), false);
        let mut keys = vec![0; stripes.all.len()];
        let hasher = KeyHasher::new(random_secret());
        let (scope, limit) = (Scope::new("spread"), "1/minute".parse().unwrap());
        for key in 0..6_400 {
            let hash = hasher.hash(&Charge {
                scope: &scope,
                limit: &limit,
                key: &key.to_string(),
                cost: 1,
            });
            keys[stripes.index(hash)] += 1;
        }
        // 100 each, give or take six times the deviation of chance.
        assert!(
            keys.iter().all(|keys| (40..=160).contains(keys)),
            "{keys:?}"
        );
    }

    /// The hash of a key in one of two stripes.
    fn in_stripe(stripe: u64, key: u64) -> KeyHash {
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !0xffff;
        let (home, rest) = (spread | stripe, key << 16);
        KeyHash { home, rest }
    }

    /// A full store with two stripes, of which one has all keys.
    fn one_sided() -> Stripes {
        let stripes = Stripes::new(2_048, usize::MAX, Arc::new(SystemClock), false);
        for key in 0..2_048 {
            let slot = Slot::inline(in_stripe(0, key), [0; 2], Micros::SECOND);
            stripes.restore(slot, None, None);
        }
        stripes
    }

    #[test]
    fn a_key_that_is_alone_in_its_stripe_takes_the_place_of_one_elsewhere() {
        let evicted = |stripes: &Stripes| {
            let stats = stripes.shared().stats();
            assert_eq!(stats.keys, 2_048, "no more than there may be");
            stats.evicted
        };
        let stripes = one_sided();
        assert_eq!(evicted(&stripes), 0);
        let slot = Slot::inline(in_stripe(1, 0), [0; 2], Micros::SECOND);
        stripes.restore(slot, None, None);
        assert_eq!(evicted(&stripes), 1, "one that was restored");

        let stripes = one_sided();
        let limit = "1/minute".parse().unwrap();
        // At a time that the request brings, so that nothing is removed for being idle.
        let at = Some(Timestamp::from_seconds(1_000));
        let hash = in_stripe(1, 0);
        let (mut stripe, now) = stripes.lock(hash, at, stripes.time(at));
        let task = Task {
            hash,
            limit: &limit,
            cost: 1,
            now,
            permit: None,
        };
        let outcome = stripe.apply(StateStep::Charge, &task, stripes.shared());
        stripes.finish(stripe);
        assert!(outcome.allowed);
        assert_eq!(evicted(&stripes), 1, "one that was charged");
    }
}
