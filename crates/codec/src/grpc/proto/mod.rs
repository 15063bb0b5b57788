//! The messages, with their field numbers.
//!
//! Written by hand: of Envoy's thousand messages only these are needed, and values from clients are read as
//! bytes, because one that is not UTF-8 must not fail the call. `schema.rs` serves the same messages to
//! reflection; a test there compares the two.

pub mod health;
pub mod rate_limit;
pub mod rate_limit_config;
pub mod reflection;
