//! Known answers: decisions that established rate limiters document or test, replayed on any store.
//!
//! [`replay_all`] plays every line of `vectors/known.jsonl` that applies to a store. What does not
//! apply is in [`NOT_REPLAYED`] with the reason. A field that is neither checked nor listed fails
//! the replay, and so does one that is listed although it agrees.

mod found;
mod known;
mod mismatch;
mod not_replayed;
mod player;
mod properties;
mod replay;

pub use known::{Count, Operation, TEXT, UsedBefore, Vector, VectorStep, all};
pub use mismatch::Mismatch;
pub use not_replayed::{NOT_REPLAYED, NotReplayed};
pub use replay::{Replayed, in_flight_together, replay, replay_all};
pub use serde_json::Value;
