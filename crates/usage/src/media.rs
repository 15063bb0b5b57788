//! Finds media in the body of a request: long strings of base64, which are not text for a model.

/// Strings that are no longer count as text.
pub(crate) const LONGEST_TEXT: usize = 1_024;
/// How far the comma of a data URL is looked for.
const LONGEST_PREFIX: usize = 256;

/// The media in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FoundMedia {
    /// How many strings there are.
    pub(crate) count: u64,
    /// How many bytes they have together, as written, without quotes.
    pub(crate) bytes: usize,
}

impl FoundMedia {
    /// Adds a string of the body, as written between its quotes, if it is media.
    pub(crate) fn add(&mut self, text: &[u8]) {
        if is_media(text) {
            self.count += 1;
            self.bytes += text.len();
        }
    }
}

/// Whether a string is more than 1,024 bytes of base64, by either alphabet, as such or as a data URL.
fn is_media(text: &[u8]) -> bool {
    let mut bytes = Unescaped(text);
    let mut length = 0;
    if bytes.clone().take(5).eq(*b"data:") {
        let mut prefix = bytes.by_ref().take(LONGEST_PREFIX);
        let Some(comma) = prefix.position(|byte| byte == b',') else {
            return false;
        };
        length = comma + 1;
    }
    let mut padding = 0;
    for byte in bytes {
        length += 1;
        match byte {
            b'=' => padding += 1,
            _ if padding > 0 => return false,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' | b'-' | b'_' => {}
            _ => return false,
        }
    }
    length > LONGEST_TEXT && padding <= 2
}

/// The bytes of a string without its escapes. What is not ASCII is 0: it is not base64.
#[derive(Clone)]
struct Unescaped<'a>(&'a [u8]);

impl Iterator for Unescaped<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = match self.0 {
            [b'\\', b'u', a, b, c, d, rest @ ..] => {
                let digits = [*a, *b, *c, *d];
                let digits = str::from_utf8(&digits).unwrap_or_default();
                let unit = u8::from_str_radix(digits, 16);
                (unit.unwrap_or_default(), rest)
            }
            [b'\\', b'/', rest @ ..] => (b'/', rest),
            [b'\\', _, rest @ ..] => (0, rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => return None,
        };
        self.0 = rest;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(text: &str) -> (u64, usize) {
        let mut found = FoundMedia::default();
        found.add(text.as_bytes());
        (found.count, found.bytes)
    }

    #[test]
    fn long_base64_is_media() {
        let long = "aB3+/-_".repeat(200);
        assert_eq!(media(&long), (1, 1_400));
        assert_eq!(media(&format!("{long}==")), (1, 1_402));
        let url = format!("data:image/png;base64,{long}");
        assert_eq!(media(&url), (1, url.len()));
        // As PHP and .NET write it.
        let escaped = r"ab\/c\u002Bd".repeat(200);
        assert_eq!(media(&escaped), (1, escaped.len()));
    }

    #[test]
    fn anything_else_is_text() {
        let long = "a".repeat(1_400);
        for text in [
            "a".repeat(1_024),
            format!("{long} b"),
            format!("{long}==="),
            format!("{long}=a"),
            format!("data:image/png;base64 {long}"),
            format!("data:{}, {long}", "x".repeat(300)),
            format!("{long}ä"),
            format!(r"{long}\n"),
            r"\u0041".repeat(400),
        ] {
            assert_eq!(media(&text), (0, 0), "{text}");
        }
    }

    #[test]
    fn the_threshold_is_about_the_text_and_not_its_escapes() {
        assert_eq!(media(&r"\/".repeat(1_024)), (0, 0));
        assert_eq!(media(&r"\/".repeat(1_025)), (1, 2_050));
    }
}
