//! Envoy's rate limit service over gRPC: frames, messages, and their translation for the gate.
//!
//! `frame.rs` reads and writes length-prefixed messages, `call.rs` reads a call, `question.rs` and `answer.rs`
//! translate, `write.rs` writes the answer, `answer_settings.rs` says what it has besides the decision, and `metadata.rs`
//! adds metadata for later filters of Envoy. The messages are in `proto/`.

mod answer;
mod answer_settings;
mod call;
mod frame;
mod metadata;
#[doc(hidden)]
pub mod proto;
mod question;
mod write;

pub use answer::RateLimitAnswer;
pub use answer_settings::{AnswerSettings, EnvoyHeaders, MetadataCalls};
pub use call::RateLimitCall;
pub use frame::{LARGEST, MessageBuffer, decode, framed};
pub use question::{Parts, add_parts, parts};
