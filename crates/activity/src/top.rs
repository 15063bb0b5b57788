//! The keys with the largest counts, as they are reported.

use crate::names::KeyName;

/// What keys are sorted by.
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

/// A key, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopKey {
    /// Its name.
    pub name: KeyName,
    /// How often it was denied, at least.
    pub denied: u64,
    /// The cost that was admitted for it, at least.
    pub used: u64,
    /// The least that the count it is sorted by can be.
    pub lower: u64,
    /// The most that the count it is sorted by can be.
    pub upper: u64,
    /// When it was last counted, in Unix seconds.
    pub seen: u32,
}

/// The keys of a rule with the largest counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopKeys {
    /// The largest first.
    pub keys: Vec<TopKey>,
    /// How many distinct keys were denied; of a rule without room of its own, at least so many.
    pub distinct_denied: u64,
    /// The sum of the counts of all keys.
    pub weight: u64,
    /// The error of the counts: the most that a key can have of which nothing is known.
    pub error: u64,
    /// The most that a key can have that is not among these: if there are more, the count of the smallest one here.
    pub rest: u64,
    /// Since when keys are counted, in Unix seconds: the beginning of the window, or when the rule gained or lost
    /// room of its own.
    pub from: u64,
    /// Whether the rule shares a table with others.
    pub is_shared: bool,
}
