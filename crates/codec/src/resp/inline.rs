//! Inline commands, as a person types them: words between spaces, in quotes if they contain spaces.

/// Splits a line into words, appended to `words`; `None` if a quote is not closed.
pub(super) fn split(
    line: &[u8],
    words: &mut Vec<u8>,
    ranges: &mut Vec<(usize, usize)>,
) -> Option<()> {
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(());
        }
        let start = words.len();
        rest = word(rest, words)?;
        ranges.push((start, words.len()));
    }
}

/// Takes one word, which may be quoted in part, and returns the rest.
fn word<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((byte, after)) = rest.split_first() {
        match byte {
            b'"' => return end_of_word(double_quoted(after, words)?),
            b'\'' => return end_of_word(single_quoted(after, words)?),
            space if space.is_ascii_whitespace() => break,
            _ => {
                words.push(*byte);
                rest = after;
            }
        }
    }
    Some(rest)
}

/// A closing quote ends the word.
fn end_of_word(rest: &[u8]) -> Option<&[u8]> {
    let is_end = rest.first().is_none_or(u8::is_ascii_whitespace);
    is_end.then_some(rest)
}

fn single_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'\'', after @ ..] => {
                words.push(b'\'');
                rest = after;
            }
            [b'\'', after @ ..] => return Some(after),
            [byte, after @ ..] => {
                words.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                words.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                words.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = after;
            }
            [b'"', after @ ..] => return Some(after),
            [byte, after @ ..] => {
                words.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

/// The value of a valid digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a') + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_by_hand() {
        #[rustfmt::skip]
        let table: [(&str, Option<&[&[u8]]>); 12] = [
            ("PING",                            Some(&[b"PING"])),
            ("  CL.THROTTLE  a\t15 30 60 ",     Some(&[b"CL.THROTTLE", b"a", b"15", b"30", b"60"])),
            ("",                                Some(&[])),
            (" \t",                             Some(&[])),
            (r#"ECHO "a b""#,                   Some(&[b"ECHO", b"a b"])),
            (r#"ECHO "\x00\xfF\n\"\\""#,        Some(&[b"ECHO", b"\x00\xff\n\"\\"])),
            (r"ECHO 'a \' \n'",                 Some(&[b"ECHO", br"a ' \n"])),
            (r#"ECHO """#,                      Some(&[b"ECHO", b""])),
            (r#"ECHO pre"fix""#,                Some(&[b"ECHO", b"prefix"])),
            (r#"ECHO "a"b"#,                    None),
            (r#"ECHO "a"#,                      None),
            (r"ECHO 'a",                        None),
        ];
        for (line, wanted) in table {
            let (mut words, mut ranges) = (Vec::new(), Vec::new());
            let split = split(line.as_bytes(), &mut words, &mut ranges);
            let found: Vec<&[u8]> = ranges.iter().map(|(a, b)| &words[*a..*b]).collect();
            assert_eq!(split.map(|()| &found[..]), wanted, "{line}");
        }
    }
}
