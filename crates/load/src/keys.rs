//! Which key a request has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Zipf};

use crate::error::LoadRunError;

/// How requests are spread over keys, which are numbered from zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeySpread {
    /// How many keys there are.
    pub(crate) keys: u64,
    /// The exponent of Zipf's law, if the keys follow it.
    pub(crate) exponent: Option<f64>,
    /// Whether keys come one after the other.
    pub(crate) is_in_order: bool,
}

impl KeySpread {
    /// Each of `keys` keys is equally likely.
    pub fn uniform(keys: u64) -> Result<Self, LoadRunError> {
        if keys == 0 {
            return Err(LoadRunError::Invalid(
                "there must be at least one key".into(),
            ));
        }
        Ok(Self {
            keys,
            exponent: None,
            is_in_order: false,
        })
    }

    /// The probability of the n-th of `keys` keys is proportional to `1 / n^exponent`: key 0 is the busiest.
    pub fn zipf(keys: u64, exponent: f64) -> Result<Self, LoadRunError> {
        if !exponent.is_finite() || exponent <= 0.0 || exponent > 10.0 {
            let problem = format!("the exponent `{exponent}` must be above 0 and at most 10");
            return Err(LoadRunError::Invalid(problem));
        }
        Ok(Self {
            exponent: Some(exponent),
            ..Self::uniform(keys)?
        })
    }

    /// One key after the other, then again from the first: `keys` requests have as many different keys.
    pub fn in_order(keys: u64) -> Result<Self, LoadRunError> {
        Ok(Self {
            is_in_order: true,
            ..Self::uniform(keys)?
        })
    }

    /// Where the streams of one run draw their keys from.
    pub(crate) fn source(self) -> KeySource {
        KeySource {
            spread: self,
            next: Arc::default(),
        }
    }
}

/// The keys of one run. Its streams share the next key if keys come in order.
pub(crate) struct KeySource {
    spread: KeySpread,
    next: Arc<AtomicU64>,
}

impl KeySource {
    /// Draws keys; another stream for each seed.
    pub(crate) fn stream(&self, seed: u64) -> KeyStream {
        let KeySpread {
            keys,
            exponent,
            is_in_order,
        } = self.spread;
        // `zipf` has validated the exponent; a number of keys above 2^53 is rounded.
        #[expect(clippy::cast_precision_loss, reason = "keys are drawn, not counted")]
        let zipf = exponent.and_then(|exponent| Zipf::new(keys as f64, exponent).ok());
        KeyStream {
            keys,
            zipf,
            in_order: is_in_order.then(|| Arc::clone(&self.next)),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }
}

/// An endless stream of keys.
pub(crate) struct KeyStream {
    keys: u64,
    zipf: Option<Zipf<f64>>,
    in_order: Option<Arc<AtomicU64>>,
    random: Xoshiro256PlusPlus,
}

impl KeyStream {
    pub(crate) fn next(&mut self) -> u64 {
        if let Some(next) = &self.in_order {
            return next.fetch_add(1, Ordering::Relaxed) % self.keys;
        }
        match &self.zipf {
            None => self.random.random_range(0..self.keys),
            Some(zipf) => {
                let rank = zipf.sample(&mut self.random);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a rank is a whole number from 1 to the number of keys"
                )]
                let rank = rank as u64;
                (rank.max(1) - 1).min(self.keys - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(spread: KeySpread) -> Vec<u64> {
        let mut counts = vec![0; 10];
        let mut stream = spread.source().stream(7);
        for _ in 0..100_000 {
            counts[usize::try_from(stream.next()).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn uniform_keys_come_alike() {
        for count in counts(KeySpread::uniform(10).unwrap()) {
            assert!((9_500..10_500).contains(&count), "{count}");
        }
    }

    #[test]
    fn zipf_keys_come_by_their_rank() {
        // 1 + 1/2 + … + 1/10 = 2.929: the first key has 34.1 %, the second half as many.
        let counts = counts(KeySpread::zipf(10, 1.0).unwrap());
        assert!((33_500..34_800).contains(&counts[0]), "{counts:?}");
        assert!((16_500..17_600).contains(&counts[1]), "{counts:?}");
        assert!((3_100..3_750).contains(&counts[9]), "{counts:?}");
    }

    #[test]
    fn a_seed_gives_the_same_keys_again_and_another_one_others() {
        let spread = KeySpread::zipf(1_000, 1.1).unwrap();
        let draw = |seed| {
            let mut stream = spread.source().stream(seed);
            (0..100).map(|_| stream.next()).collect::<Vec<u64>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn keys_in_order_come_once_before_any_comes_again() {
        let source = KeySpread::in_order(4).unwrap().source();
        let mut streams = [source.stream(1), source.stream(2)];
        let drawn: Vec<u64> = (0..6).map(|turn| streams[turn % 2].next()).collect();
        assert_eq!(drawn, [0, 1, 2, 3, 0, 1]);
    }

    #[test]
    fn keys_that_cannot_be_drawn_are_refused() {
        assert!(KeySpread::uniform(0).is_err());
        assert!(KeySpread::in_order(0).is_err());
        assert!(KeySpread::zipf(0, 1.0).is_err());
        for exponent in [0.0, -1.0, f64::NAN, f64::INFINITY, 11.0] {
            assert!(KeySpread::zipf(10, exponent).is_err(), "{exponent}");
        }
    }
}
