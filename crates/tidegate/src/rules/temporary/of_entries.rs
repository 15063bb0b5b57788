//! Temporary grants of clients that several entries of a descriptor name.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use tidegate_core::Timestamp;

use super::TemporaryGrant;
use crate::rules::counter_key::joined;
use crate::rules::digest::ValueDigest;
use crate::rules::hashed;
use crate::rules::override_key::OverrideKey;

/// The grants, apart by what is known of the values.
#[derive(Debug, Default)]
pub(super) struct GrantsOfEntries(Vec<KnownEntries>);

/// Grants of clients of whose values the same is known.
#[derive(Debug)]
struct KnownEntries {
    known: Vec<KnownAs>,
    grants: HashMap<String, TemporaryGrant, RandomState>,
}

/// What is known of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownAs {
    Value,
    Hash,
    Digest,
}

impl GrantsOfEntries {
    pub(super) fn add(&mut self, keys: &[OverrideKey], grant: TemporaryGrant) {
        let mut known = Vec::with_capacity(keys.len());
        let mut texts = Vec::with_capacity(keys.len());
        for key in keys {
            let (as_what, text) = match key {
                OverrideKey::Value(text) => (KnownAs::Value, text),
                OverrideKey::Hash(text) => (KnownAs::Hash, text),
                OverrideKey::Digest(text) => (KnownAs::Digest, text),
                OverrideKey::Entries(_) => return,
            };
            known.push(as_what);
            texts.push(Cow::Borrowed(text.as_str()));
        }
        let text = joined(&texts);
        match self.0.iter_mut().find(|entries| entries.known == known) {
            Some(entries) => drop(entries.grants.insert(text, grant)),
            None => self.0.push(KnownEntries {
                known,
                grants: HashMap::from_iter([(text, grant)]),
            }),
        }
    }

    /// The index of the grant for a client with these values. Of several the newest wins.
    pub(super) fn find(
        &self,
        values: &[Cow<'_, str>],
        digest: Option<&ValueDigest>,
        now: Timestamp,
    ) -> Option<usize> {
        let found = self.0.iter().filter_map(|entries| {
            if entries.known.len() != values.len() {
                return None;
            }
            let texts = entries.known.iter().zip(values);
            let texts = texts.map(|(known, value)| known.text(value, digest));
            let texts: Option<Vec<Cow<'_, str>>> = texts.collect();
            entries.grants.get(&joined(&texts?))?.at(now)
        });
        found.max()
    }
}

impl KnownAs {
    fn text<'v>(self, value: &'v str, digest: Option<&ValueDigest>) -> Option<Cow<'v, str>> {
        Some(match self {
            Self::Value => Cow::Borrowed(value),
            Self::Hash => Cow::Owned(hashed::hash_of(value)),
            Self::Digest => Cow::Owned(digest?.of(value)),
        })
    }
}
