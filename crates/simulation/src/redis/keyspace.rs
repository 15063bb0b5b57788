//! The keys of the simulated server, their values and when they expire.

use std::collections::{BTreeMap, HashMap};

use super::sorted::SortedSet;

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum StoredValue {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Sorted(SortedSet),
}

impl StoredValue {
    /// The name of its type.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::Sorted(_) => "zset",
        }
    }

    /// Whether nothing is left in it, so that the key goes.
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(fields) => fields.is_empty(),
            Self::Sorted(members) => members.len() == 0,
        }
    }
}

#[derive(Debug, Clone)]
struct KeyEntry {
    value: StoredValue,
    /// The millisecond after which it is gone.
    expires_at: Option<u64>,
}

/// When the end of a key is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpiryCondition {
    /// Always.
    None,
    /// If it is later than before: `GT`.
    Later,
    /// If there was none: `NX`.
    First,
}

/// All keys. Nothing iterates over them, so their order does not matter.
#[derive(Debug, Default)]
pub(crate) struct Keyspace {
    keys: HashMap<Vec<u8>, KeyEntry>,
    /// The current millisecond.
    pub(crate) now: u64,
}

impl Keyspace {
    /// The value of a key that has not expired.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&mut StoredValue> {
        let entry = self.keys.get(key)?;
        if entry.expires_at.is_some_and(|end| self.now > end) {
            self.keys.remove(key);
            return None;
        }
        self.keys.get_mut(key).map(|entry| &mut entry.value)
    }

    /// The value of a key; if there is none, a new one without an end.
    pub(crate) fn get_or(
        &mut self,
        key: &[u8],
        new: impl FnOnce() -> StoredValue,
    ) -> &mut StoredValue {
        self.get(key);
        let entry = self.keys.entry(key.to_vec());
        let entry = entry.or_insert_with(|| KeyEntry {
            value: new(),
            expires_at: None,
        });
        &mut entry.value
    }

    pub(crate) fn set(&mut self, key: &[u8], value: StoredValue, expires_at: Option<u64>) {
        self.keys
            .insert(key.to_vec(), KeyEntry { value, expires_at });
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.get(key).is_some() && self.keys.remove(key).is_some()
    }

    /// Sets the end of a key, if it exists and the condition holds.
    pub(crate) fn expire(&mut self, key: &[u8], at: u64, condition: ExpiryCondition) -> bool {
        if self.get(key).is_none() {
            return false;
        }
        let Some(entry) = self.keys.get_mut(key) else {
            return false;
        };
        let is_set = match condition {
            ExpiryCondition::None => true,
            // A key without an end never ends, and nothing is later than that.
            ExpiryCondition::Later => entry.expires_at.is_some_and(|end| at > end),
            ExpiryCondition::First => entry.expires_at.is_none(),
        };
        if !is_set {
            return false;
        }
        entry.expires_at = Some(at);
        true
    }

    /// Removes a key whose value has become empty.
    pub(crate) fn tidy(&mut self, key: &[u8]) {
        if self
            .keys
            .get(key)
            .is_some_and(|entry| entry.value.is_empty())
        {
            self.keys.remove(key);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    /// How many keys have not expired.
    pub(crate) fn len(&self) -> usize {
        let is_live = |entry: &&KeyEntry| entry.expires_at.is_none_or(|end| self.now <= end);
        self.keys.values().filter(is_live).count()
    }
}
