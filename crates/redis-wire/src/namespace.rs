//! Namespaces: a part of every key and channel, which separates deployments that share one Redis.

use std::fmt;
use std::str::FromStr;

/// The longest namespace, in bytes.
const LONGEST: usize = 32;

/// The name of one deployment among several in one Redis: 1 to 32 letters, digits and `-`.
///
/// Keys and channels are then `tg:NAMESPACE:…`. Without a namespace, `tg:` is followed by `{` or by the last
/// part, so that the two cannot be confused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace(Box<str>);

/// Why a text is not a namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a namespace; write 1 to {LONGEST} ASCII letters, digits and `-`, for example `staging`"
)]
pub struct NamespaceError(String);

impl FromStr for Namespace {
    type Err = NamespaceError;

    fn from_str(text: &str) -> Result<Self, NamespaceError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if text.is_empty() || text.len() > LONGEST || !text.bytes().all(is_allowed) {
            return Err(NamespaceError(text.to_owned()));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The prefix of every name.
pub fn prefix(namespace: Option<&Namespace>) -> String {
    match namespace {
        Some(Namespace(name)) => format!("tg:{name}"),
        None => "tg".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_1_to_32_letters_digits_and_hyphens() {
        let longest = "a".repeat(32);
        for text in ["s", "staging", "EU-west-1", "-", "rules", "7", &longest] {
            let namespace: Namespace = text.parse().unwrap();
            assert_eq!(prefix(Some(&namespace)), format!("tg:{text}"));
        }
        let too_long = "a".repeat(33);
        for text in ["", "a:b", "{a}", "a b", "a_b", "a.b", "é", "*", &too_long] {
            let error = text.parse::<Namespace>().unwrap_err().to_string();
            assert!(error.contains("1 to 32 ASCII letters"), "{error}");
        }
        assert_eq!(prefix(None), "tg");
    }
}
