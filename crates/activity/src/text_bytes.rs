//! Texts and counts as bytes, for what instances publish. Input is not trusted.

use crate::names::NAME_LENGTH;
use crate::record::{put, take};

/// The longest text, in bytes.
const MOST_TEXT: usize = 4 * NAME_LENGTH;

/// A number that is not larger than `most`.
pub(crate) fn take_count(bytes: &mut impl Iterator<Item = u8>, most: usize) -> Option<usize> {
    let count = usize::try_from(take(bytes)?).ok()?;
    (count <= most).then_some(count)
}

/// Writes a text, cut if it is too long.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MOST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put(bytes, end as u64);
    bytes.extend_from_slice(&text.as_bytes()[..end]);
}

/// Reads a text.
pub(crate) fn take_text(bytes: &mut impl Iterator<Item = u8>) -> Option<String> {
    let length = take_count(bytes, MOST_TEXT)?;
    let text: Vec<u8> = bytes.take(length).collect();
    String::from_utf8(text)
        .ok()
        .filter(|text| text.len() == length)
}
