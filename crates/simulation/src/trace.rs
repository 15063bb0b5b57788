//! A fingerprint of everything that happened, to compare two runs.

/// A hash of a sequence of numbers: FNV-1a, by words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceHash(u64);

impl TraceHash {
    pub(crate) fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    pub(crate) fn add(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.0 = (self.0 ^ number).wrapping_mul(0x0000_0100_0000_01B3);
            self.0 ^= self.0 >> 29;
        }
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }
}
