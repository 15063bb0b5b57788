//! The fields of a line by name, where `--map` looks them up: variables, columns, or members of a JSON object.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::json::JsonObject;
use super::line::{LineValue, present};

/// The fields of a line.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each line, which a box would allocate"
)]
pub(crate) enum LineValues<'l> {
    Variables(SmallVec<[(&'l str, LineValue<'l>); 12]>),
    Json(JsonObject<'l>),
}

impl Default for LineValues<'_> {
    fn default() -> Self {
        Self::Variables(SmallVec::new())
    }
}

/// Where `--map` takes a value from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldSource {
    /// A variable, a column, or a member of a JSON object, with a dot between the steps of its path.
    Name(String),
    /// A JSON Pointer, by its steps.
    Pointer(Vec<String>),
    /// Another attribute of the request.
    Attribute(String),
}

impl FieldSource {
    /// `$variable`, `@attribute`, `/a/b`, or a name. None if it is empty.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let source = match text.as_bytes().first()? {
            b'$' => Self::Name(text[1..].to_owned()),
            b'@' => Self::Attribute(text[1..].to_owned()),
            b'/' => {
                let steps = text[1..].split('/');
                let unescaped = steps.map(|step| step.replace("~1", "/").replace("~0", "~"));
                Self::Pointer(unescaped.collect())
            }
            _ => Self::Name(text.to_owned()),
        };
        let is_empty =
            matches!(&source, Self::Name(name) | Self::Attribute(name) if name.is_empty());
        (!is_empty).then_some(source)
    }
}

impl<'l> LineValues<'l> {
    /// The value of a source, unless it is absent or the source is an attribute.
    pub(crate) fn get(&self, source: &FieldSource) -> Option<LineValue<'l>> {
        let value = match (self, source) {
            (Self::Variables(variables), FieldSource::Name(name)) => {
                let mut known = variables.iter();
                known
                    .find(|(known, _)| known.eq_ignore_ascii_case(name))?
                    .1
                    .clone()
            }
            (_, FieldSource::Attribute(_)) | (Self::Variables(_), FieldSource::Pointer(_)) => {
                return None;
            }
            (Self::Json(object), FieldSource::Name(name)) => object.by_path(name)?,
            (Self::Json(object), FieldSource::Pointer(steps)) => {
                object.by_steps(steps.iter().map(String::as_str))?
            }
        };
        present(value)
    }
}

/// Whether a value is one that logs write for what is not there.
pub(crate) fn is_absent(value: &[u8]) -> bool {
    matches!(
        value,
        b"" | b"-" | b"REDACTED" | b"[REDACTED]" | b"redacted"
    )
}

/// A text with the escapes that nginx and Apache write in quoted fields resolved.
pub(crate) fn unescaped(value: &[u8]) -> LineValue<'_> {
    if memchr::memchr(b'\\', value).is_none() {
        return Cow::Borrowed(value);
    }
    let mut text = Vec::with_capacity(value.len());
    let mut rest = value;
    loop {
        rest = match rest {
            [] => break,
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                text.push(digit(*high) << 4 | digit(*low));
                after
            }
            [b'\\', escape, after @ ..] => {
                match escape {
                    b'n' => text.push(b'\n'),
                    b't' => text.push(b'\t'),
                    b'r' => text.push(b'\r'),
                    b'"' | b'\\' => text.push(*escape),
                    other => text.extend_from_slice(&[b'\\', *other]),
                }
                after
            }
            [byte, after @ ..] => {
                text.push(*byte);
                after
            }
        };
    }
    Cow::Owned(text)
}

fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_by_hand() {
        for (written, expected) in [
            (r"plain", "plain"),
            (r"a\x22b", "a\"b"),
            (r#"a\"b"#, "a\"b"),
            (r"a\\b", r"a\b"),
            (r"\x5Cx41", r"\x41"),
            (r"a\qb\", r"a\qb\"),
            (r"\x4", r"\x4"),
            (r"\t", "\t"),
        ] {
            assert_eq!(
                &*unescaped(written.as_bytes()),
                expected.as_bytes(),
                "{written}"
            );
        }
    }
}
