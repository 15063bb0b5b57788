//! The ceiling: a map of a number for each key behind locks, with nothing decided.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Mutex;

use super::Contender;

const SHARDS: usize = 64;

/// The standard map of a `u64` for each key, in 64 parts with a lock each.
pub struct BareTable {
    hasher: RandomState,
    shards: Vec<Mutex<HashMap<String, u64>>>,
}

impl BareTable {
    pub fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Default for BareTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Contender for BareTable {
    fn check(&self, key: &str) -> bool {
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        let mut shard = self.shards[shard].lock().expect("no thread panics");
        match shard.get_mut(key) {
            Some(count) => *count += 1,
            None => {
                shard.insert(key.to_owned(), 1);
            }
        }
        true
    }
}
