//! A request as it is kept by the decision: in few bytes, with values in clear, and quick to make. What may be shown of
//! it is made when it is asked for.

use std::sync::Arc;

use crate::names::KeyName;

/// A request, and what was decided about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRequest {
    /// The time of the decision, in microseconds since 1970.
    pub at: u64,
    /// Whether the request was allowed.
    pub is_allowed: bool,
    /// The rule that decided, if another than the one that keeps the request.
    pub decided_by: Option<Box<str>>,
    /// Why the request was denied, if it was.
    pub reason: Option<&'static str>,
    /// Why the rule that keeps it denied it, if it did.
    pub denied_for: Option<&'static str>,
    /// After how many microseconds it would have been allowed. `None` if waiting does not help.
    pub retry_after: Option<u64>,
    /// Where the grant of the rule comes from: `limit`, `tier`, `override` or `temporary`.
    pub grant_from: &'static str,
    /// What the rule grants to the client.
    pub grant: Arc<str>,
    /// What the request cost.
    pub cost: u64,
    /// Who asked.
    pub front_end: &'static str,
    /// The client's key, and the attributes of the request that rules read.
    pub texts: RequestTexts,
}

impl SeenRequest {
    pub(crate) fn bytes(&self) -> usize {
        let rule = self.decided_by.as_ref().map_or(0, |rule| rule.len());
        // With the counts of references, and without the grant, which requests share.
        size_of::<Self>() + 16 + rule + self.texts.bytes.len()
    }
}

/// The names and values of a key, and those of attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestTexts {
    /// The lengths of name and value, the name, and the value; of each pair, those of the key first.
    bytes: Vec<u8>,
    /// How many pairs are of the key.
    keys: usize,
}

/// The bytes of the lengths of a pair.
const LENGTHS: usize = 4;

impl RequestTexts {
    /// These pairs of the key, and these attributes. Pairs beyond 64 KiB are left out.
    pub fn new<'t>(
        key: impl Iterator<Item = (&'t str, &'t str)> + Clone,
        attributes: impl Iterator<Item = (&'t str, &'t str)> + Clone,
    ) -> Self {
        let length = |(name, value): (&str, &str)| LENGTHS + name.len() + value.len();
        let all = key.clone().chain(attributes.clone());
        let mut texts = Self {
            bytes: Vec::with_capacity(all.map(length).sum()),
            keys: 0,
        };
        for pair in key {
            texts.keys += usize::from(texts.push(pair));
        }
        for pair in attributes {
            texts.push(pair);
        }
        texts
    }

    fn push(&mut self, (name, value): (&str, &str)) -> bool {
        let (Ok(name_length), Ok(value_length)) =
            (u16::try_from(name.len()), u16::try_from(value.len()))
        else {
            return false;
        };
        let ([a, b], [c, d]) = (name_length.to_le_bytes(), value_length.to_le_bytes());
        self.bytes.extend_from_slice(&[a, b, c, d]);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
        true
    }

    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let ([a, b, c, d], after) = rest.split_first_chunk()?;
            let name_length = usize::from(u16::from_le_bytes([*a, *b]));
            let value_length = usize::from(u16::from_le_bytes([*c, *d]));
            let (name, after) = after.split_at_checked(name_length)?;
            let (value, after) = after.split_at_checked(value_length)?;
            rest = after;
            let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
            Some((text(name), text(value)))
        })
    }

    /// The names and values of the key, as they are counted.
    pub fn key(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().take(self.keys)
    }

    /// The attributes of the request.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().skip(self.keys)
    }

    /// An attribute of the request.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let mut attributes = self.attributes();
        attributes
            .find(|(of, _)| *of == name)
            .map(|(_, value)| value)
    }
}

/// The client of a decision. Asked only for what is kept.
pub trait SeenClient {
    /// The name of its key, as it may be shown.
    fn name(&self) -> KeyName;

    /// The request and the decision.
    fn request(&self) -> SeenRequest;

    /// Whether the rule only counts, so that its denials are not samples.
    fn is_shadow(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were() {
        let key = [("user_id", "ü"), ("ip", "2001:db8::/64")];
        let long = "x".repeat(70_000);
        let attributes = [("path", "/v1"), ("note", &long), ("empty", "")];
        let texts = RequestTexts::new(key.into_iter(), attributes.into_iter());
        assert_eq!(texts.key().collect::<Vec<_>>(), key);
        let kept = [("path", "/v1"), ("empty", "")];
        assert_eq!(texts.attributes().collect::<Vec<_>>(), kept);
        assert_eq!(texts.attribute("path"), Some("/v1"));
        assert_eq!(texts.attribute("user_id"), None);
        assert_eq!(RequestTexts::default().key().count(), 0);
    }
}
