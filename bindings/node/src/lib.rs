//! The WebAssembly of the npm package `tidegate`: limits, decisions and counters of `tidegate-core`, called from
//! JavaScript.
//!
//! | | |
//! | --- | --- |
//! | `exports` | the functions that JavaScript calls: numbers in, numbers out |
//! | `buffers` | where texts and numbers are exchanged |
//! | `memory_limiter` | limits over a store in memory |
//! | `redis_limiter` | limits over Redis, as commands to send and replies to read; `given_reply` |
//! | `given_limits` | limits as they are given |
//! | `described` | the headers of a decision |
//!
//! It reads no clock and asks for no random numbers: each call brings the time, and the first the secret of the hash.

mod buffers;
mod described;
mod exports;
mod given_limits;
mod given_reply;
mod memory_limiter;
mod numbered;
mod redis_limiter;
