//! Values that rules name, and their hashes: a recording has the hash in place of a secret value that the rules name, so
//! that overrides still match.

use std::collections::HashMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tidegate::printable::hexadecimal;
use tidegate::rules::{RuleSet, RuleSettings};

/// What the hash of a value begins with.
const HASH: &str = "sha256:";

/// The hash of a value, or the value if it is one already.
pub(crate) fn hash_of(value: &str) -> String {
    if value.starts_with(HASH) {
        return value.to_owned();
    }
    format!("{HASH}{}", hexadecimal(&Sha256::digest(value)))
}

/// Every text of rules, as any of them may be a value of an attribute.
#[derive(Debug, Clone, Default)]
pub(crate) struct NamedValues {
    settings: RuleSettings,
    by_hash: HashMap<String, String>,
}

impl NamedValues {
    pub(crate) fn of(sets: &[&RuleSet], settings: &RuleSettings) -> Self {
        let mut named = Self {
            settings: settings.clone(),
            ..Self::default()
        };
        for rules in sets {
            named.add_all(&rules.written());
        }
        named
    }

    fn add_all(&mut self, written: &Value) {
        match written {
            Value::String(text) => self.add(text),
            Value::Array(list) => list.iter().for_each(|item| self.add_all(item)),
            Value::Object(map) => {
                for (key, item) in map {
                    self.add(key);
                    self.add_all(item);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, text: &str) {
        self.by_hash.insert(hash_of(text), text.to_owned());
    }

    /// The secret value of an attribute that has this hash, if the rules name it.
    pub(crate) fn value(&self, name: &str, hash: &[u8]) -> Option<&str> {
        if !hash.starts_with(HASH.as_bytes()) || !self.settings.is_secret(name) {
            return None;
        }
        let hash = std::str::from_utf8(hash).ok()?;
        self.by_hash.get(hash).map(String::as_str)
    }
}
