//! Text that clients choose, made harmless for terminals and logs.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character shows itself and changes nothing else: it is no control character, and it neither hides
/// nor reorders the text around it.
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}'..='\u{ffff}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text with every character that is not [printable](is_printable) as an escape, such as `\u{1b}`. A
/// backslash stays as it is.
///
/// ```
/// assert_eq!(tidegate::printable::escaped("\u{1b}[2J"), "\\u{1b}[2J");
/// ```
pub fn escaped(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_printable(c) {
            escaped.push(c);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "\\u{{{:x}}}", u32::from(c));
        }
    }
    Cow::Owned(escaped)
}

/// Bytes as hexadecimal digits in lower case.
///
/// ```
/// assert_eq!(tidegate::printable::hexadecimal(&[0, 0xab]), "00ab");
/// ```
pub fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 0xf)]);
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        digits.push(digit(byte >> 4));
        digits.push(digit(*byte));
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_or_reorder_text_is_escaped() {
        #[rustfmt::skip]
        let table = [
            ("plain",                           "plain"),
            ("ü 漢 🌊 \u{fffd}",                "ü 漢 🌊 \u{fffd}"),
            ("<img src=x onerror=alert(1)>",    "<img src=x onerror=alert(1)>"),
            ("\u{1b}[2J",                       "\\u{1b}[2J"),
            ("a\r\nb\tc\0",                     "a\\u{d}\\u{a}b\\u{9}c\\u{0}"),
            ("\u{9b}31m",                       "\\u{9b}31m"),
            ("\u{202e}txt.exe\u{2066}",         "\\u{202e}txt.exe\\u{2066}"),
            ("a\u{200b}b\u{61c}",               "a\\u{200b}b\\u{61c}"),
            ("\u{e0041}",                       "\\u{e0041}"),
        ];
        for (text, expected) in table {
            assert_eq!(escaped(text), expected);
        }
    }
}
