//! Normalises values that clients can spell in several ways, as services decode a query parameter or a cookie.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// Decodes a part of a query: a plus is a space, escapes are decoded once, and invalid escapes stay.
pub(crate) fn decoded(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.contains(&b'+') {
        return without_escapes(Cow::Borrowed(bytes));
    }
    let space = |byte: &u8| if *byte == b'+' { b' ' } else { *byte };
    without_escapes(Cow::Owned(bytes.iter().map(space).collect()))
}

/// Decodes the value of a cookie: first its quotes and the escapes within them, as Python does, then percent
/// escapes once, as Express, PHP and Ruby do. Invalid escapes stay.
pub(crate) fn cookie_value(value: &[u8]) -> Cow<'_, [u8]> {
    without_escapes(unquoted(value))
}

/// Removes a leading quote and the last byte: Express does not check that it is a quote. Within a pair of
/// quotes, `\141` is a byte in octal digits and `\x` is `x`.
fn unquoted(value: &[u8]) -> Cow<'_, [u8]> {
    let [b'"', inside @ .., last] = value else {
        return Cow::Borrowed(value);
    };
    if *last != b'"' || !inside.contains(&b'\\') {
        return Cow::Borrowed(inside);
    }
    let mut bytes = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let [first, after @ ..] = rest {
        let (byte, behind) = match (first, after) {
            (
                b'\\',
                [
                    high @ b'0'..=b'3',
                    middle @ b'0'..=b'7',
                    low @ b'0'..=b'7',
                    behind @ ..,
                ],
            ) => {
                let digit = |byte: &u8| byte - b'0';
                let byte = digit(high) << 6 | digit(middle) << 3 | digit(low);
                (byte, behind)
            }
            (b'\\', [escaped, behind @ ..]) => (*escaped, behind),
            _ => (*first, after),
        };
        bytes.push(byte);
        rest = behind;
    }
    Cow::Owned(bytes)
}

/// Decodes `%XX`, once. Invalid escapes stay.
fn without_escapes(bytes: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match bytes {
        Cow::Borrowed(bytes) => percent_decode(bytes).into(),
        Cow::Owned(bytes) => Cow::Owned(percent_decode(&bytes).collect()),
    }
}

/// Whether a parameter has this name, or is a list of this name with one item: Express and PHP read `key[]=a` and
/// `key[0]=a` as a list, which programs use like the item, and ignore text after the last bracket. Express reads
/// `[key]=a` as `key=a`.
pub(crate) fn is_parameter(name: &[u8], wanted: &[u8]) -> bool {
    let name = before_nul(name);
    let is_list = |mut rest: &[u8]| {
        let mut has_index = false;
        while let Some(index) = rest.strip_prefix(b"[") {
            let digits = index
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            match index[digits..].strip_prefix(b"]") {
                Some(behind) => (rest, has_index) = (behind, true),
                None => return false,
            }
        }
        has_index || rest.is_empty()
    };
    let list_from = |start: usize, end: u8| {
        let length = name.get(start..)?.iter().position(|byte| *byte == end)?;
        Some((&name[start..start + length], &name[start + length..]))
    };
    // Text after the first bracket is ignored, too, unless it is another bracket.
    let is_nothing = |rest: &[u8]| name.starts_with(b"[") && !rest.starts_with(b"[");
    let in_brackets = match name.first() {
        Some(b'[') => list_from(1, b']').map(|(head, rest)| (head, &rest[1..])),
        _ => list_from(0, b'['),
    };
    is_name(name, wanted)
        || in_brackets.is_some_and(|(head, rest)| {
            is_name(head, wanted) && (is_list(rest) || is_nothing(rest))
        })
}

/// Whether some server takes the name of a cookie for the wanted one. Rack, Perl and older PHP decode it.
pub(crate) fn is_cookie(name: &[u8], wanted: &[u8]) -> bool {
    let has_escape = name.contains(&b'%');
    is_name(name, wanted) || (has_escape && is_name(&decoded(name), wanted))
}

/// A name as PHP and CGI programs in C read it.
fn before_nul(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|byte| *byte == 0);
    &name[..end.unwrap_or(name.len())]
}

/// Whether some server treats two names of a parameter or cookie as the same. nginx and ASP.NET ignore case;
/// PHP removes leading spaces, reads a dot, a space and a bracket as `_`, and nothing after a NUL.
fn is_name(name: &[u8], wanted: &[u8]) -> bool {
    let folded = |byte: &u8| match byte {
        b'.' | b' ' | b'[' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    let name = before_nul(name).trim_ascii_start();
    name.len() == wanted.len() && name.iter().map(folded).eq(wanted.iter().map(folded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_by_hand() {
        #[rustfmt::skip]
        let table: [(&[u8], &[u8]); 24] = [
            (b"abcdef",             b"abcdef"),
            (b"%61bcdef",           b"abcdef"),
            (b"a%62cde%66",         b"abcdef"),
            (b"\"abcdef\"",         b"abcdef"),
            (b"\"%61bcdef\"",       b"abcdef"),
            (b"\"\\141bcdef\"",     b"abcdef"),
            (b"\"\\abcdef\"",       b"abcdef"),
            (b"\"abcdef!",          b"abcdef"),
            // Once, and not again.
            (b"%2561",              b"%61"),
            (b"\"\\045\\066\\061\"", b"a"),
            // Invalid escapes.
            (b"%zz%4",              b"%zz%4"),
            (b"%",                  b"%"),
            (b"%6",                 b"%6"),
            (b"\"\\999\"",          b"999"),
            (b"\"\\14\"",           b"14"),
            (b"\"a\\\"",            b"a\\"),
            // Without quotes a backslash is literal, and a plus always is.
            (b"\\141",              b"\\141"),
            (b"a+b",                b"a+b"),
            (b"\"\\\"\"",           b"\""),
            (b"\"",                 b"\""),
            (b"\"\"",               b""),
            (b"\"s 1\"",            b"s 1"),
            (b"%ff",                b"\xff"),
            (b"\"\\377\"",          b"\xff"),
        ];
        for (written, read) in table {
            let found = cookie_value(written);
            let [written, found, read] = [written, &found, read].map(<[u8]>::escape_ascii);
            assert_eq!(found.to_string(), read.to_string(), "{written}");
        }
    }

    #[test]
    fn parameters_by_hand() {
        #[rustfmt::skip]
        let table: [(&[u8], &[u8]); 5] = [
            (b"a%20b+c",    b"a b c"),
            (b"a%2Bb",      b"a+b"),
            (b"%2561",      b"%61"),
            (b"%zz%4",      b"%zz%4"),
            (b"%ff",        b"\xff"),
        ];
        for (written, read) in table {
            assert_eq!(*decoded(written), *read, "{}", written.escape_ascii());
        }
    }

    #[test]
    fn names_of_parameters_by_hand() {
        for name in [
            "api_key",
            "API_KEY",
            "api.key",
            "api key",
            " api_key",
            "api[key",
            "api_key[]",
            "api_key[0]",
            "api_key[][1]",
            "[api_key]",
            "[api_key][]",
            "[Api.Key][7]",
            "api_key[]]",
            "[api_key]]",
            "[api_key]x",
            "api_key[0]x",
            "api_key[0][1]]",
            "api_key\0",
            "api_key\0x",
            " api.key\0[x]",
            "api_key[0]\0x",
        ] {
            assert!(is_parameter(name.as_bytes(), b"api_key"), "{name}");
        }
        for name in [
            "",
            "[",
            "[]",
            "api_keys",
            "xapi_key",
            "api-key",
            "apikey",
            "api_key[x]",
            "api_key[",
            "api_key]",
            "[api_key",
            "[]api_key",
            "[[api_key]]",
            "\0api_key",
            "api\0_key",
            "api_key[\0]",
        ] {
            assert!(!is_parameter(name.as_bytes(), b"api_key"), "{name}");
        }
        assert!(is_parameter(b"My.Key", b"my.key") && is_parameter(b"my_key", b"my.key"));
    }

    proptest::proptest! {
        /// Any text is read, and never becomes longer.
        #[test]
        fn nothing_is_too_strange(value in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
            proptest::prop_assert!(cookie_value(&value).len() <= value.len());
            proptest::prop_assert!(decoded(&value).len() <= value.len());
        }
    }
}
