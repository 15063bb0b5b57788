//! The keys with the largest counts, as they are reported.

use std::sync::Arc;

use crate::distinct_sketch::DistinctSketch;
use crate::names::KeyName;
use crate::seen_request::SeenRequest;

/// The count by which keys are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySort {
    /// How often they were denied.
    Denied,
    /// The cost that was admitted for them.
    Used,
}

/// How far back counts go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyWindow {
    /// The last minute, in steps of 10 seconds.
    Minute,
    /// The last hour, in steps of 5 minutes.
    Hour,
}

/// A key and its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopKey {
    /// Its name.
    pub name: KeyName,
    /// Its last request on this instance.
    pub last: Option<Arc<SeenRequest>>,
    /// How often it was denied, at least.
    pub denied: u64,
    /// The cost that was admitted for it, at least.
    pub used: u64,
    /// Lower bound of the count that it is sorted by.
    pub lower: u64,
    /// Upper bound of the count that it is sorted by.
    pub upper: u64,
    /// When it was last counted, in Unix seconds.
    pub seen: u32,
}

/// The keys of a rule with the largest counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopKeys {
    /// The largest first.
    pub keys: Vec<TopKey>,
    /// The distinct keys that were denied; for a rule without room of its own, at least so many.
    pub distinct_denied: DistinctSketch,
    /// The sum of the counts of all keys.
    pub weight: u64,
    /// The error of the counts: upper bound of the count of an unknown key.
    pub error: u64,
    /// Upper bound of the count of any key that is not listed here. If keys were cut off, the smallest listed count.
    pub rest: u64,
    /// Since when keys are counted, in Unix seconds: the beginning of the window, or when the rule gained or lost
    /// room of its own.
    pub from: u64,
    /// Whether the rule shares a table with others.
    pub is_shared: bool,
}
