//! Text with the number of a key in it.

/// The placeholder for the number of the key.
const PLACEHOLDER: &str = "{key}";

/// Text in which `{key}` is replaced by the number of a request's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    /// The text before each number.
    before: Vec<String>,
    /// The text after the last number.
    after: String,
}

impl KeyTemplate {
    /// The template that is written so.
    pub fn new(text: &str) -> Self {
        let mut before: Vec<String> = text.split(PLACEHOLDER).map(str::to_owned).collect();
        let after = before.pop().unwrap_or_default();
        Self { before, after }
    }

    /// Whether every key gives the same text.
    pub fn is_fixed(&self) -> bool {
        self.before.is_empty()
    }

    /// The text for a key.
    pub fn fill(&self, key: u64) -> String {
        let mut text = String::new();
        self.write(key, &mut text);
        text
    }

    /// Appends the text for a key.
    pub(crate) fn write(&self, key: u64, text: &mut String) {
        for part in &self.before {
            text.push_str(part);
            text.push_str(itoa::Buffer::new().format(key));
        }
        text.push_str(&self.after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_goes_wherever_the_text_wants_it() {
        for (text, filled) in [
            ("", ""),
            ("user", "user"),
            ("{key}", "42"),
            ("user_{key}", "user_42"),
            ("/{key}/items/{key}?x={ke}", "/42/items/42?x={ke}"),
        ] {
            assert_eq!(KeyTemplate::new(text).fill(42), filled, "{text}");
        }
        assert!(KeyTemplate::new("user").is_fixed());
        assert!(!KeyTemplate::new("{key}").is_fixed());
    }
}
