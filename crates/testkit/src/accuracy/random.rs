//! Numbers that follow from a seed.

/// splitmix64: the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct ArrivalRandom(u64);

impl ArrivalRandom {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `end`, which is excluded.
    pub fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.word()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// Above 0, and at most 1.
    pub fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let unit = ((self.word() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        unit
    }
}
