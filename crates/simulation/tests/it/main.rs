//! Seeds, and the simulation itself: it repeats, finds planted bugs, and its Redis is like a real one.

mod like_redis;
mod planted;
mod repeated;
mod reservations;
mod retries;
mod seeds;
