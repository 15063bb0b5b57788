//! Reads JSON in pieces and reports the values at watched paths, in memory that does not depend on the input.

mod number;
mod scanner;
mod watched;

pub(crate) use number::{MAX_NUMBER, WholeNumber};
pub(crate) use scanner::{JsonScanner, JsonSink, JsonValue};
pub(crate) use watched::{NodeId, ROOT, WatchedPaths};
