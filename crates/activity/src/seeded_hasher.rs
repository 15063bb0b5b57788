//! Hashes keys with a secret seed. Instances that share a store agree on one, so that their sketches can be merged.
//!
//! The seed is secret because clients choose the keys: with a known one they could choose keys that collide.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

/// The most seeds of a process. A new one comes only when the store of the instances is replaced, so that more are not
/// worth a lock for each decision.
const MOST_SEEDS: usize = 32;

/// Its hash says whether two instances hash alike.
const PROBE: &[u8] = b"tidegate activity";

#[derive(Debug)]
struct KeySeed {
    seed: u128,
    own: u64,
    shared: SharedSeed,
    probe: u64,
}

impl KeySeed {
    fn new(seed: u128) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "each half is used")]
        let (own, shared) = ((seed >> 64) as u64, SharedSeed::from_u64(seed as u64));
        let mut hasher = FoldHasher::with_seed(own, &shared);
        hasher.write(PROBE);
        let probe = hasher.finish();
        Self {
            seed,
            own,
            shared,
            probe,
        }
    }
}

/// Hashes keys.
#[derive(Debug)]
pub(crate) struct SeededHasher {
    seeds: [OnceLock<KeySeed>; MOST_SEEDS],
    /// The index of the seed in use. It has one.
    current: AtomicUsize,
}

impl SeededHasher {
    /// With a random seed.
    pub(crate) fn new() -> Self {
        let random = || u128::from(RandomState::new().hash_one(0));
        let seeds = [const { OnceLock::new() }; MOST_SEEDS];
        let _ = seeds[0].set(KeySeed::new(random() << 64 | random()));
        Self {
            seeds,
            current: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn current(&self) -> Option<&KeySeed> {
        let seed = self.seeds.get(self.current.load(Ordering::Acquire));
        seed.and_then(OnceLock::get)
    }

    #[inline]
    pub(crate) fn build(&self) -> FoldHasher<'_> {
        match self.current() {
            Some(seed) => FoldHasher::with_seed(seed.own, &seed.shared),
            None => FoldHasher::with_seed(0, SharedSeed::global_random()),
        }
    }

    /// The seed in use.
    pub(crate) fn seed(&self) -> u128 {
        self.current().map_or(0, |seed| seed.seed)
    }

    /// The hash of a fixed text.
    pub(crate) fn probe(&self) -> u64 {
        self.current().map_or(0, |seed| seed.probe)
    }

    /// Uses another seed from now on. False if there were too many.
    pub(crate) fn adopt(&self, seed: u128) -> bool {
        for (index, kept) in self.seeds.iter().enumerate() {
            if kept.get_or_init(|| KeySeed::new(seed)).seed == seed {
                self.current.store(index, Ordering::Release);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(hasher: &SeededHasher, key: &str) -> u64 {
        let mut hasher = hasher.build();
        hasher.write(key.as_bytes());
        hasher.finish()
    }

    #[test]
    fn hashers_with_one_seed_agree_and_others_do_not() {
        let (one, other) = (SeededHasher::new(), SeededHasher::new());
        assert_ne!(one.seed(), other.seed());
        assert_ne!(one.probe(), other.probe());
        assert_ne!(hash(&one, "u1"), hash(&other, "u1"));
        let before = hash(&one, "u1");
        assert!(one.adopt(other.seed()));
        assert_eq!((one.seed(), one.probe()), (other.seed(), other.probe()));
        assert_eq!(hash(&one, "u1"), hash(&other, "u1"));
        assert_ne!(hash(&one, "u1"), before);
        // Both halves of a seed matter.
        for flipped in [1, 1 << 64] {
            assert!(one.adopt(other.seed() ^ flipped));
            assert_ne!(hash(&one, "u1"), hash(&other, "u1"));
        }
    }

    #[test]
    fn a_seed_is_adopted_again_and_too_many_are_refused() {
        let hasher = SeededHasher::new();
        let first = hasher.seed();
        for round in 0..3 {
            for seed in 1..MOST_SEEDS as u128 {
                assert!(hasher.adopt(seed), "{round}");
                assert_eq!(hasher.seed(), seed);
            }
        }
        assert!(!hasher.adopt(1_000));
        assert_eq!(hasher.seed(), MOST_SEEDS as u128 - 1);
        assert!(hasher.adopt(first));
    }
}
