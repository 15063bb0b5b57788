//! The names of keys: the values that clients sent, kept only for keys that matter.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::budget::MemoryBudget;
use crate::seen_request::SeenRequest;

/// The most characters of a value that are kept.
pub const NAME_LENGTH: usize = 128;

/// While a rule has fewer names than this, every key gets one.
const FREE_NAMES: usize = 256;

/// The most memory for the names and last decisions of one rule.
const MOST_BYTES: usize = 512 << 10;

/// The memory of a name's entry in the table, without its text.
const ENTRY: usize = 2 * (size_of::<(u64, KeyWithName)>() + 1);

/// An attribute of a key, and its value as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPart {
    /// The name of the attribute.
    pub attribute: Box<str>,
    /// The value, at most [`NAME_LENGTH`] characters; of a secret one, its digest.
    pub value: Box<str>,
    /// Whether the value is a digest.
    pub is_digest: bool,
}

impl KeyPart {
    /// The same as other instances know it: a digest without the beginning of the value.
    #[must_use]
    pub fn published(&self) -> Self {
        let digits = self.value.rsplit('…').next().filter(|_| self.is_digest);
        Self {
            value: digits.map_or_else(|| self.value.clone(), Into::into),
            ..self.clone()
        }
    }

    /// An attribute with its value.
    pub fn clear(attribute: &str, value: &str) -> Self {
        Self {
            attribute: attribute.into(),
            value: cut(value).into(),
            is_digest: false,
        }
    }

    /// An attribute whose value is a secret, with a digest of it.
    pub fn digest(attribute: &str, digest: &str) -> Self {
        Self {
            is_digest: true,
            ..Self::clear(attribute, digest)
        }
    }
}

/// The first characters of a text.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(NAME_LENGTH);
    end.map_or(text, |(end, _)| &text[..end])
}

/// The name of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct KeyName(Box<[KeyPart]>);

impl KeyName {
    /// A name of these parts; none for a counter that all clients share.
    pub fn new(parts: impl IntoIterator<Item = KeyPart>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// The same as other instances know it.
    #[must_use]
    pub fn published(&self) -> Self {
        Self::new(self.0.iter().map(KeyPart::published))
    }

    /// Its parts.
    pub fn parts(&self) -> &[KeyPart] {
        &self.0
    }

    pub(crate) fn bytes(&self) -> usize {
        let part = |part: &KeyPart| size_of::<KeyPart>() + part.attribute.len() + part.value.len();
        self.0.iter().map(part).sum()
    }
}

/// A key that has a name.
#[derive(Debug)]
pub(crate) struct KeyWithName {
    pub(crate) name: KeyName,
    /// Its rule, where several rules share a tracker.
    pub(crate) rule: Option<Arc<str>>,
    /// Its last request, as far as one was noted.
    pub(crate) last: Arc<SeenRequest>,
    /// When it was last counted, in Unix seconds, as far as periods that are over say.
    pub(crate) seen: u32,
}

impl KeyWithName {
    fn bytes(&self) -> usize {
        ENTRY + self.name.bytes() + self.last.bytes()
    }
}

/// The names of keys, by their hashes.
#[derive(Debug, Default)]
pub(crate) struct KeyNames {
    names: HashMap<u64, KeyWithName, RandomState>,
    bytes: usize,
}

impl KeyNames {
    /// Whether another key may have a name without being among the largest.
    pub(crate) fn has_free(&self) -> bool {
        self.names.len() < FREE_NAMES
    }

    pub(crate) fn get(&self, hash: u64) -> Option<&KeyWithName> {
        self.names.get(&hash)
    }

    /// Stores a name with the request, unless it is known or there is no memory for it.
    pub(crate) fn store(
        &mut self,
        hash: u64,
        budget: &MemoryBudget,
        named: impl FnOnce() -> KeyWithName,
    ) {
        if self.names.contains_key(&hash) || self.bytes >= MOST_BYTES {
            return;
        }
        let named = named();
        let bytes = named.bytes();
        if budget.take(bytes) {
            self.bytes += bytes;
            self.names.insert(hash, named);
        }
    }

    /// Replaces the last request of a key that has a name, if there is memory.
    pub(crate) fn note_request(
        &mut self,
        hash: u64,
        budget: &MemoryBudget,
        request: &Arc<SeenRequest>,
    ) {
        let Some(named) = self.names.get_mut(&hash) else {
            return;
        };
        let (before, after) = (named.last.bytes(), request.bytes());
        if budget.take(after) {
            budget.give(before);
            self.bytes = self.bytes + after - before;
            named.last = Arc::clone(request);
        }
    }

    /// A key was counted at this time.
    pub(crate) fn note_seen(&mut self, hash: u64, at: u32) {
        if let Some(named) = self.names.get_mut(&hash) {
            named.seen = named.seen.max(at);
        }
    }

    /// Forgets the names of keys that are not needed any more.
    pub(crate) fn retain(
        &mut self,
        budget: &MemoryBudget,
        is_needed: impl Fn(u64, &KeyWithName) -> bool,
    ) {
        let mut freed = 0;
        self.names.retain(|hash, named| {
            let is_needed = is_needed(*hash, named);
            if !is_needed {
                freed += named.bytes();
            }
            is_needed
        });
        if self.names.len() * 4 < self.names.capacity() {
            self.names.shrink_to(self.names.len() * 2);
        }
        self.bytes -= freed;
        budget.give(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen_request::RequestTexts;

    #[test]
    fn a_value_is_cut_at_a_character() {
        let long = "ü".repeat(NAME_LENGTH + 1);
        assert_eq!(
            KeyPart::clear("a", &long).value.chars().count(),
            NAME_LENGTH
        );
        let short = "ü".repeat(NAME_LENGTH);
        assert_eq!(&*KeyPart::clear("a", &short).value, short);
    }

    fn request(path: &str) -> Arc<SeenRequest> {
        Arc::new(SeenRequest {
            at: 1,
            is_allowed: true,
            decided_by: None,
            reason: None,
            denied_for: None,
            retry_after: Some(0),
            grant_from: "limit",
            grant: "1/s".into(),
            cost: 1,
            front_end: "http",
            texts: RequestTexts::new(std::iter::empty(), [("path", path)].into_iter()),
        })
    }

    #[test]
    fn names_take_memory_until_they_are_forgotten() {
        let budget = MemoryBudget::new(1 << 20);
        let mut names = KeyNames::default();
        let given = || KeyWithName {
            name: KeyName::new([KeyPart::clear("user_id", "u1")]),
            rule: None,
            last: request("/v1/orders"),
            seen: 1,
        };
        for hash in 1..=10_000 {
            names.store(hash, &budget, given);
        }
        let stored = names.names.len();
        assert!(stored < 10_000 && budget.used() < MOST_BYTES + 1_024);
        assert!(!names.has_free());
        let before = budget.used();
        names.note_request(1, &budget, &request("/v1/orders/1"));
        assert_eq!(budget.used(), before + 2);
        let last = &names.get(1).unwrap().last;
        assert_eq!(last.texts.attribute("path"), Some("/v1/orders/1"));
        names.note_request(999_999, &budget, &request("/it-has-no-name"));
        assert_eq!(budget.used(), before + 2);
        names.note_seen(1, 9);
        assert_eq!(names.get(1).unwrap().seen, 9);
        names.retain(&budget, |hash, _| hash == 1);
        assert_eq!(names.names.len(), 1);
        names.retain(&budget, |_, _| false);
        assert_eq!((names.bytes, budget.used()), (0, 0));
    }
}
