//! Seeds, and the simulation itself: it repeats, finds planted bugs, and its Redis is like a real one.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod like_redis;
mod planted;
mod repeated;
mod seeds;
