//! Envoy's rate limit service over gRPC: frames, messages, and what they mean to the gate.
//!
//! `frame.rs` reads and writes length-prefixed messages, `question.rs` and `answer.rs` translate, the answer by
//! `write.rs`, and `metadata.rs` adds what later filters of Envoy use. The messages are in `proto/`.

mod answer;
mod frame;
mod metadata;
#[doc(hidden)]
pub mod proto;
mod question;
mod write;

pub use answer::RateLimitAnswer;
pub use frame::{LARGEST, MessageBuffer, decode, framed};
pub use question::{Parts, parts};
