//! The options that only a rule written as a descriptor has: which entries it applies to, and which
//! counter they are charged on.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidegate_core::Window;

use super::wildcard::Wildcard;
use super::{DOMAIN, Units, entries};
use crate::attributes::Attributes;
use crate::rules::counter_key::{CounterKey, joined};

/// The path from the domain to a limit, with the options of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::rules) struct Descriptor {
    pub(super) domain: String,
    pub(super) steps: Vec<DescriptorStep>,
    /// The path of its stats, with the values of the file.
    pub(super) stat: Box<str>,
    /// The name of the limit; empty if it has none.
    pub(in crate::rules) name: String,
    pub(in crate::rules) replaces: Vec<String>,
    pub(in crate::rules) is_quota: bool,
    /// Whether the file says how it is counted.
    pub(super) is_counted_by_file: bool,
    /// The unit as written, also where nothing is granted.
    pub(in crate::rules) unit: Option<Window>,
    /// How units of time are meant.
    pub(in crate::rules) units: Units,
    /// The metadata to report with a decision; `Null` if there is none.
    pub(in crate::rules) metadata: serde_json::Value,
}

/// One entry of a descriptor as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DescriptorStep {
    pub(super) key: String,
    pub(super) wanted: Wanted,
    /// Whether its stats are named by the value of the request.
    pub(super) names_stat: bool,
}

/// Which values of an entry are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// This one.
    Text(String),
    /// Values that fit a wildcard, each with a counter of its own unless they share one.
    Fitting { wildcard: Wildcard, is_shared: bool },
    /// Any, each with a counter of its own.
    Any,
}

impl Wanted {
    pub(super) fn fits(&self, value: &str) -> bool {
        match self {
            Self::Text(text) => text == value,
            Self::Fitting { wildcard, .. } => wildcard.matches(value),
            Self::Any => true,
        }
    }

    /// Whether the file leaves the value open, and each has a counter of its own.
    pub(super) fn is_counted_by(&self) -> bool {
        !matches!(self, Self::Text(_)) && !self.is_shared()
    }

    /// Whether all fitting values have one counter.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Fitting { is_shared, .. } if *is_shared)
    }
}

impl Descriptor {
    /// The counter of a request's descriptor, named by the values of all entries except those that share one.
    pub(in crate::rules) fn key<'a>(&self, attributes: &'a Attributes<'_>) -> CounterKey<'a> {
        match self.values(attributes, |wanted| !wanted.is_shared()) {
            Some(values) => CounterKey::Known(key_of(values)),
            None => CounterKey::Skipped,
        }
    }

    /// The values that the file leaves open, as one text. `None` if the entries belong to another descriptor.
    pub(in crate::rules) fn open_key<'a>(
        &self,
        attributes: &'a Attributes<'_>,
    ) -> Option<Cow<'a, str>> {
        self.open_values(attributes).map(key_of)
    }

    /// Whether it is not from a file, but for a limit that a caller brought.
    pub(in crate::rules) fn is_of_no_file(&self) -> bool {
        self.steps.is_empty()
    }

    /// The entries of a request that name its counter, if they match this descriptor.
    pub(in crate::rules) fn key_values<'a>(
        &self,
        attributes: &'a Attributes<'_>,
    ) -> Vec<(&'a str, Cow<'a, str>)> {
        let is_named = |wanted: &Wanted| !wanted.is_shared();
        let Some(values) = self.values(attributes, is_named) else {
            return Vec::new();
        };
        let steps = self.steps.iter().zip(entries(attributes));
        let named = steps.filter(|(step, _)| is_named(&step.wanted));
        let found = named.map(|(_, (name, _))| name);
        found.zip(values).collect()
    }

    /// The values of the chosen entries, if the entries match this descriptor.
    pub(super) fn values<'a>(
        &self,
        attributes: &'a Attributes<'_>,
        is_chosen: impl Fn(&Wanted) -> bool,
    ) -> Option<Values<'a>> {
        let domain = attributes.get(DOMAIN);
        if domain.is_some_and(|domain| domain != self.domain) {
            return None;
        }
        let mut values = Values::new();
        let mut given = entries(attributes);
        for step in &self.steps {
            let (key, value) = given.next()?;
            if key != step.key || !step.wanted.fits(value) {
                return None;
            }
            if is_chosen(&step.wanted) {
                values.push(Cow::Borrowed(value));
            }
        }
        given.next().is_none().then_some(values)
    }
}

impl Wanted {
    /// It as text; empty if any value fits.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Fitting { wildcard, .. } => wildcard.to_string(),
            Self::Any => String::new(),
        }
    }
}

pub(super) type Values<'a> = SmallVec<[Cow<'a, str>; 4]>;

/// The name of a counter by these values. One value is not copied.
pub(super) fn key_of(mut values: Values<'_>) -> Cow<'_, str> {
    if values.len() > 1 {
        return Cow::Owned(joined(&values));
    }
    values.pop().unwrap_or(Cow::Borrowed(""))
}
