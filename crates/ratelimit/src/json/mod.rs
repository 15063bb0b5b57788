//! Calls of Envoy and their answers in the JSON form of protocol buffers, for `/json`.
//!
//! `read.rs` reads a call; `number.rs` numbers, which may also be texts; `write.rs` writes an answer.

mod number;
mod read;
mod write;

pub use read::{JsonCallError, read};
pub use write::write;
