//! JSON: the bodies of checks and resets, and the answers.

pub mod answer;
pub mod number;
mod parse;
mod plain;
pub mod question;

pub use parse::{parse, parse_part};
/// For the fuzzers, which compare it with the complete parser.
#[doc(hidden)]
pub use plain::read as read_plain;
