//! Documents that people write: rule files and configuration, as a tree that knows where each part
//! stands.
//!
//! A typed reader stops at the first mistake. This tree is read by hand instead, so that all mistakes are found in one
//! pass, each with its line, its column and what would be accepted. [`Source`] reads YAML (JSON is YAML, too), [`Node`]
//! a JSON body, [`Fields`] takes a map apart by a table of [`Key`]s, [`Problems`] collects the mistakes, [`Schema`]
//! writes the tables as JSON Schema. `write_yaml` writes JSON as YAML. The alternatives:
//! `docs/decisions/004-yaml-tree.md`.

mod excerpt;
mod expanded;
mod fields;
mod json;
mod keys;
mod problems;
mod schema;
mod write_yaml;
mod yaml;

pub(crate) use fields::suggestion;
pub use fields::{Fields, Spot};
pub use keys::{Key, Kind, Presence, value, words};
pub use problems::{Problem, Problems, Severity};
pub use schema::{Schema, SchemaForm};
pub use write_yaml::write_yaml;
pub(crate) use yaml::{MAX_TEXT, only};

/// A part of a document and where it stands.
#[derive(Debug, Clone)]
pub struct Node {
    /// The value as written.
    pub value: Value,
    /// Where.
    pub place: Place,
}

/// The value as written.
#[derive(Debug, Clone)]
pub enum Value {
    /// Nothing: an empty value, `null` or `~`.
    Null,
    /// One value.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in their order. A key may be there twice: [`Fields`] says so.
    Map(Vec<Entry>),
}

/// One value as it was written: `007` is not yet a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalar {
    /// The text, without quotes.
    pub text: String,
    /// The type that the notation implies.
    pub kind: ScalarKind,
}

/// The type of a value that the notation implies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarKind {
    /// Nothing: text without quotes in YAML, an environment variable, a flag.
    Plain,
    /// It is text: quoted, or a string in JSON.
    Text,
    /// It is a number in JSON.
    Number,
    /// It is `true` or `false` in JSON.
    Boolean,
}

/// A key with its value.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key, as text.
    pub key: String,
    /// Where the key stands.
    pub key_place: Place,
    /// Its value.
    pub value: Node,
}

/// Where a part of a document stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the text of a file, counted from one. `width` is how many characters to point at.
    Text {
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
        /// How many characters it takes on that line.
        width: usize,
    },
    /// Overrides of any file: an environment variable or a flag, by its name.
    Setting(String),
    /// Nowhere that could be named.
    Nowhere,
}

impl Place {
    /// The position of an earlier occurrence, as a suffix for messages: `, first in line 3`.
    pub(crate) fn as_first(&self) -> String {
        match self {
            Self::Text { line, .. } => format!(", first in line {line}"),
            Self::Setting(_) | Self::Nowhere => String::new(),
        }
    }
}

/// A file to be read: its name, for messages, and its text.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name in messages.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// A text that messages call `name`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }
}

impl Node {
    /// A node for a value that was set outside of any file.
    pub fn setting(name: &str, text: &str) -> Self {
        Self::scalar(text, ScalarKind::Plain, Place::Setting(name.to_owned()))
    }

    /// A node of text that stands in no document.
    pub fn of_text(text: &str) -> Self {
        Self::scalar(text, ScalarKind::Text, Place::Nowhere)
    }

    fn scalar(text: &str, kind: ScalarKind, place: Place) -> Self {
        let text = text.to_owned();
        let value = Value::Scalar(Scalar { text, kind });
        Self { value, place }
    }

    /// The entries of a map; none of anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key of a map.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let entry = self.entries().iter().find(|entry| entry.key == key);
        entry.map(|entry| &entry.value)
    }

    /// What a scalar says.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// The kind of node, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Scalar(scalar) => match scalar.kind {
                ScalarKind::Plain | ScalarKind::Text => "text",
                ScalarKind::Number => "a number",
                ScalarKind::Boolean => "true or false",
            },
        }
    }
}
