//! From a key to its hash.

use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

use super::slot::KeyHash;
use crate::lease::random_word;
use crate::store::Charge;

/// Hashes keys to 128 bits under a secret of its own, so that nobody outside can choose two keys
/// that meet.
#[derive(Debug)]
pub(super) struct KeyHasher {
    halves: [(u64, SharedSeed); 2],
}

impl KeyHasher {
    /// A hasher with a new secret.
    pub(super) fn random() -> Self {
        let half = || (random_word(), SharedSeed::from_u64(random_word()));
        Self {
            halves: [half(), half()],
        }
    }

    #[inline]
    pub(super) fn hash(&self, charge: &Charge<'_>) -> KeyHash {
        // Scope and shape are hashes themselves, so they can go into the seed; turned differently in
        // each half, so that two pairs of them that meet in one half do not meet in the other.
        let (scope, shape) = (charge.scope.id(), charge.limit.shape());
        let [home, rest] = [scope ^ shape, scope ^ shape.rotate_left(32)];
        let home = hash_half(&self.halves[0], home, charge.key);
        let rest = hash_half(&self.halves[1], rest, charge.key);
        KeyHash { home, rest }
    }
}

#[inline]
fn hash_half((seed, shared): &(u64, SharedSeed), state: u64, key: &str) -> u64 {
    let mut hasher = FoldHasher::with_seed(seed ^ state, shared);
    hasher.write(key.as_bytes());
    hasher.finish()
}
