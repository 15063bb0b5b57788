//! Tests of `tidegate-usage` by what is on the wire.

mod properties;
mod wire;
