//! Logs as users have them: how lines are read, and what the rules decide on them.

#![expect(
    clippy::unwrap_used,
    clippy::format_push_string,
    clippy::format_collect,
    reason = "a test may"
)]

mod candidates;
mod costs;
mod equality;
mod formats;
mod order;
mod recordings;
mod reports;
mod suggestions;
mod support;
