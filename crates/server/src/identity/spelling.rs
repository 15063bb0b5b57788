//! One spelling for values that clients may write in many: what services read when they decode a
//! parameter of a query or a cookie.

use std::borrow::Cow;

/// A part of a query: a plus is a space, escapes are decoded once, and what is no escape stays.
pub(super) fn decoded(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.contains(&b'+') {
        return without_escapes(Cow::Borrowed(bytes));
    }
    let space = |byte: &u8| if *byte == b'+' { b' ' } else { *byte };
    without_escapes(Cow::Owned(bytes.iter().map(space).collect()))
}

/// The value of a cookie: without its quotes and what is escaped within them, as Python reads it, and
/// then with its escapes decoded once, as Express, PHP and Ruby do. What is no escape stays.
pub(super) fn cookie_value(value: &[u8]) -> Cow<'_, [u8]> {
    without_escapes(unquoted(value))
}

/// What begins with a quote loses that and its last byte: Express does not look whether it is a quote.
/// Within a pair of quotes, `\141` is a byte in octal digits and `\x` is `x`.
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

/// `%XX` decoded, once.
fn without_escapes(bytes: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if !bytes.contains(&b'%') {
        return bytes;
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = &*bytes;
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'%', [high, low, behind @ ..]) if let Some(byte) = escaped(*high, *low) => {
                decoded.push(byte);
                rest = behind;
            }
            _ => decoded.push(*first),
        }
    }
    Cow::Owned(decoded)
}

fn escaped(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
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
            // What is no escape.
            (b"%zz%4",              b"%zz%4"),
            (b"%",                  b"%"),
            (b"%6",                 b"%6"),
            (b"\"\\999\"",          b"999"),
            (b"\"\\14\"",           b"14"),
            (b"\"a\\\"",            b"a\\"),
            // Without quotes a backslash is one, and a plus always is.
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

    proptest::proptest! {
        /// Whatever is written, it is read, and never as more than was written.
        #[test]
        fn nothing_is_too_strange(value in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
            proptest::prop_assert!(cookie_value(&value).len() <= value.len());
            proptest::prop_assert!(decoded(&value).len() <= value.len());
        }
    }
}
