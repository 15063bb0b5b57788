//! What a rule that is written as a descriptor says beside: to whom it applies, and on which state.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::wildcard::Wildcard;
use super::{DOMAIN, entries};
use crate::attributes::Attributes;
use crate::rules::rule::{Key, joined};

/// The way from the domain to a limit.
#[derive(Debug, Default)]
pub(in crate::rules) struct Descriptor {
    pub(super) domain: String,
    pub(super) steps: Vec<Step>,
    /// What the limit is called; empty if it is not.
    pub(in crate::rules) name: String,
    pub(in crate::rules) replaces: Vec<String>,
    pub(in crate::rules) is_quota: bool,
}

/// One entry of a descriptor as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) key: String,
    pub(super) wanted: Wanted,
}

/// Which values of an entry are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// This one.
    Text(String),
    /// Those that fit, each with a counter of its own unless they share one.
    Fitting { wildcard: Wildcard, is_shared: bool },
    /// Any, each with a counter of its own.
    Any,
}

impl Wanted {
    fn fits(&self, value: &str) -> bool {
        match self {
            Self::Text(text) => text == value,
            Self::Fitting { wildcard, .. } => wildcard.matches(value),
            Self::Any => true,
        }
    }

    /// Whether the value is part of the name of the counter.
    pub(super) fn is_counted_by(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Fitting { is_shared, .. } => !is_shared,
            Self::Any => true,
        }
    }
}

impl Descriptor {
    /// On which state a request's descriptor is charged: by the values that this one leaves open.
    pub(in crate::rules) fn key<'a>(&self, attributes: &'a Attributes<'_>) -> Key<'a> {
        let domain = attributes.get(DOMAIN);
        if domain.is_some_and(|domain| domain != self.domain) {
            return Key::Skipped;
        }
        let mut values: SmallVec<[Cow<'a, str>; 4]> = SmallVec::new();
        let mut given = entries(attributes);
        for step in &self.steps {
            match given.next() {
                Some((key, value)) if key == step.key && step.wanted.fits(value) => {
                    if step.wanted.is_counted_by() {
                        values.push(Cow::Borrowed(value));
                    }
                }
                _ => return Key::Skipped,
            }
        }
        if given.next().is_some() {
            return Key::Skipped;
        }
        if values.len() > 1 {
            return Key::Known(Cow::Owned(joined(&values)));
        }
        Key::Known(values.pop().unwrap_or(Cow::Borrowed("")))
    }
}
