//! The client of a temporary override: how it is written, and what is kept of it.
//!
//! It is named by the value of the first attribute of `per`, or by those of all entries that a descriptor leaves open.

use super::digest::ValueDigest;
use super::read_override::{network_of, override_key};
use super::rule::Rule;
use super::{RuleSettings, hashed};
use crate::attributes::Attributes;
use crate::value::text_of_form;

/// The client of an override, by the first attribute of the rule's `per`. Of a descriptor limit, by the values of the
/// entries that the file leaves open; by those of the file if it leaves none open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverrideKey {
    /// The client with this value, in the form that makes keys; or the addresses of a network.
    Value(String),
    /// The client whose value has this hash: `sha256:` and 64 hexadecimal digits, as the caller gave it.
    Hash(String),
    /// The client whose value has this [digest](ValueDigest).
    Digest(String),
    /// The client with these values of several entries, in their order. None of them is several again.
    Entries(Vec<OverrideKey>),
}

impl OverrideKey {
    /// How it is written. Of several entries with a `/` between them; a `/` in a value is then `%2F`, a `%` is `%25`.
    pub fn text(&self) -> String {
        match self {
            Self::Value(value) => text_of_form(value),
            Self::Hash(text) | Self::Digest(text) => text.clone(),
            Self::Entries(keys) => {
                let texts = keys.iter().map(|key| escaped(&key.text()));
                texts.collect::<Vec<_>>().join("/")
            }
        }
    }

    /// The digest of the client, if it is known, and one value names it.
    pub fn digest(&self) -> Option<&str> {
        match self {
            Self::Value(_) | Self::Hash(_) | Self::Entries(_) => None,
            Self::Digest(digest) => Some(digest),
        }
    }

    /// Whether `text` may name this key, for a caller that does not know the rule.
    pub fn is_written(&self, text: &str) -> bool {
        match self {
            Self::Hash(hash) if *hash == hashed::hash_of(text) => true,
            Self::Digest(digest) => ValueDigest::read(text) == Some(digest.as_str()),
            Self::Entries(keys) => {
                let values = values_of(text);
                let mut both = keys.iter().zip(&values);
                keys.len() == values.len() && both.all(|(key, value)| key.is_written(value))
            }
            Self::Value(_) | Self::Hash(_) => self.text() == text,
        }
    }

    /// The keys of its values, one for each attribute that [names](Rule::overridden_by) it.
    #[doc(hidden)]
    pub fn values(&self) -> &[Self] {
        match self {
            Self::Entries(keys) => keys,
            one => std::slice::from_ref(one),
        }
    }
}

impl Rule {
    /// The attributes whose values name the client of an override: the first of `per`; of a descriptor all entries that
    /// the file leaves open.
    #[doc(hidden)]
    pub fn overridden_by(&self) -> &[String] {
        let most = if self.descriptor.is_some() {
            usize::MAX
        } else {
            1
        };
        &self.per[..self.per.len().min(most)]
    }

    /// The key of an override of this rule, as `written` by a caller. The value of a secret attribute is stored as its
    /// digest, so that guesses cannot be checked without the secret. It may also be given as tables
    /// [show](ValueDigest::shown) it, or as its hash, which is stored as given.
    pub fn override_key(
        &self,
        written: &str,
        settings: &RuleSettings,
        digest: &ValueDigest,
    ) -> Result<OverrideKey, String> {
        let values = self.override_values(written)?;
        let keys = values.iter().enumerate();
        let keys = keys.map(|(index, value)| self.override_value(index, value, settings, digest));
        Ok(self.override_of_values(keys.collect::<Result<_, _>>()?))
    }

    /// The values in a key, one for each attribute that [names](Self::overridden_by) the client. None for a descriptor
    /// that leaves no entry open.
    #[doc(hidden)]
    pub fn override_values(&self, written: &str) -> Result<Vec<String>, String> {
        let Some(descriptor) = &self.descriptor else {
            return Ok(vec![written.to_owned()]);
        };
        match &self.per[..] {
            [] => {
                let only = descriptor.fixed_text();
                if written != only {
                    return Err(format!(
                        "the descriptor leaves no entry open, so that all of its requests have one counter; write `{only}`"
                    ));
                }
                Ok(Vec::new())
            }
            [_] if written.is_empty() => Err(
                "an override needs a value; give that of the entry that is left open".to_owned(),
            ),
            [_] => Ok(vec![written.to_owned()]),
            names => {
                let values = values_of(written);
                if values.len() != names.len() {
                    return Err(format!(
                        "the descriptor leaves {} entries open; write their values with a `/` between them, as in `{}`, and a `/` in a value as `%2F`, a `%` as `%25`",
                        names.len(),
                        names.join("/").to_uppercase()
                    ));
                }
                Ok(values)
            }
        }
    }

    /// The attributes of a request that is counted for these values of a key; none if it cannot have them.
    #[doc(hidden)]
    pub fn attributes_of_override(&self, values: &[String]) -> Option<Attributes<'static>> {
        if let Some(descriptor) = &self.descriptor {
            return Some(descriptor.attributes_with(values));
        }
        let mut attributes = Attributes::new();
        let (name, value) = self.per.first().zip(values.first())?;
        attributes.insert(name.clone(), value.clone()).ok()?;
        Some(attributes)
    }

    /// The key of a value of the attribute with this index.
    #[doc(hidden)]
    pub fn override_value(
        &self,
        index: usize,
        value: &str,
        settings: &RuleSettings,
        digest: &ValueDigest,
    ) -> Result<OverrideKey, String> {
        let name = self.overridden_by().get(index);
        let is_secret = name.is_some_and(|name| settings.is_secret(name));
        if is_secret && let Some(digits) = ValueDigest::read(value) {
            return Ok(OverrideKey::Digest(digits.to_owned()));
        }
        let key = match (hashed::read(value), &self.descriptor) {
            (Some(hash), _) if is_secret => hash?,
            (Some(hash), Some(_)) => hash?,
            (None, Some(descriptor)) => descriptor.override_value(index, value)?,
            (_, None) => override_key(Some(&self.per), value, settings)?,
        };
        if hashed::is_hash(&key) {
            return Ok(OverrideKey::Hash(key));
        }
        if !is_secret {
            return Ok(OverrideKey::Value(key));
        }
        if self.is_overridden_by_address() && network_of(&key, self.ipv6_prefix).is_some() {
            return Err("`ip` is a secret attribute, so an override can be for one address and not for a network; give an address".to_owned());
        }
        Ok(OverrideKey::Digest(digest.of(&key)))
    }

    /// The key with these values.
    #[doc(hidden)]
    pub fn override_of_values(&self, mut keys: Vec<OverrideKey>) -> OverrideKey {
        match (&self.descriptor, keys.len()) {
            (_, 1) => keys.remove(0),
            (Some(descriptor), 0) => OverrideKey::Value(descriptor.fixed_text()),
            _ => OverrideKey::Entries(keys),
        }
    }

    /// Whether an override can be for a network. Entries of descriptors are texts.
    pub(super) fn is_overridden_by_address(&self) -> bool {
        self.descriptor.is_none() && self.per.first().is_some_and(|name| name == "ip")
    }
}

/// The values in a text that several entries make.
fn values_of(text: &str) -> Vec<String> {
    let value = |part: &str| {
        let part = part.replace("%2F", "/").replace("%2f", "/");
        part.replace("%25", "%")
    };
    text.split('/').map(value).collect()
}

fn escaped(value: &str) -> String {
    value.replace('%', "%25").replace('/', "%2F")
}
