//! The value of an attribute, in the one form that makes a key: bytes that are not UTF-8 are written
//! out. `credentials.rs` has the form of credentials.

use std::borrow::Cow;

/// Stands in front of the two hexadecimal digits of a byte that is not part of UTF-8 text.
const MARK: char = char::REPLACEMENT_CHARACTER;

/// The value of an attribute as it was received: text, or bytes that are not UTF-8.
///
/// Text stands for itself. Of other bytes, each one that is not part of valid UTF-8 becomes `�` and two
/// hexadecimal digits: `k\xff` becomes `k�FF`. A `�` in the text itself is written in the same way, as
/// `�EF�BF�BD`. So two values have the same form only if they are the same bytes.
///
/// ```
/// use tidegate::Attributes;
///
/// let mut attributes = Attributes::new();
/// attributes.insert("api_key", &b"k\xff"[..])?;
/// attributes.insert("user_id", "u1")?;
/// assert_eq!(attributes.get("api_key"), Some("k\u{fffd}FF"));
/// assert_eq!(attributes.get("user_id"), Some("u1"));
/// # Ok::<(), tidegate::AttributeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeValue<'a>(Received<'a>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Received<'a> {
    Text(Cow<'a, str>),
    /// Never valid UTF-8.
    Bytes(Cow<'a, [u8]>),
}

impl<'a> AttributeValue<'a> {
    /// The bytes as they were received.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Received::Text(text) => text.as_bytes(),
            Received::Bytes(bytes) => bytes,
        }
    }

    /// Whether the value is empty: such an attribute counts as missing.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// The value as text, in the form that makes keys.
    pub fn into_form(self) -> Cow<'a, str> {
        match self.0 {
            Received::Text(text) if text.is_ascii() || !text.contains(MARK) => text,
            Received::Text(text) => Cow::Owned(written_out(text.as_bytes())),
            Received::Bytes(bytes) => Cow::Owned(written_out(&bytes)),
        }
    }

    /// The value if it is text; otherwise returns it unchanged.
    pub(crate) fn into_text(self) -> Result<Cow<'a, str>, Self> {
        match self.0 {
            Received::Text(text) => Ok(text),
            bytes @ Received::Bytes(_) => Err(Self(bytes)),
        }
    }
}

impl<'a> From<&'a str> for AttributeValue<'a> {
    fn from(text: &'a str) -> Self {
        Self(Received::Text(Cow::Borrowed(text)))
    }
}

impl From<String> for AttributeValue<'_> {
    fn from(text: String) -> Self {
        Self(Received::Text(Cow::Owned(text)))
    }
}

impl<'a> From<&'a String> for AttributeValue<'a> {
    fn from(text: &'a String) -> Self {
        Self::from(text.as_str())
    }
}

impl<'a> From<Cow<'a, str>> for AttributeValue<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self(Received::Text(text))
    }
}

impl<'a> From<&'a [u8]> for AttributeValue<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self::from(text),
            Err(_) => Self(Received::Bytes(Cow::Borrowed(bytes))),
        }
    }
}

impl From<Vec<u8>> for AttributeValue<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::from(text),
            Err(error) => Self(Received::Bytes(Cow::Owned(error.into_bytes()))),
        }
    }
}

impl<'a> From<Cow<'a, [u8]>> for AttributeValue<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        match bytes {
            Cow::Borrowed(bytes) => Self::from(bytes),
            Cow::Owned(bytes) => Self::from(bytes),
        }
    }
}

/// The text that a form was made of; for values of rules, which are always text.
pub(crate) fn text_of_form(form: &str) -> String {
    form.replace("\u{fffd}EF\u{fffd}BF\u{fffd}BD", "\u{fffd}")
}

fn written_out(bytes: &[u8]) -> String {
    let mut form = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == MARK {
                push_bytes(&mut form, character.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                form.push(character);
            }
        }
        push_bytes(&mut form, chunk.invalid());
    }
    form
}

fn push_bytes(form: &mut String, bytes: &[u8]) {
    let digit = |value: u8| char::from(b"0123456789ABCDEF"[usize::from(value & 15)]);
    for byte in bytes {
        form.extend([MARK, digit(byte >> 4), digit(*byte)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_of_bytes_by_hand() {
        #[rustfmt::skip]
        let table: [(&[u8], &str); 7] = [
            (b"",                   ""),
            (b"k1",                 "k1"),
            ("größe".as_bytes(),    "größe"),
            (b"k\xff",              "k�FF"),
            (b"k\xfe",              "k�FE"),
            (b"\xc3(\xc3\xa4",      "�C3(ä"),
            ("k�FF".as_bytes(),     "k�EF�BF�BDFF"),
        ];
        for (bytes, form) in table {
            assert_eq!(AttributeValue::from(bytes).into_form(), form, "{bytes:?}");
            let owned = AttributeValue::from(bytes.to_vec());
            assert_eq!(owned.into_form(), form, "{bytes:?}");
        }
        assert_eq!(AttributeValue::from("k�FF").into_form(), "k�EF�BF�BDFF");
        assert_eq!(text_of_form("k�EF�BF�BDFF"), "k�FF");
    }

    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"a".to_vec()),
            Just(b"FF".to_vec()),
            Just("�".as_bytes().to_vec()),
            Just("�FF".as_bytes().to_vec()),
            Just(b"\xff".to_vec()),
            Just(b"\xef\xbf".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    /// The bytes that a form was made of.
    fn read_back(form: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = form;
        while let Some(character) = rest.chars().next() {
            rest = &rest[character.len_utf8()..];
            if character == MARK {
                bytes.push(u8::from_str_radix(&rest[..2], 16).unwrap());
                rest = &rest[2..];
            } else {
                bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        bytes
    }

    proptest! {
        /// Different bytes have different forms, because each form can be read back.
        #[test]
        fn no_two_values_have_the_same_form(bytes in any_bytes()) {
            let form = AttributeValue::from(bytes.as_slice()).into_form();
            prop_assert_eq!(read_back(&form), bytes);
        }
    }
}
