//! A value in which `*` stands for anything, also for nothing.

use std::fmt;

/// A value with at least one `*` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wildcard {
    prefix: String,
    /// The literal parts between the stars, in order.
    middle: Vec<String>,
    suffix: String,
}

impl Wildcard {
    /// Parses a wildcard, if the text has a `*`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (prefix, rest) = text.split_once('*')?;
        let mut middle: Vec<String> = rest.split('*').map(str::to_owned).collect();
        let suffix = middle.pop().unwrap_or_default();
        middle.retain(|part| !part.is_empty());
        Some(Self {
            prefix: prefix.to_owned(),
            middle,
            suffix,
        })
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        let Some(rest) = value.strip_prefix(self.prefix.as_str()) else {
            return false;
        };
        let Some(mut rest) = rest.strip_suffix(self.suffix.as_str()) else {
            return false;
        };
        for part in &self.middle {
            let Some(at) = rest.find(part.as_str()) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        true
    }

    /// Whether it is written as this value: then the value means it, whatever else matches.
    pub(super) fn is_written_as(&self, value: &str) -> bool {
        let star =
            |rest: &str, part: &str| rest.strip_prefix(part)?.strip_prefix('*').map(str::len);
        let mut rest = value;
        for part in std::iter::once(&self.prefix).chain(&self.middle) {
            match star(rest, part) {
                Some(left) => rest = &rest[rest.len() - left..],
                None => return false,
            }
        }
        rest == self.suffix
    }
}

impl fmt::Display for Wildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*", self.prefix)?;
        for part in &self.middle {
            write!(f, "{part}*")?;
        }
        f.write_str(&self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_by_hand() {
        #[rustfmt::skip]
        let table = [
            // pattern  value           matches
            ("*",       "",             true),
            ("*",       "anything",     true),
            ("foo*",    "foo",          true),
            ("foo*",    "foobar",       true),
            ("foo*",    "fo",           false),
            ("*foo",    "a foo",        true),
            ("*foo",    "foo a",        false),
            ("a*b",     "ab",           true),
            ("a*b",     "a",            false),
            ("ab*b",    "ab",           false),
            ("a*b*c",   "a--b--c",      true),
            ("a*b*c",   "a--c",         false),
            ("a*b*b",   "ab",           false),
            ("a**c",    "abc",          true),
            ("*x*x*",   "x",            false),
            ("*x*x*",   "-x-x-",        true),
            ("ü*",      "über",         true),
        ];
        for (pattern, value, expected) in table {
            let wildcard = Wildcard::parse(pattern).unwrap();
            assert_eq!(wildcard.matches(value), expected, "{pattern} {value}");
        }
        assert_eq!(Wildcard::parse("plain"), None);
    }

    #[test]
    fn the_text_of_a_wildcard_by_hand() {
        for (pattern, value, expected) in [
            ("v*", "v*", true),
            ("v*", "vip*", false),
            ("v*", "v", false),
            ("v*", "v**", false),
            ("*", "*", true),
            ("*", "", false),
            ("a*b*c", "a*b*c", true),
            ("a*b*c", "a*b-c", false),
            ("a**c", "a*c", true),
        ] {
            let wildcard = Wildcard::parse(pattern).unwrap();
            assert_eq!(wildcard.is_written_as(value), expected, "{pattern} {value}");
        }
    }
}
