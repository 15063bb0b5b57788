//! Numbers that differ from run to run, for tests that choose moments.

use std::hash::{BuildHasher as _, RandomState};

/// A row of numbers that differ from run to run. Its seed is printed, and shown if the test fails.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new() -> Self {
        let state = RandomState::new().hash_one("seed");
        println!("seed {state:#018x}");
        Self { state }
    }

    /// The next one, below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
