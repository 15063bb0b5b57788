//! What the benchmarks share: the limiters side by side, and streams of keys.

pub mod contenders;
pub mod keys;
