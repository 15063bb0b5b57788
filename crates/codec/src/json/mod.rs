//! JSON: the bodies of checks and resets, and the answers.

pub mod answer;
pub mod number;
mod parse;
mod plain;
pub mod question;

pub use parse::{parse, parse_part};
