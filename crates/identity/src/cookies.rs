//! Reads one piece of `Cookie`, between two semicolons. Most servers read one pair in it. `http.cookies` of
//! Python, which many WSGI programs use, begins the next pair after white space, and nginx after a comma.

use std::borrow::Cow;

use tidegate::white_space::trimmed;

use crate::spelling::{cookie_value, is_cookie};

/// Cookie attributes without a value, which may follow a pair.
const FLAGS: [&[u8]; 2] = [b"secure", b"httponly"];

/// The values of a cookie that servers read in a piece: none, one, or several if servers disagree.
pub(crate) fn values<'p>(
    piece: &'p [u8],
    wanted: &[u8],
) -> impl Iterator<Item = Cow<'p, [u8]>> + use<'p> {
    let (name, value) = match piece.iter().position(|byte| *byte == b'=') {
        Some(equals) => (&piece[..equals], &piece[equals + 1..]),
        None => (piece, &[][..]),
    };
    let has_value = name.len() < piece.len();
    let (name, value) = (trimmed(name), trimmed(value));
    let is_it = has_value && is_cookie(name, wanted);
    let (first, rest) = first_word(value);
    let mut others = Vec::new();
    if is_it && keeps_what_is_before(rest) {
        others.push(cookie_value(first));
    }
    add_after_white_space(rest, wanted, &mut others);
    add_after_commas(value, wanted, &mut others);
    let own = is_it.then(|| cookie_value(value));
    own.into_iter().chain(others)
}

/// The quoted text or word at the start of a value, and the rest after white space.
fn first_word(value: &[u8]) -> (&[u8], &[u8]) {
    let end = match value {
        [b'"', inside @ ..] => {
            let mut is_escaped = false;
            let end = inside.iter().position(|byte| {
                let is_end = *byte == b'"' && !is_escaped;
                is_escaped = *byte == b'\\' && !is_escaped;
                is_end
            });
            end.map(|end| end + 2)
        }
        _ => value.iter().position(u8::is_ascii_whitespace),
    };
    let (word, rest) = value.split_at(end.unwrap_or(value.len()));
    match rest.first() {
        Some(byte) if byte.is_ascii_whitespace() => (word, rest.trim_ascii_start()),
        _ => (value, &[]),
    }
}

/// Whether Python keeps the pairs read so far when this follows. It drops them all at a name without a value,
/// and stops at an invalid name.
fn keeps_what_is_before(rest: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let length = rest.iter().take_while(|byte| is_of_name(byte)).count();
    let (name, behind) = rest.split_at(length);
    let is_flag = FLAGS.iter().any(|flag| name.eq_ignore_ascii_case(flag));
    let ends = behind.first().is_none_or(u8::is_ascii_whitespace);
    let has_value = behind.trim_ascii_start().starts_with(b"=");
    !rest.is_empty() && (name.is_empty() || !ends || has_value || is_flag)
}

/// Adds the values of the wanted cookie in pairs after a comma, each to the end of the piece.
fn add_after_commas<'p>(piece: &'p [u8], wanted: &[u8], values: &mut Vec<Cow<'p, [u8]>>) {
    let commas = piece.iter().enumerate().filter(|(_, byte)| **byte == b',');
    for (comma, _) in commas {
        let pair = &piece[comma + 1..];
        let equals = pair.iter().position(|byte| *byte == b'=');
        if let Some((name, value)) = equals.map(|equals| pair.split_at(equals))
            && is_cookie(trimmed(name), wanted)
        {
            values.push(cookie_value(trimmed(&value[1..])));
        }
    }
}

/// Adds the values of the wanted cookie in pairs between white space.
fn add_after_white_space<'p>(mut rest: &'p [u8], wanted: &[u8], values: &mut Vec<Cow<'p, [u8]>>) {
    let ends_name = |byte: &u8| *byte == b'=' || byte.is_ascii_whitespace();
    while !rest.is_empty() {
        let end = rest.iter().position(ends_name).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let behind = behind.trim_ascii_start();
        let Some(value) = behind.strip_prefix(b"=") else {
            rest = behind;
            continue;
        };
        let (word, next) = first_word(value.trim_ascii_start());
        if is_cookie(name, wanted) {
            values.push(cookie_value(word));
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_by_hand() {
        #[rustfmt::skip]
        let table: [(&[u8], &[&str]); 32] = [
            (b"session=real",                   &["real"]),
            (b" session = real ",               &["real"]),
            (b"Session=real",                   &["real"]),
            (b"session=real\xa0",               &["real"]),
            ("\u{3000}session\u{a0}=\u{2003}real\u{2003}".as_bytes(), &["real"]),
            (b"%73ession=real",                 &["real"]),
            (b"session%00x=real",               &["real"]),
            (b"a=1 se%73sion=real",             &["real"]),
            (b"session",                        &[]),
            (b"other=real",                     &[]),
            (b"session=",                       &[""]),
            // Another pair after white space.
            (b"a=1 session=real",               &["real"]),
            (b"a=1\tb=2 session = real x=1",    &["real"]),
            (b"a=\"1\" session=\"re\\141l\"",   &["real"]),
            (b"session=junk session=real",      &["junk session=real", "junk", "real"]),
            (b"session=real Path=/1",           &["real Path=/1", "real"]),
            (b"session=real a = 1",             &["real a = 1", "real"]),
            (b"session=real secure",            &["real secure", "real"]),
            (b"session=real \"1",               &["real \"1", "real"]),
            (b"session=real \xc3\xa9",          &["real \u{e9}", "real"]),
            (b"session=\"real\" a=1",           &["real\" a=", "real"]),
            // Another pair after a comma.
            (b"a=1,session=real",               &["real"]),
            (b"a=1, b=2 , session = real,x",    &["real,x", "real,x"]),
            (b"session=junk,session=real",      &["junk,session=real", "real"]),
            (b"session=real,x",                 &["real,x"]),
            // White space that begins no pair.
            (b"session=first last",             &["first last"]),
            (b"session=a b c",                  &["a b c"]),
            (b"session=\"a session=b\"",        &["a session=b"]),
            (b"a=\"1 session=b\"",              &[]),
            (b"a=1 session",                    &[]),
            (b"a=1 sessions=x",                 &[]),
            (b"",                               &[]),
        ];
        for (piece, expected) in table {
            let found = values(piece, b"session").map(std::borrow::Cow::into_owned);
            let found: Vec<String> = found
                .map(|value| String::from_utf8(value).unwrap())
                .collect();
            assert_eq!(found, expected, "{}", piece.escape_ascii());
        }
    }

    proptest::proptest! {
        /// Any text is read, and reading terminates.
        #[test]
        fn nothing_is_too_strange(piece in "[a =\"\\\\\t%1]{0,30}") {
            let count = values(piece.as_bytes(), b"a").count();
            proptest::prop_assert!(count <= piece.len() + 2);
        }
    }
}
