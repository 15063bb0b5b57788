//! The keys that were reset, with the time of the last charge before the reset. A charge up to that time was cleared by
//! the reset and must not be given back.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::slot::KeyHash;
use crate::time::Timestamp;

/// How many resets are known by their key.
const MOST: usize = 16_384;

/// The latest resets. Locked after stripes, never before.
#[derive(Debug, Default)]
pub(super) struct Resets {
    kept: Mutex<KeptResets>,
    /// Whether there is any, to see without the lock.
    has_any: AtomicBool,
}

#[derive(Debug, Default)]
struct KeptResets {
    last_charges: HashMap<KeyHash, Timestamp>,
    /// The keys in the order of their resets.
    order: VecDeque<KeyHash>,
    /// Charges to any key up to this time are not given back. Covers resets that are no longer listed by key. Errs on
    /// the strict side: such a charge counts as used until it flows back or leaves its window. A reset cannot be dropped
    /// instead when no open reservation is older: receipts that callers keep in their processes are not known here.
    all_up_to: Timestamp,
}

impl Resets {
    /// Records the reset of a key that was last charged at `last_charge`.
    pub(super) fn add(&self, key: KeyHash, last_charge: Timestamp) {
        let mut kept = self.kept.lock();
        let KeptResets {
            last_charges,
            order,
            all_up_to,
        } = &mut *kept;
        match last_charges.entry(key) {
            Entry::Occupied(mut known) => {
                let later = last_charge.max(*known.get());
                known.insert(later);
            }
            Entry::Vacant(new) => {
                new.insert(last_charge);
                order.push_back(key);
            }
        }
        if order.len() > MOST
            && let Some(oldest) = order.pop_front()
        {
            let last_charge = last_charges.remove(&oldest).unwrap_or_default();
            *all_up_to = last_charge.max(*all_up_to);
        }
        self.has_any.store(true, Ordering::Release);
    }

    /// Gives nothing back that was charged up to `time`, whatever its key.
    pub(super) fn add_all_up_to(&self, time: Timestamp) {
        let mut kept = self.kept.lock();
        kept.all_up_to = kept.all_up_to.max(time);
        self.has_any.store(true, Ordering::Release);
    }

    /// Whether a key was reset after it was charged at `charged_at`.
    pub(super) fn is_after(&self, key: KeyHash, charged_at: Timestamp) -> bool {
        if !self.has_any() {
            return false;
        }
        let kept = self.kept.lock();
        let known = kept.last_charges.get(&key).copied().unwrap_or_default();
        known.max(kept.all_up_to) >= charged_at
    }

    /// Whether any key was reset.
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Up to when nothing that was charged to any key is given back, and the last charge of each key that was reset, in
    /// the order of the resets.
    pub(super) fn copy(&self) -> (Timestamp, Vec<(KeyHash, Timestamp)>) {
        let kept = self.kept.lock();
        let last_charge = |key: &KeyHash| kept.last_charges.get(key).copied().unwrap_or_default();
        let by_key = kept.order.iter().map(|key| (*key, last_charge(key)));
        (kept.all_up_to, by_key.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: u64) -> KeyHash {
        KeyHash {
            home: key,
            rest: key,
        }
    }

    #[test]
    fn a_reset_is_after_what_was_charged_to_its_key_until_then() {
        let (resets, at) = (Resets::default(), Timestamp::from_seconds);
        assert!(!resets.has_any());
        assert!(!resets.is_after(key(1), Timestamp::EPOCH));
        resets.add(key(1), at(10));
        let is_after = |charged| [1, 2].map(|name| resets.is_after(key(name), at(charged)));
        assert_eq!(is_after(10), [true, false]);
        assert_eq!(is_after(11), [false, false]);
        resets.add(key(1), at(20));
        assert_eq!(is_after(11), [true, false]);
        resets.add(key(1), at(19));
        assert_eq!(resets.copy(), (Timestamp::EPOCH, vec![(key(1), at(20))]));
        resets.add_all_up_to(at(15));
        assert_eq!(is_after(15), [true, true]);
        assert_eq!(is_after(16), [true, false]);
        assert_eq!(resets.copy(), (at(15), vec![(key(1), at(20))]));
    }

    #[test]
    fn the_oldest_of_too_many_resets_holds_for_all_keys() {
        let (resets, most) = (Resets::default(), MOST as u64);
        for name in 0..most {
            resets.add(key(name), Timestamp::from_seconds(name + 1));
        }
        let second = Timestamp::from_seconds(1);
        assert!(!resets.is_after(key(most), second));
        resets.add(key(most), Timestamp::from_seconds(most + 1));
        assert!(
            resets.is_after(key(most + 1), second),
            "a key that was never reset"
        );
        assert!(!resets.is_after(key(most + 1), Timestamp::from_seconds(2)));
        assert!(resets.is_after(key(1), Timestamp::from_seconds(2)));
        assert_eq!(resets.kept.lock().order.len(), MOST);
        assert_eq!(resets.kept.lock().last_charges.len(), MOST);
    }
}
