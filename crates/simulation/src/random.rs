//! Random numbers from a seed: the same seed gives the same numbers on every machine.

/// A source of random numbers: `SplitMix64`.
#[derive(Debug, Clone)]
pub struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// The source with this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Another source, with a seed from this one.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self::new(self.next())
    }

    /// The next 64 bits.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, and is not used as an iterator"
    )]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, or zero if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// Whether something happens that does so `parts` times in a thousand.
    pub fn happens(&mut self, parts: u64) -> bool {
        self.below(1_000) < parts
    }

    /// One of the choices, of which there is at least one.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = self.below(choices.len() as u64);
        choices[usize::try_from(index).unwrap_or(0)]
    }

    /// A number from 0 to 1.
    pub fn chance(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a fraction is wanted")]
        let fraction = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_algorithm() {
        let mut random = SeededRandom::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn ranges_are_kept_to() {
        let mut random = SeededRandom::new(1);
        for _ in 0..1_000 {
            assert!(random.below(3) < 3);
            assert!((5..=7).contains(&random.between(5, 7)));
            assert!((0.0..1.0).contains(&random.chance()));
            assert!(!random.happens(0) && random.happens(1_000));
        }
    }
}
