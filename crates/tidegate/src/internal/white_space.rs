//! White space as upstream servers treat it. HTTP knows the space and the tab alone. Many servers decode a header
//! first, as Latin-1 or UTF-8, and then trim Unicode white space.

use std::borrow::Cow;

/// The white space that Latin-1 has and ASCII does not: NEL and the no-break space.
const LATIN1: [u8; 2] = [0x85, 0xa0];

/// A value without the white space around it: of ASCII, of Unicode in UTF-8, and of Latin-1 where the byte
/// is not part of UTF-8 text.
///
/// ```
/// use tidegate::white_space::trimmed;
///
/// assert_eq!(trimmed(b" \tkey\xa0"), b"key");
/// assert_eq!(trimmed("\u{3000}key\u{a0} ".as_bytes()), b"key");
/// ```
pub fn trimmed(value: &[u8]) -> &[u8] {
    let mut rest = value.trim_ascii();
    while let Some(length) = length_at_start(rest) {
        rest = rest[length..].trim_ascii_start();
    }
    while let Some(length) = length_at_end(rest) {
        rest = rest[..rest.len() - length].trim_ascii_end();
    }
    rest
}

/// A value in which all white space that [`trimmed`] cuts is spaces and tabs.
pub fn plain(value: &[u8]) -> Cow<'_, [u8]> {
    if value.is_ascii() {
        return Cow::Borrowed(value);
    }
    let mut plain = Vec::with_capacity(value.len());
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_whitespace() && character != '\t' {
                plain.push(b' ');
            } else {
                plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        let in_place = |byte: &u8| if LATIN1.contains(byte) { b' ' } else { *byte };
        plain.extend(chunk.invalid().iter().map(in_place));
    }
    Cow::Owned(plain)
}

/// How long the white space beyond ASCII is with which a value begins.
fn length_at_start(value: &[u8]) -> Option<usize> {
    let first = value.first().filter(|byte| !byte.is_ascii())?;
    let chunk = value.utf8_chunks().next()?;
    match chunk.valid().chars().next() {
        Some(character) => character.is_whitespace().then(|| character.len_utf8()),
        None => LATIN1.contains(first).then_some(1),
    }
}

/// How long the white space beyond ASCII is with which a value ends.
fn length_at_end(value: &[u8]) -> Option<usize> {
    let last = value.last().filter(|byte| !byte.is_ascii())?;
    // The shortest end that is text is its last character.
    let ends = (2..=4).filter_map(|length| value.get(value.len().checked_sub(length)?..));
    let mut texts = ends.filter_map(|end| str::from_utf8(end).ok());
    let character = texts.next().and_then(|text| text.chars().next());
    match character {
        Some(character) => character.is_whitespace().then(|| character.len_utf8()),
        None => LATIN1.contains(last).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_by_hand() {
        #[rustfmt::skip]
        let table: [(&[u8], &[u8]); 14] = [
            (b"",                               b""),
            (b" \t ",                           b""),
            (b" k ",                            b"k"),
            (b"k\xa0",                          b"k"),
            (b"\x85 \xa0k k\xa0\t\x85",         b"k k"),
            ("\u{a0}k\u{2003}\u{3000}".as_bytes(), b"k"),
            ("\u{85}k\u{2028}".as_bytes(),      b"k"),
            (b"\xa0",                           b""),
            // Part of text that ends with such a byte.
            ("k\u{e0}".as_bytes(),              "k\u{e0}".as_bytes()),
            ("k\u{2020}\u{c5}".as_bytes(),      "k\u{2020}\u{c5}".as_bytes()),
            ("\u{e0}k".as_bytes(),              "\u{e0}k".as_bytes()),
            // Not white space.
            (b"k\xff",                          b"k\xff"),
            (b"\xffk",                          b"\xffk"),
            ("\u{200b}k\u{200b}".as_bytes(),    "\u{200b}k\u{200b}".as_bytes()),
        ];
        for (written, read) in table {
            let [found, expected] = [trimmed(written), read].map(<[u8]>::escape_ascii);
            let written = written.escape_ascii();
            assert_eq!(found.to_string(), expected.to_string(), "{written}");
        }
        assert_eq!(&*plain(b"a\tb c"), b"a\tb c");
        assert_eq!(&*plain(b"a\xa0b\xff\x85c"), b"a b\xff c");
        let text = "a\u{a0}b\u{e0}\u{3000}";
        assert_eq!(*plain(text.as_bytes()), *"a b\u{e0} ".as_bytes());
    }

    proptest::proptest! {
        /// Nothing is cut twice, and what is cut is at the ends.
        #[test]
        fn what_is_trimmed_stays(value in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..12)) {
            let once = trimmed(&value);
            proptest::prop_assert_eq!(trimmed(once), once);
            proptest::prop_assert!(value.windows(once.len().max(1)).any(|part| part == once) || once.is_empty());
            proptest::prop_assert!(plain(&value).len() <= value.len());
        }
    }
}
