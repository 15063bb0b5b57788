//! The ways in which servers may read a path that is forwarded unchanged.
//!
//! A gateway forwards the path that it matched. A proxy that calls forward-auth, and a middleware, do not: the server
//! gets the path as the client wrote it, and servers do not agree on its meaning.

use std::borrow::Cow;

use super::{EncodedSlashes, PathError, already_normal, decode, escaped, resolve};

/// The readings of a path. Almost every path has only one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readings<'p> {
    /// The normal form, as of [`normalise`](super::normalise).
    pub normal: Cow<'p, str>,
    /// The other readings, without repetitions. Each begins with `/` and has no `//`.
    pub others: Vec<String>,
}

/// How a server resolves the segments of a path, where that is not the normal form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolution {
    /// `..` is a name like any other: Express, WSGI, Rack.
    Never,
    /// `//` is one slash, then `..` removes a segment: nginx, Go.
    Collapsed,
    /// `..` removes a segment, which may be empty: the URL Standard.
    Uncollapsed,
}

/// The readings of a path that is not sent on in its normal form.
///
/// There is more than one only if the path has dot segments or `;`, in any spelling, a fragment, or begins with `//`: the raw
/// segments, each decoded; the normal form; and those between the two, in which dot segments are resolved and
/// `;` is kept. A fragment is cut by most servers and part of the path for the others. After `//`, a
/// server that parses a URL takes the first segment for a host; it also reads `\` as `/`, so that `/\` begins like
/// that too. A letter, a digit or one of
/// `-._~` that is written as an escape, which no honest client does, may also stay one: Express finds a route
/// before it decodes.
/// With [`EncodedSlashes::Decode`], an encoded slash and a backslash may be slashes or not, and there are
/// these readings for each case.
///
/// ```
/// use tidegate::path::{EncodedSlashes, readings};
///
/// let read = readings("/v1/files/../../login", EncodedSlashes::Keep)?;
/// assert_eq!(read.normal, "/login");
/// assert_eq!(read.others, ["/v1/files/../../login"]);
/// assert!(readings("/v1//caf%c3%a9", EncodedSlashes::Keep)?.others.is_empty());
/// assert_eq!(readings("//host/v1/login", EncodedSlashes::Keep)?.others, ["/v1/login"]);
/// assert_eq!(readings("/%6cogin", EncodedSlashes::Keep)?.others, ["/%6cogin"]);
/// # Ok::<(), tidegate::path::PathError>(())
/// ```
pub fn readings(path: &str, slashes: EncodedSlashes) -> Result<Readings<'_>, PathError> {
    // Almost every path has neither.
    let (whole, path) = if path.bytes().any(|byte| matches!(byte, b'?' | b'#')) {
        let whole = path.split('?').next().unwrap_or_default();
        (whole, whole.split('#').next().unwrap_or_default())
    } else {
        (path, path)
    };
    let has_fragment = whole.len() > path.len();
    if let Some(normal) = already_normal(path, slashes)
        && !(normal.contains('\\') && may_hide_slash(path, slashes))
        && !has_fragment
    {
        return Ok(Readings {
            normal: Cow::Borrowed(normal),
            others: Vec::new(),
        });
    }
    let decoded = decode(path, slashes)?;
    let normal = resolve(&decoded);
    let mut others = Vec::new();
    if normal != decoded || may_hide_slash(path, slashes) || has_fragment {
        let mut all = forms(path, decoded, slashes)?;
        if has_fragment {
            all.extend(forms(whole, decode(whole, slashes)?, slashes)?);
        }
        let without_host: Vec<String> = all.iter().filter_map(|form| after_host(form)).collect();
        for form in all.into_iter().chain(without_host) {
            for reading in [
                read_as(&form, Resolution::Never),
                resolve(&form),
                read_as(&form, Resolution::Collapsed),
                read_as(&form, Resolution::Uncollapsed),
            ] {
                if reading != normal && !others.contains(&reading) {
                    others.push(reading);
                }
            }
        }
    }
    if let Some(reading) = as_spelt(path, slashes)?
        && reading != normal
        && !others.contains(&reading)
    {
        others.push(reading);
    }
    Ok(Readings {
        normal: Cow::Owned(normal),
        others,
    })
}

/// The path with escapes that need not be left as they are written; `None` if it has none of these.
fn as_spelt(path: &str, slashes: EncodedSlashes) -> Result<Option<String>, PathError> {
    let mut spelt = String::new();
    let mut done = 0;
    for (start, _) in path.match_indices('%') {
        let (end, byte) = (start + 3, escaped(&path.as_bytes()[start + 1..]));
        let is_needless = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if byte.is_some_and(|(byte, _)| is_needless(byte)) {
            spelt.push_str(&decode(&path[done..start], slashes)?);
            spelt.push_str(&path[start..end]);
            done = end;
        }
    }
    if done == 0 {
        return Ok(None);
    }
    spelt.push_str(&decode(&path[done..], slashes)?);
    Ok(Some(resolve(&spelt)))
}

/// The path after the host, for servers that read `//host/path` as a URL: `new URL` of Node, `parse_url` of PHP.
fn after_host(form: &str) -> Option<String> {
    let rest = form.strip_prefix("//")?.trim_start_matches('/');
    Some(rest.find('/').map_or("/", |end| &rest[end..]).to_owned())
}

/// Whether a path has a character that servers may read as a slash. If such characters are kept, this matters only for
/// a server that parses the path as a URL and finds a host in it.
fn may_hide_slash(path: &str, slashes: EncodedSlashes) -> bool {
    match slashes {
        EncodedSlashes::Decode => has_hidden_slash(path),
        EncodedSlashes::Keep => {
            path.contains('\\') && (path.starts_with("//") || path.starts_with("/\\"))
        }
    }
}

/// The decoded forms of a path that servers begin with.
fn forms(path: &str, decoded: String, slashes: EncodedSlashes) -> Result<Vec<String>, PathError> {
    let mut forms = vec![decoded];
    if may_hide_slash(path, slashes) {
        if slashes == EncodedSlashes::Decode {
            forms.push(forms[0].replace('\\', "/"));
            forms.push(decode(path, EncodedSlashes::Keep)?);
        }
        forms.push(decode(&path.replace('\\', "/"), EncodedSlashes::Keep)?);
    }
    // Servlet containers cut parameters before they decode, so that `%3b` begins none.
    if path.contains(';') && has_escape(path, *b"3b") {
        let pieces = path
            .split_inclusive('/')
            .map(|piece| match piece.split_once(';') {
                Some((name, rest)) if rest.ends_with('/') => format!("{name}/"),
                Some((name, _)) => name.to_owned(),
                None => piece.to_owned(),
            });
        forms.push(decode(&pieces.collect::<String>(), slashes)?);
    }
    Ok(forms)
}

/// Whether a path has an encoded slash, a backslash or an encoded backslash: servers do not agree on which
/// of them separate segments.
pub fn has_hidden_slash(path: &str) -> bool {
    path.contains('\\') || has_escape(path, *b"5c") || has_escape(path, *b"2f")
}

fn has_escape(path: &str, digits: [u8; 2]) -> bool {
    let mut windows = path.as_bytes().windows(3);
    windows.any(|window| window[0] == b'%' && window[1..].eq_ignore_ascii_case(&digits))
}

fn read_as(decoded: &str, resolution: Resolution) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut names_directory = true;
    for segment in decoded.strip_prefix('/').unwrap_or(decoded).split('/') {
        names_directory = true;
        match (segment, resolution) {
            ("", Resolution::Uncollapsed) => segments.push(segment),
            ("", _) | (".", Resolution::Collapsed | Resolution::Uncollapsed) => {}
            ("..", Resolution::Collapsed | Resolution::Uncollapsed) => {
                segments.pop();
            }
            _ => {
                segments.push(segment);
                names_directory = false;
            }
        }
    }
    let mut path = String::with_capacity(decoded.len() + 1);
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        path.push('/');
        path.push_str(segment);
    }
    if names_directory || path.is_empty() {
        path.push('/');
    }
    path
}
