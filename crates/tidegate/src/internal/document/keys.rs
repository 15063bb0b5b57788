//! The keys that a map of a document may have, as tables. The reader ([`Fields`](super::Fields)), the
//! suggestions for misspelt keys, command-line flags and the [JSON Schema](super::Schema) all go by these rows.

use serde_json::Value;

/// A key that a map may have.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The key as it is written.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// Its description, in one line.
    pub about: &'static str,
    /// Its default, as JSON or plain text. Empty if it is not a single value.
    pub default: &'static str,
    /// A value, as JSON or plain text.
    pub example: &'static str,
    /// What it depends on: algorithms in a rule, settings in the configuration.
    pub needs: &'static [&'static str],
    /// Whether it may be left out.
    pub presence: Presence,
}

/// Whether a key may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It must be there.
    Required,
    /// It may be left out, or be there without a value.
    Optional,
    /// It may be left out, but not be there without a value.
    Filled,
}

/// The kinds of values.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Text. In YAML also a number or a truth value, which are read as text. The pattern may be empty.
    Text(&'static str),
    /// Text that fits a pattern, and that no number fits.
    Pattern(&'static str),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// `true` or `false`.
    Flag,
    /// A list with at least this many items.
    List(usize, &'static Kind),
    /// One value, or a list with at least this many.
    OneOrMore(usize, &'static Kind),
    /// A map with these keys.
    Map(&'static [Key]),
    /// A map whose keys fit a pattern, which may be empty.
    MapOf(&'static str, &'static Kind),
    /// Any of these.
    Any(&'static [Kind]),
    /// A kind with a name of its own.
    Named(&'static str, &'static Kind),
    /// A kind with a name that it is a part of.
    Again(&'static str),
    /// Anything.
    Free,
}

impl Key {
    /// A key that may be left out.
    pub const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self {
            name,
            kind,
            about,
            default: "",
            example: "",
            needs: &[],
            presence: Presence::Optional,
        }
    }

    /// Makes the key required.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.presence = Presence::Required;
        self
    }

    /// Requires a value if the key is present.
    #[must_use]
    pub const fn filled(mut self) -> Self {
        self.presence = Presence::Filled;
        self
    }

    /// Sets the default.
    #[must_use]
    pub const fn or(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    /// The same with an example.
    #[must_use]
    pub const fn like(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    /// Sets what the key depends on.
    #[must_use]
    pub const fn needs(mut self, needs: &'static [&'static str]) -> Self {
        self.needs = needs;
        self
    }
}

impl Kind {
    /// Whether a value, or each of several, may be of a kind for which this holds.
    pub fn may_be(&self, is: fn(&Self) -> bool) -> bool {
        match self {
            Self::Any(kinds) => kinds.iter().any(|kind| kind.may_be(is)),
            Self::Named(_, kind) | Self::OneOrMore(_, kind) => kind.may_be(is),
            kind => is(kind),
        }
    }
}

/// The words of a list of choices.
pub const fn words<T: Copy, const N: usize>(choices: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut index = 0;
    while index < N {
        words[index] = choices[index].0;
        index += 1;
    }
    words
}

/// A default or an example as JSON. Anything that is not JSON is text.
pub fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}
