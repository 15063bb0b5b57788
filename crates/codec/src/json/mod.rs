//! JSON: the bodies of checks, reservations, resets and explanations, and the answers.

pub mod answer;
mod costs;
pub mod explain;
pub mod number;
mod parse;
mod plain;
pub mod question;
pub mod reservation;

pub use parse::{parse, parse_part};

/// For the fuzzers, which compare it with the complete parser.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn read_plain(body: &[u8]) -> Option<tidegate::Attributes<'_>> {
    let mut attributes = tidegate::Attributes::new();
    plain::read(body, &mut attributes).map(|()| attributes)
}
