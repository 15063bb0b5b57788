//! From a key to its hash.

use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

use super::slot::KeyHash;
use crate::limit::{Algorithm, Anchor, Limit, Rate};
use crate::store::{Charge, Scope};
use crate::time::Micros;

/// Hashes keys to 128 bits under a secret of its own, so that no client can choose two keys
/// that collide.
pub(super) struct KeyHasher {
    halves: [(u64, SharedSeed); 2],
    secret: HashSecret,
}

/// The seed of a hasher. Two hashers with the same secret hash alike.
pub(super) type HashSecret = [u64; 4];

/// A new secret, from the operating system.
#[cfg(all(feature = "system-clock", feature = "random-permits"))]
pub(super) fn random_secret() -> HashSecret {
    std::array::from_fn(|_| crate::permit::random_word())
}

/// The secret that a caller brought.
pub(super) fn secret_from_bytes(bytes: [u8; 32]) -> HashSecret {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|index| u64::from_le_bytes(words[index]))
}

impl KeyHasher {
    /// The hasher with this secret.
    pub(super) fn new(secret: HashSecret) -> Self {
        let [first, first_shared, second, second_shared] = secret;
        Self {
            halves: [
                (first, SharedSeed::from_u64(first_shared)),
                (second, SharedSeed::from_u64(second_shared)),
            ],
            secret,
        }
    }

    pub(super) fn secret(&self) -> HashSecret {
        self.secret
    }

    /// Differs, under the same secret, between programs that hash keys differently: by another hash function, other
    /// scopes or other shapes. States kept by such a program would not be found.
    pub(super) fn fingerprint(&self) -> u64 {
        let rate = Rate::new(1, Micros::MINUTE);
        let algorithms = [
            Algorithm::TOKEN_BUCKET,
            Algorithm::LEAKY_BUCKET,
            Algorithm::FIXED_WINDOW,
            Algorithm::FixedWindow {
                anchor: Anchor::FirstRequest,
            },
            Algorithm::SlidingWindowLog,
            Algorithm::SlidingWindowCounter,
            Algorithm::SLIDING_WINDOW_SLOTS,
        ];
        let limits = algorithms.map(|algorithm| Limit::new(rate, algorithm));
        let others = [
            "1/month".parse(),
            "1/year".parse(),
            Limit::concurrent(1),
            Limit::portable_bucket(1, Micros::MINUTE, 1),
        ];
        let scope = Scope::new("fingerprint");
        let limits = limits.into_iter().chain(others);
        limits.flatten().fold(0, |fingerprint: u64, limit| {
            let hash = self.hash(&Charge {
                scope: &scope,
                limit: &limit,
                key: "a key of more than sixteen bytes",
                cost: 0,
            });
            fingerprint.rotate_left(9) ^ hash.home ^ hash.rest.rotate_left(32)
        })
    }

    #[inline]
    pub(super) fn hash(&self, charge: &Charge<'_>) -> KeyHash {
        // Scope and shape are hashes themselves, so they can go into the seed. Each half rotates them differently, so
        // that pairs that collide in one half do not collide in the other.
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

#[cfg(all(test, target_pointer_width = "64", target_endian = "little"))]
mod tests {
    use super::*;

    /// If this fails, keys are hashed differently than before: servers do not find the counters that they
    /// kept, and set their snapshot aside. Avoid it, or say so among the changes.
    #[test]
    fn keys_are_hashed_as_in_kept_snapshots() {
        let fingerprint = KeyHasher::new([1, 2, 3, 4]).fingerprint();
        assert_eq!(fingerprint, 13_110_542_392_785_066_140);
    }

    #[test]
    fn every_byte_of_a_secret_counts() {
        let bytes = std::array::from_fn(|index| u8::try_from(index).unwrap());
        let secret = secret_from_bytes(bytes);
        assert_eq!(secret[0], 0x0706_0504_0302_0100);
        assert_eq!(secret[3], 0x1f1e_1d1c_1b1a_1918);
    }

    #[test]
    fn the_secret_is_all_that_a_hasher_is_made_from() {
        let hasher = KeyHasher::new(random_secret());
        let same = KeyHasher::new(hasher.secret());
        assert_eq!(same.fingerprint(), hasher.fingerprint());
        assert_ne!(
            KeyHasher::new(random_secret()).fingerprint(),
            hasher.fingerprint()
        );
    }
}
