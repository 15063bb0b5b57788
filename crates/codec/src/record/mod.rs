//! Recordings: the decisions of a server as JSON lines, in ASCII, from which they can be made again.
//!
//! `header.rs` has the first line of each file, `line.rs` that of a decision, `attributes.rs` what is recorded of a
//! request: what the rules read, and secret values as digests; `query.rs` leaves queries out of the URLs of logs.

mod attributes;
mod header;
mod line;
mod query;
#[cfg(test)]
mod tests;
mod text;

pub use attributes::RecordedAttributes;
pub use header::RecordHeader;
pub use line::{decided_at, is_recorded, write_decision, write_lost, write_rules_version};
pub use query::without_queries;

/// The longest line: readers refuse longer ones.
pub const LONGEST_LINE: usize = 1 << 20;
