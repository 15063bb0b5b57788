//! Tests of `tidegate-usage` by what is on the wire.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod properties;
mod wire;
