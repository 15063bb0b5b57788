//! The messages that are read and written, with the numbers that their fields have on the wire.
//!
//! Written by hand: of Envoy's some thousand messages these few are needed. `schema/` describes the same
//! to those who ask; a test holds the two together.

pub(crate) mod health;
pub(crate) mod rate_limit;
pub(crate) mod reflection;
