//! Queries of URLs, which may have secrets.

use std::borrow::Cow;

/// A text without the query of any URL in it: of each word that begins with a slash or has a scheme, what is from its
/// first question mark on is left out.
pub fn without_queries(text: &str) -> Cow<'_, str> {
    if !text.contains('?') {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| c.is_whitespace() || matches!(c, '"' | ',' | '>')) {
        let end = word
            .trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '"' | ',' | '>'))
            .len();
        let (url, after) = word.split_at(end);
        let cut = url.split_once('?').map(|(before, _)| before);
        match cut.filter(|before| {
            before.trim_start_matches(['<', '(']).starts_with('/') || before.contains("//")
        }) {
            Some(before) => kept.push_str(before),
            None => kept.push_str(url),
        }
        kept.push_str(after);
    }
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_urls_are_left_out_and_other_question_marks_are_not() {
        for (text, expected) in [
            ("https://h.example/a?token=k", "https://h.example/a"),
            ("https://h.example?token=k", "https://h.example"),
            ("//h.example/a?token=k#b", "//h.example/a"),
            ("/a?token=k", "/a"),
            ("GET /a?token=k HTTP/1.1", "GET /a HTTP/1.1"),
            ("<https://a/?k>, </b?k>", "<https://a/>, </b>"),
            ("https://a/?k, https://b/?k", "https://a/, https://b/"),
            ("who?", "who?"),
            ("is/it?", "is/it?"),
            ("/plain", "/plain"),
        ] {
            assert_eq!(without_queries(text), expected, "{text}");
        }
    }
}
