//! Patterns for paths and hosts.

use std::fmt;

use crate::host;
use crate::path::{self, EncodedSlashes};

/// How many segments a pattern may have.
const MAX_SEGMENTS: usize = 64;

/// A path to match: `/v1/users`, `/users/*/orders`, `/v1/**`.
///
/// `*` is one segment, `**` at the end is the rest, also if there is none. A slash at the end makes
/// no difference: `/login/` must not bypass the rule for `/login`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    pub(super) segments: Vec<Segment>,
    pub(super) has_rest: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    Literal(String),
    Any,
}

impl PathPattern {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some(after) = text.strip_prefix('/') else {
            return Err(format!(
                "`{text}` must begin with `/`, for example `/v1/**`"
            ));
        };
        let mut parts: Vec<&str> = after.split('/').collect();
        if parts.last() == Some(&"") {
            parts.pop();
        }
        if parts.len() > MAX_SEGMENTS {
            return Err(format!(
                "a path may have {MAX_SEGMENTS} segments at the most, this has {}",
                parts.len()
            ));
        }
        let has_rest = parts.last() == Some(&"**");
        if has_rest {
            parts.pop();
        }
        let mut segments = Vec::new();
        for part in parts {
            segments.push(match part {
                "*" => Segment::Any,
                "**" => {
                    return Err(format!(
                        "in `{text}`, `**` must be the last segment; use `*` for one segment"
                    ));
                }
                _ if part.contains('*') => {
                    return Err(format!(
                        "in `{text}`, `*` must be a whole segment, as in `/users/*/orders`"
                    ));
                }
                _ => Segment::Literal(part.to_owned()),
            });
        }
        let literal = after.replace('*', "x");
        let literal = format!("/{literal}");
        match path::normalise(&literal, EncodedSlashes::Decode) {
            Ok(normal) if normal == literal => {}
            Ok(_) => {
                return Err(format!(
                    "`{text}` can never match: requests are compared after escapes are decoded, `//` and `..` resolved, and `;`, `?`, `#` cut; write the path in that form"
                ));
            }
            Err(error) => return Err(error.to_string()),
        }
        Ok(Self {
            text: text.to_owned(),
            segments,
            has_rest,
        })
    }

    /// Whether a normalised path fits.
    pub(super) fn matches(&self, path: &str) -> bool {
        let mut parts = segments_of(path);
        for segment in &self.segments {
            match (segment, parts.next()) {
                (_, None) => return false,
                (Segment::Literal(literal), Some(part)) if literal != part => return false,
                _ => {}
            }
        }
        self.has_rest || parts.next().is_none()
    }
}

/// The segments of a normalised path. A slash at the end adds none.
pub(super) fn segments_of(path: &str) -> impl Iterator<Item = &str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/').filter(|segment| !segment.is_empty())
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A host to match: `api.example.com`, or `*.example.org` for all names below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    text: String,
}

impl HostPattern {
    /// Reads a pattern, or says why it is not one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (star, name) = match text.strip_prefix("*.") {
            Some(name) => ("*.", name),
            None => ("", text),
        };
        let fits = |normal: &str| {
            // There is nothing below an address.
            let is_address = star.is_empty() && name.ends_with(']');
            is_address || (name.eq_ignore_ascii_case(normal) && !name.starts_with('['))
        };
        match host::normalise(name) {
            Ok(normal) if fits(&normal) => Ok(Self {
                text: format!("{star}{normal}"),
            }),
            _ => Err(format!(
                "`{text}` is not a host; write for example `api.example.com` or `*.example.org`, without a scheme, a port, a path or a dot at the end"
            )),
        }
    }

    /// Whether it is about all names below one.
    pub fn is_wildcard(&self) -> bool {
        self.text.starts_with('*')
    }

    /// How long its text is: of two patterns for names below others, the longer one is the nearer.
    pub fn length(&self) -> usize {
        self.text.len()
    }

    /// The name, or the name below which all are meant, with its dot.
    pub(super) fn parts(&self) -> (bool, &str) {
        match self.text.strip_prefix('*') {
            Some(suffix) => (true, suffix),
            None => (false, &self.text),
        }
    }

    /// Whether a [normal](host::normalise) host fits.
    pub fn matches(&self, host: &str) -> bool {
        match self.parts() {
            (true, suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            (false, name) => host == name,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_by_hand() {
        #[rustfmt::skip]
        let table = [
            // pattern              path                    fits
            ("/v1/**",              "/v1",                  true),
            ("/v1/**",              "/v1/",                 true),
            ("/v1/**",              "/v1/users/7",          true),
            ("/v1/**",              "/v10",                 false),
            ("/**",                 "/",                    true),
            ("/",                   "/",                    true),
            ("/",                   "/users",               false),
            ("/login",              "/login",               true),
            ("/login",              "/login/",              true),
            ("/login/",             "/login",               true),
            ("/login",              "/Login",               false),
            ("/users/*",            "/users/7",             true),
            ("/users/*",            "/users",               false),
            ("/users/*",            "/users/",              false),
            ("/users/*",            "/users/7/orders",      false),
            ("/users/*/orders",     "/users/7/orders",      true),
            ("/users/*/orders/**",  "/users/7/orders/1/2",  true),
        ];
        for (pattern, path, fits) in table {
            let pattern = PathPattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(path), fits, "{pattern} {path}");
        }
    }

    #[test]
    fn hosts_by_hand() {
        let below = HostPattern::parse("*.Example.org").unwrap();
        assert!(below.matches("a.example.org") && below.matches("a.b.example.org"));
        assert!(!below.matches("example.org") && !below.matches("badexample.org"));
        let exact = HostPattern::parse("api.example.com").unwrap();
        assert!(exact.matches("api.example.com") && !below.matches("api.example.com"));
        let address = HostPattern::parse("[2001:DB8:0::7]").unwrap();
        assert!(address.matches("[2001:db8::7]"));
        for text in [
            "a:80", "a.", "*.", "*", "*.[::1]", "[::1]:80", "[a]", "a..b",
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }
}
