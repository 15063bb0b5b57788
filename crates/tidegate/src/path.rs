//! Normalises request paths, for matching and for forwarding alike.
//!
//! The matched path must be the one that the upstream sees, or another spelling of a path bypasses a rule. Callers
//! handle hosts, whole URLs, and the paths that a gateway refuses.

mod readings;

pub use readings::{Readings, has_hidden_slash, readings};

use std::borrow::Cow;

use percent_encoding::percent_encode_byte;

#[cfg(test)]
mod tests;

/// The most characters of a value that an error repeats.
const SHOWN: usize = 60;

/// What an encoded slash, `%2f`, means in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EncodedSlashes {
    /// A slash like any other.
    #[default]
    Decode,
    /// Data within its segment: it stays, as `%2F`. An encoded percent sign stays too, as `%25`, so
    /// that the two stay different.
    Keep,
}

/// Why a path was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// A slash that not every server takes for one, where such are refused: [`has_hidden_slash`].
    #[error(
        "the path has an encoded slash or a backslash in it, which some servers take for a slash and others do not"
    )]
    HiddenSlash,
    /// A percent sign without two hexadecimal digits after it.
    #[error(
        "`{escape}` in the path `{path}` is not an escape; write `%` and two hexadecimal digits, and `%25` for a percent sign"
    )]
    BadEscape {
        /// The percent sign and what follows it.
        escape: String,
        /// The path, shortened when long.
        path: String,
    },
    /// A NUL character, escaped or not.
    #[error("the path `{path}` has a NUL character in it; leave it out")]
    Nul {
        /// The path, shortened when long.
        path: String,
    },
    /// The escapes do not make text.
    #[error("the path `{path}` is not UTF-8 once decoded; escape the bytes of UTF-8 text")]
    NotUtf8 {
        /// The path, shortened when long.
        path: String,
    },
}

/// The normal form of `path`; it borrows, without allocation, when it has that form already.
///
/// In this order: the query and the fragment are cut; escapes are decoded, once; in each segment
/// `;` and what follows it is cut, whether it was escaped or not; empty segments go, and `.` and
/// `..` are resolved, never above the root. The result begins with `/`, and ends with one if `path`
/// names a directory: `/a/` is not `/a`, and `/a/b/..` is `/a/`.
///
/// The result is data, not something to send: for that there is [`encode`].
///
/// ```
/// use tidegate::path::{EncodedSlashes, normalise};
///
/// let path = normalise("/v1//users/%2e%2e/log%69n;v=1?next=/", EncodedSlashes::Decode)?;
/// assert_eq!(path, "/v1/login");
/// # Ok::<(), tidegate::path::PathError>(())
/// ```
pub fn normalise(path: &str, slashes: EncodedSlashes) -> Result<Cow<'_, str>, PathError> {
    if let Some(normal) = already_normal(path, slashes) {
        return Ok(Cow::Borrowed(normal));
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    Ok(Cow::Owned(resolve(&decode(path, slashes)?)))
}

/// What may be sent for a path that was normalised with the same `slashes`: another path that has
/// the same normal form. It borrows when there is nothing to escape.
///
/// ```
/// use tidegate::path::{EncodedSlashes, encode};
///
/// assert_eq!(encode("/50% off?", EncodedSlashes::Decode), "/50%25%20off%3F");
/// assert_eq!(encode("/a%2Fb c", EncodedSlashes::Keep), "/a%2Fb%20c");
/// ```
pub fn encode(path: &str, slashes: EncodedSlashes) -> Cow<'_, str> {
    let bytes = path.as_bytes();
    let stays = |index: usize| is_sendable(bytes[index]) || is_kept(&bytes[index..], slashes);
    if (0..bytes.len()).all(stays) {
        return Cow::Borrowed(path);
    }
    let mut encoded = String::with_capacity(path.len() + 16);
    for (index, &byte) in bytes.iter().enumerate() {
        if stays(index) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(percent_encode_byte(byte));
        }
    }
    Cow::Owned(encoded)
}

/// The path that a gateway forwards instead of `path`: a path with the same normal form, in which there is nothing left
/// to resolve. It borrows when that is `path` itself, without its query.
///
/// Escapes stay as they were written, but for those of letters, digits and `-._~`, which mean the same
/// without, and those of slashes that are slashes. When segments or parameters had to go, it is the
/// normal form, [encoded](encode).
///
/// ```
/// use tidegate::path::{EncodedSlashes, forwarded};
///
/// assert_eq!(forwarded("/a%2c%C3%a9?q=1", EncodedSlashes::Decode)?, "/a%2c%C3%a9");
/// assert_eq!(forwarded("/a/../%61dmin;x/%2e", EncodedSlashes::Decode)?, "/admin/");
/// # Ok::<(), tidegate::path::PathError>(())
/// ```
pub fn forwarded(path: &str, slashes: EncodedSlashes) -> Result<Cow<'_, str>, PathError> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if already_normal(path, slashes).is_none() {
        let decoded = decode(path, slashes)?;
        let normal = resolve(&decoded);
        if normal != decoded {
            return Ok(Cow::Owned(encode(&normal, slashes).into_owned()));
        }
    }
    let is_sent = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    let needs_no_escape = |byte: u8| match byte {
        b'/' => slashes == EncodedSlashes::Decode,
        _ => byte.is_ascii_alphanumeric() || b"-._~".contains(&byte),
    };
    if path.bytes().all(|byte| is_sent(byte) && byte != b'%') {
        return Ok(Cow::Borrowed(path));
    }
    let mut sent = String::with_capacity(path.len() + 8);
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, escaped(after)) {
            (b'%', Some((byte, after))) if needs_no_escape(byte) => {
                sent.push(char::from(byte));
                rest = after;
            }
            (byte, _) if is_sent(*byte) => sent.push(char::from(*byte)),
            (byte, _) => sent.push_str(percent_encode_byte(*byte)),
        }
    }
    Ok(if sent == path {
        Cow::Borrowed(path)
    } else {
        Cow::Owned(sent)
    })
}

/// The part of `path` before its query, if that is in normal form.
fn already_normal(path: &str, slashes: EncodedSlashes) -> Option<&str> {
    let bytes = path.as_bytes();
    if bytes.first() != Some(&b'/') {
        return None;
    }
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            b'/' if is_resolved_away(&bytes[index + 1..]) => return None,
            b'%' if !is_kept(&bytes[index..], slashes) => return None,
            0 | b';' => return None,
            b'?' | b'#' => return path.get(..index),
            _ => {}
        }
    }
    Some(path)
}

/// Whether the segment that `rest` begins with is `.` or `..`, or empty and not the last.
fn is_resolved_away(rest: &[u8]) -> bool {
    match rest {
        [b'/', ..] => true,
        [b'.', b'.', after @ ..] | [b'.', after @ ..] => {
            matches!(after.first(), None | Some(b'/' | b'?' | b'#'))
        }
        _ => false,
    }
}

/// Whether `rest` begins with an escape that is part of the normal form.
fn is_kept(rest: &[u8], slashes: EncodedSlashes) -> bool {
    slashes == EncodedSlashes::Keep && (rest.starts_with(b"%2F") || rest.starts_with(b"%25"))
}

/// Whether RFC 3986 lets this byte stand for itself in a path; `;` would begin parameters.
fn is_sendable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/".contains(&byte)
}

/// `path` with its escapes decoded, but for those that are kept.
fn decode(path: &str, slashes: EncodedSlashes) -> Result<String, PathError> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            decoded.push(*first);
            rest = after;
            continue;
        }
        let Some((byte, after)) = escaped(after) else {
            let from = path.get(path.len() - rest.len()..).unwrap_or_default();
            return Err(PathError::BadEscape {
                escape: from.chars().take(3).flat_map(shown).collect(),
                path: shortened(path),
            });
        };
        match (byte, slashes) {
            (b'/', EncodedSlashes::Keep) => decoded.extend(b"%2F"),
            (b'%', EncodedSlashes::Keep) => decoded.extend(b"%25"),
            _ => decoded.push(byte),
        }
        rest = after;
    }
    if decoded.contains(&0) {
        return Err(PathError::Nul {
            path: shortened(path),
        });
    }
    String::from_utf8(decoded).map_err(|_| PathError::NotUtf8 {
        path: shortened(path),
    })
}

/// The byte that the two digits after a percent sign stand for, and what follows them.
fn escaped(rest: &[u8]) -> Option<(u8, &[u8])> {
    let (&[high, low], after) = rest.split_first_chunk()?;
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
    Some((byte, after))
}

/// `decoded` without parameters, empty segments and dot segments.
fn resolve(decoded: &str) -> String {
    // Ends with a slash until the last segment is there.
    let mut path = String::with_capacity(decoded.len() + 1);
    path.push('/');
    for piece in decoded.split_inclusive('/') {
        let segment = piece.split(['/', ';']).next().unwrap_or_default();
        match segment {
            "" | "." => {}
            ".." => {
                let parent = path.trim_end_matches('/').rfind('/').unwrap_or(0);
                path.truncate(parent + 1);
            }
            name => {
                path.push_str(name);
                if piece.ends_with('/') {
                    path.push('/');
                }
            }
        }
    }
    path
}

/// `text` as an error repeats it: its beginning, and no control characters.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).flat_map(shown).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    short
}

/// A character of an error: itself, or an escape such as `\n`.
fn shown(character: char) -> impl Iterator<Item = char> {
    let escape = character.is_control().then(|| character.escape_default());
    let itself = escape.is_none().then_some(character);
    escape.into_iter().flatten().chain(itself)
}
