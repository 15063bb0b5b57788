//! Takes a map apart by a table of its keys, and says which ones are unknown, doubled or of the wrong kind.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use strsim::levenshtein;

use super::{Entry, Key, Kind, Node, Place, Problems, ScalarKind, Value};

/// Which rule and which field a problem is about.
#[derive(Debug, Clone)]
pub struct Spot {
    rule: Option<Arc<str>>,
    path: String,
}

impl Spot {
    /// The document as a whole.
    pub fn document() -> Self {
        Self {
            rule: None,
            path: String::new(),
        }
    }

    /// The rule with this id, as a whole.
    pub fn rule_with_id(id: &str) -> Self {
        Self {
            rule: Some(id.into()),
            path: String::new(),
        }
    }

    /// A field of this one.
    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        let path = if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        };
        Self {
            rule: self.rule.clone(),
            path,
        }
    }

    /// An item of this list, counted from zero.
    #[must_use]
    pub fn item(&self, index: usize) -> Self {
        Self {
            rule: self.rule.clone(),
            path: format!("{}[{index}]", self.path),
        }
    }

    /// The rule's id, if it is about one.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The field's path; empty for the whole.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reports what is wrong with a node. Always `None`, for the caller to return.
    pub fn refused<T>(
        &self,
        node: &Node,
        message: impl Into<String>,
        problems: &mut Problems,
    ) -> Option<T> {
        problems.error(&node.place, self, message);
        None
    }

    /// The text of a node.
    pub fn text<'n>(&self, node: &'n Node, problems: &mut Problems) -> Option<&'n str> {
        match &node.value {
            Value::Scalar(scalar)
                if matches!(scalar.kind, ScalarKind::Plain | ScalarKind::Text) =>
            {
                Some(&scalar.text)
            }
            _ => {
                let message = format!("this must be text, not {}", node.kind());
                self.refused(node, message, problems)
            }
        }
    }

    /// The whole number that a node says, within `least..=most`.
    pub fn integer(
        &self,
        node: &Node,
        least: u64,
        most: u64,
        problems: &mut Problems,
    ) -> Option<u64> {
        let number = match &node.value {
            Value::Scalar(scalar) if scalar.kind != ScalarKind::Text => scalar.text.parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let said = match &node.value {
                Value::Scalar(scalar) if scalar.kind == ScalarKind::Text => {
                    format!("the text `{}` in quotes", scalar.text)
                }
                Value::Scalar(scalar) => format!("`{}`", scalar.text),
                _ => node.kind().to_owned(),
            };
            let digits = match &node.value {
                Value::Scalar(scalar) => digits_of(&scalar.text),
                _ => None,
            };
            let instead = digits.map(|digits| format!("; write `{digits}`"));
            let message = format!(
                "this must be a whole number from {least} to {most}, not {said}{}",
                instead.unwrap_or_default()
            );
            problems.error(&node.place, self, message);
        }
        number
    }

    /// Whether a node says `true` or `false`.
    pub fn boolean(&self, node: &Node, problems: &mut Problems) -> Option<bool> {
        let said = match &node.value {
            Value::Scalar(scalar) if scalar.kind != ScalarKind::Text => scalar.text.parse().ok(),
            _ => None,
        };
        let message = "this must be true or false, without quotes";
        said.or_else(|| self.refused(node, message, problems))
    }

    /// Which of these words a node says.
    pub fn one_of<T: Copy>(
        &self,
        node: &Node,
        words: &[(&str, T)],
        problems: &mut Problems,
    ) -> Option<T> {
        let said = self.text(node, problems)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == said) {
            return Some(*value);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let message = format!(
            "`{said}` is unknown; expected one of {}{}",
            listed(&known),
            suggestion(said, &known)
        );
        self.refused(node, message, problems)
    }

    /// Parses a node's text. An error becomes a problem with its message.
    pub fn parsed<T, E: Display>(
        &self,
        node: &Node,
        parse: impl FnOnce(&str) -> Result<T, E>,
        problems: &mut Problems,
    ) -> Option<T> {
        let text = self.text(node, problems)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) => self.refused(node, error.to_string(), problems),
        }
    }

    /// The items of a list, each with its spot. One value counts as a list of one.
    pub fn items<'n>(&self, node: &'n Node, problems: &mut Problems) -> Vec<(Spot, &'n Node)> {
        match &node.value {
            Value::List(list) => {
                let spot = |(index, item)| (self.item(index), item);
                list.iter().enumerate().map(spot).collect()
            }
            Value::Scalar(_) => vec![(self.clone(), node)],
            Value::Null | Value::Map(_) => {
                problems.error(
                    &node.place,
                    self,
                    format!("this must be text or a list of texts, not {}", node.kind()),
                );
                Vec::new()
            }
        }
    }

    /// The entries of a map with arbitrary keys. A duplicate key is a problem.
    pub fn entries<'n>(&self, node: &'n Node, problems: &mut Problems) -> &'n [Entry] {
        let Value::Map(entries) = &node.value else {
            problems.error(
                &node.place,
                self,
                format!("this must be a map, not {}", node.kind()),
            );
            return &[];
        };
        let mut seen: HashMap<&str, &Place> = HashMap::with_capacity(entries.len());
        for entry in entries {
            if let Some(first) = seen.get(entry.key.as_str()) {
                let message = format!(
                    "the key `{}` is there twice{}; keep one",
                    entry.key,
                    first.as_first()
                );
                problems.error(&entry.key_place, self, message);
            } else {
                seen.insert(&entry.key, &entry.key_place);
            }
        }
        entries
    }
}

/// A map whose keys are in a table.
pub struct Fields<'n> {
    spot: Spot,
    entries: &'n [Entry],
    keys: Vec<&'static Key>,
    /// Keys about which everything is said.
    refused: Vec<&'static str>,
    /// Keys that may be there and have no effect.
    ignored: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// Begins to take a map apart that may have these keys. Nothing, and a problem, if it is not a map.
    pub fn new(
        node: &'n Node,
        spot: Spot,
        keys: impl IntoIterator<Item = &'static Key>,
        problems: &mut Problems,
    ) -> Option<Self> {
        if !matches!(node.value, Value::Map(_)) {
            let message = format!("this must be a map with keys, not {}", node.kind());
            return spot.refused(node, message, problems);
        }
        let entries = spot.entries(node, problems);
        Some(Self {
            spot,
            entries,
            keys: keys.into_iter().collect(),
            refused: Vec::new(),
            ignored: Vec::new(),
        })
    }

    /// The position of this map, for messages.
    pub fn spot(&self) -> &Spot {
        &self.spot
    }

    /// The row of a key that the map may have.
    pub(crate) fn row(&self, key: &str) -> Option<&'static Key> {
        self.keys.iter().find(|row| row.name == key).copied()
    }

    /// The default of a key, as JSON or plain text. Empty if it is not a single value.
    pub fn default_of(&self, key: &str) -> &'static str {
        self.row(key).map_or("", |row| row.default)
    }

    /// The value of a key, if it is there and not empty.
    pub fn take(&self, key: &str) -> Option<(Spot, &'n Node)> {
        debug_assert!(self.row(key).is_some(), "`{key}` is not in its table");
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        if matches!(entry.value.value, Value::Null) {
            return None;
        }
        Some((self.spot.field(key), &entry.value))
    }

    /// The whole number of a key, within the bounds of its row.
    pub fn integer(&self, key: &str, problems: &mut Problems) -> Option<u64> {
        let (spot, node) = self.take(key)?;
        let Some(Kind::Whole(least, most)) = self.row(key).map(|row| row.kind) else {
            debug_assert!(false, "`{key}` is not a whole number");
            return None;
        };
        spot.integer(node, least, most, problems)
    }

    /// What the text of a key stands for, or a problem in the words of its error.
    pub fn parsed<T, E: Display>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
        problems: &mut Problems,
    ) -> Option<T> {
        let (spot, node) = self.take(key)?;
        spot.parsed(node, parse, problems)
    }

    /// What the texts of a list stand for, or a problem for each that cannot be read. One value
    /// counts as a list of one.
    pub fn list<T, E: Display>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
        problems: &mut Problems,
    ) -> Vec<T> {
        let items = self
            .take(key)
            .map(|(spot, node)| spot.items(node, problems));
        let item = |(spot, node): (Spot, &Node)| spot.parsed(node, &parse, problems);
        items.into_iter().flatten().filter_map(item).collect()
    }

    /// The text of a key.
    pub fn text(&self, key: &str, problems: &mut Problems) -> Option<&'n str> {
        let (spot, node) = self.take(key)?;
        spot.text(node, problems)
    }

    /// The key as it was written, if it is there.
    pub fn key(&self, key: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Whether an unknown key is probably this one, misspelt.
    pub(crate) fn is_misspelt(&self, key: &str) -> bool {
        let known: Vec<&str> = self.keys.iter().map(|row| row.name).collect();
        let mut unknown = (self.entries.iter()).filter(|entry| self.row(&entry.key).is_none());
        unknown.any(|entry| nearest(&entry.key, &known) == Some(key))
    }

    /// Reports a key that does not belong here, if it is present.
    pub fn refuse(&mut self, key: &'static str, message: &str, problems: &mut Problems) {
        if let Some(entry) = self.key(key) {
            problems.error(&entry.key_place, &self.spot.field(key), message);
            self.refused.push(key);
        }
    }

    /// Warns of a key that has no effect here, if it is there and was not taken. It is not unknown.
    pub(crate) fn ignore(&mut self, key: &'static str, message: &str, problems: &mut Problems) {
        if self.row(key).is_some() {
            return;
        }
        if let Some(entry) = self.key(key) {
            problems.warning(&entry.key_place, &self.spot.field(key), message);
            self.ignored.push(key);
        }
    }

    /// Reports every key that is not in the table. Whether there was none.
    pub fn done(&self, problems: &mut Problems) -> bool {
        let known: Vec<&str> = self.keys.iter().map(|row| row.name).collect();
        let mut all_known = self.refused.is_empty();
        for entry in self.entries {
            let key = entry.key.as_str();
            if known.contains(&key) || self.refused.contains(&key) || self.ignored.contains(&key) {
                continue;
            }
            all_known = false;
            let message = if key == "<<" {
                "merge keys are not supported; write the keys out".to_owned()
            } else {
                let suggestion = suggestion(key, &known);
                let known = if suggestion.is_empty() {
                    format!("; known are {}", listed(&known))
                } else {
                    String::new()
                };
                format!("unknown key `{key}`{suggestion}{known}")
            };
            problems.error(&entry.key_place, &self.spot.field(key), message);
        }
        all_known
    }
}

/// The digits of a number that is written like `1_000` or `10k`.
fn digits_of(text: &str) -> Option<String> {
    let (number, zeros) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, "000"),
        None => (text, ""),
    };
    let digits = number.replace(['_', '\'', ','], "") + zeros;
    let is_number = number.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && digits != text).then_some(digits)
}

/// The words as a list to be read.
fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

/// The known word that was probably meant, for a message.
pub(crate) fn suggestion(said: &str, known: &[&str]) -> String {
    nearest(said, known).map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

/// The known word that was probably meant. Long words are not compared.
fn nearest<'k>(said: &str, known: &[&'k str]) -> Option<&'k str> {
    if said.len() > 64 {
        return None;
    }
    let said = said.to_lowercase();
    let distances = known.iter().map(|word| (levenshtein(&said, word), *word));
    let (distance, word) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 2 && distance < word.len()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_write_them_are_shown_in_digits() {
        for (text, expected) in [
            ("1_000", Some("1000")),
            ("1,000", Some("1000")),
            ("10k", Some("10000")),
            ("1000", None),
            ("k", None),
            ("_1", None),
            ("1.5k", None),
            ("ten", None),
        ] {
            assert_eq!(digits_of(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_nearest_word_is_suggested() {
        let known = ["limit", "algorithm", "per"];
        assert_eq!(suggestion("limits", &known), " (did you mean `limit`?)");
        assert_eq!(
            suggestion("Algoritm", &known),
            " (did you mean `algorithm`?)"
        );
        assert_eq!(suggestion("colour", &known), "");
        assert_eq!(suggestion(&"limit".repeat(20), &known), "");
    }
}
