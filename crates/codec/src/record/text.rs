//! Texts as JSON, in ASCII alone: what clients choose cannot reorder a line in a terminal.

/// Writes a text with its quotes.
pub(super) fn quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.extend_from_slice(text.as_bytes());
    } else {
        for character in text.chars() {
            escaped(out, character);
        }
    }
    out.push(b'"');
}

fn escaped(out: &mut Vec<u8>, character: char) {
    match character {
        '"' | '\\' => out.extend([b'\\', character as u8]),
        ' '..='~' => out.push(character as u8),
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
    }
}

/// Writes a list of items, which `write` writes, between these brackets.
pub(super) fn list<T>(
    out: &mut Vec<u8>,
    [begin, end]: [u8; 2],
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(begin);
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_ascii_and_reads_as_it_was(text in any::<String>()) {
            let mut out = Vec::new();
            quoted(&mut out, &text);
            prop_assert!(out.iter().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }
}
