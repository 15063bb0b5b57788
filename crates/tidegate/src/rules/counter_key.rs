//! Which counter of a rule a request is charged on: the values of `per`, as one name.

use std::borrow::Cow;
use std::net::IpAddr;

use smallvec::SmallVec;

use super::hashed::HashedOverrides;
use super::rule::{Missing, Rule};
use crate::address;
use crate::attributes::Attributes;

/// Why a rule does or does not apply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CounterKey<'a> {
    /// It applies, on the state with this name.
    Known(Cow<'a, str>),
    /// It applies and denies, because the identity is missing.
    Denied,
    /// It does not apply, because the identity is missing.
    Skipped,
}

/// Which attributes of a rule's `per` a request lacks, a bit for each of the first 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MissingNames(u64);

impl MissingNames {
    /// Their names, in the order of `per`.
    pub(crate) fn of(self, rule: &Rule) -> impl Iterator<Item = &str> {
        let numbered = (0..64).zip(&rule.per);
        let missing = numbered.filter(move |(number, _)| self.0 & 1 << number != 0);
        missing.map(|(_, name)| name.as_str())
    }
}

impl Rule {
    /// All that is known of a request, as one name.
    pub(crate) fn whole_key(attributes: &Attributes<'_>) -> String {
        let texts = attributes.iter().flat_map(|(name, value)| [name, value]);
        let texts: SmallVec<[Cow<'_, str>; 8]> = texts.map(Cow::Borrowed).collect();
        joined(&texts)
    }

    /// Which state a request is charged on.
    pub(crate) fn key<'a>(&self, attributes: &'a Attributes<'_>) -> CounterKey<'a> {
        if let Some(descriptor) = &self.descriptor {
            return descriptor.key(attributes);
        }
        let mut values: SmallVec<[Cow<'a, str>; 4]> = SmallVec::new();
        for name in &self.per {
            let Some(value) = self.value_of(name, attributes) else {
                return match self.missing {
                    Missing::Skip => CounterKey::Skipped,
                    // No value is empty, so no client can name this counter.
                    Missing::Share => CounterKey::Known(Cow::Borrowed("")),
                    Missing::Deny => CounterKey::Denied,
                };
            };
            values.push(value);
        }
        if values.len() > 1 {
            return CounterKey::Known(Cow::Owned(joined(&values)));
        }
        CounterKey::Known(values.pop().unwrap_or(Cow::Borrowed("")))
    }

    /// Which attributes of `per` a request lacks.
    #[cold]
    pub(crate) fn missing_of(&self, attributes: &Attributes<'_>) -> MissingNames {
        let numbered = (0..64).zip(&self.per);
        let missing = numbered.filter(|(_, name)| self.value_of(name, attributes).is_none());
        MissingNames(missing.fold(0, |bits, (number, _)| bits | 1 << number))
    }

    /// The attributes and values that name the counter of a request, in the form in which they are
    /// counted; empty for a counter that all clients share, and if the request has no counter here. Of a
    /// descriptor, its entries.
    pub fn key_values<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
    ) -> Vec<(&'a str, Cow<'a, str>)> {
        if let Some(descriptor) = &self.descriptor {
            return descriptor.key_values(attributes);
        }
        let value = |name: &'a String| Some((name.as_str(), self.value_of(name, attributes)?));
        let values: Option<Vec<_>> = self.per.iter().map(value).collect();
        values.unwrap_or_default()
    }

    /// The values that name the counter of a request, as one text; none if it has no counter here.
    pub fn key_text<'a>(&self, attributes: &'a Attributes<'_>) -> Option<Cow<'a, str>> {
        if let Some(descriptor) = &self.descriptor {
            return descriptor.open_key(attributes);
        }
        match self.key(attributes) {
            CounterKey::Known(key) => Some(key),
            CounterKey::Denied | CounterKey::Skipped => None,
        }
    }

    /// The value of the first attribute of `per`.
    pub(super) fn first_value<'a>(&self, attributes: &'a Attributes<'_>) -> Option<Cow<'a, str>> {
        self.value_of(self.per.first()?, attributes)
    }

    fn value_of<'a>(&self, name: &str, attributes: &'a Attributes<'_>) -> Option<Cow<'a, str>> {
        if name == "ip" {
            return match attributes.ip() {
                Some(ip @ IpAddr::V6(_)) => {
                    Some(Cow::Owned(address::key_of(ip, self.ipv6_prefix).0))
                }
                Some(IpAddr::V4(_)) => attributes.get(name).map(Cow::Borrowed),
                // A recording may have the digest of a secret address.
                None if self.hashed_overrides == HashedOverrides::Recorded => {
                    attributes.get(name).map(Cow::Borrowed)
                }
                None => None,
            };
        }
        attributes.get(name).map(Cow::Borrowed)
    }
}

impl Rule {
    /// The attributes of `per` that a request lacks.
    #[doc(hidden)]
    pub fn lacking<'a>(&'a self, attributes: &Attributes<'_>) -> impl Iterator<Item = &'a str> {
        self.missing_of(attributes).of(self)
    }

    /// The attributes and values that a [key](Self::key) was made of. None of a counter that clients share, and of a
    /// descriptor's.
    #[doc(hidden)]
    pub fn values_of_key<'a>(&'a self, key: &'a str) -> Vec<(&'a str, &'a str)> {
        let names = self.per.iter().map(String::as_str);
        match self.per.len() {
            _ if key.is_empty() || self.descriptor.is_some() => Vec::new(),
            1 => names.zip([key]).collect(),
            _ => names.zip(split(key)).collect(),
        }
    }
}

/// The values that were [joined](joined) to this name.
fn split(mut key: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (length, rest) = key.split_once(':')?;
        let (value, rest) = rest.split_at_checked(length.parse().ok()?)?;
        key = rest;
        Some(value)
    })
}

/// Several values as one name: with their lengths, so that no choice of values makes two alike.
pub(super) fn joined(values: &[Cow<'_, str>]) -> String {
    let length = values.iter().map(|value| value.len() + 6).sum();
    let mut key = String::with_capacity(length);
    for value in values {
        key.push_str(&value.len().to_string());
        key.push(':');
        key.push_str(value);
    }
    key
}
