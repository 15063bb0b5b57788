//! The grants of a rule: its limit, and those of its tiers and overrides.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_core::{Limit, LimitError};

use super::hashed::{self, HashedOverrides};
use super::rule::{Mode, Rule};
use crate::adaptive::{Adaptive, AdaptiveBounds};
use crate::attributes::Attributes;

/// Indexes of a rule's grants, by the name of a tier or the value of an attribute.
pub(super) type GrantIndexes = HashMap<String, usize, RandomState>;

/// A grant of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grant {
    /// These limits, of which all must allow.
    Limits(Vec<Limit>),
    /// Everything.
    Unlimited,
    /// Nothing.
    Blocked,
}

impl Grant {
    /// Whether it denies every request. A limit of descriptors that grants nothing is counted all the same.
    pub(super) fn grants_nothing(&self) -> bool {
        *self == Self::Blocked || self.limits().iter().any(|limit| limit.capacity() == 0)
    }

    /// The limits that it has.
    pub fn limits(&self) -> &[Limit] {
        match self {
            Self::Limits(limits) => limits,
            Self::Unlimited | Self::Blocked => &[],
        }
    }
}

/// Where the grant of a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantSource {
    /// The rule's own limit.
    Limit,
    /// One of its tiers.
    Tier,
    /// One of its overrides.
    Override,
    /// A temporary override.
    Temporary,
}

impl GrantSource {
    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Tier => "tier",
            Self::Override => "override",
            Self::Temporary => "temporary",
        }
    }
}

impl Rule {
    /// The same rule with other limits, in the order of its [grants](Self::grants): the same match, key, cost and
    /// counters. An adaptive rule begins with the first of them, and its bounds move with it.
    #[doc(hidden)]
    pub fn with_limits(
        &self,
        mut change: impl FnMut(&Limit) -> Result<Limit, LimitError>,
    ) -> Result<Self, LimitError> {
        let mut rule = self.clone();
        for grant in &mut rule.grants {
            if let Grant::Limits(limits) = grant {
                for limit in limits {
                    *limit = change(limit)?;
                }
            }
        }
        let first = rule.grants.first().and_then(|grant| grant.limits().first());
        if let (Some(bounds), Some(start)) = (&rule.adaptive, first) {
            let (count, settings) = (start.rate().count, bounds.settings());
            let settings = Adaptive {
                min: settings.min.min(count),
                max: settings.max.max(count),
                ..settings
            };
            rule.adaptive = Some(AdaptiveBounds::new(settings, start.clone()));
        }
        Ok(rule)
    }

    /// The same rule, which only counts, and of which nothing is tried.
    #[doc(hidden)]
    #[must_use]
    pub fn in_shadow(&self) -> Self {
        Self {
            mode: Mode::Shadow,
            ..self.with_candidate(None)
        }
    }

    /// The same rule for requests of a recording, which has hashes in place of values that the rule names by them.
    #[doc(hidden)]
    #[must_use]
    pub fn for_recordings(&self) -> Self {
        let candidate = self.candidate.as_ref();
        Self {
            hashed_overrides: HashedOverrides::Recorded,
            candidate: candidate.map(|tried| Arc::new(tried.for_recordings())),
            ..self.clone()
        }
    }

    /// The same rule with another candidate; with none, it has no rollout either.
    #[doc(hidden)]
    #[must_use]
    pub fn with_candidate(&self, candidate: Option<Arc<Self>>) -> Self {
        Self {
            rollout: self.rollout.filter(|_| candidate.is_some()),
            candidate,
            ..self.clone()
        }
    }

    /// The index of what a tier grants, by its name.
    #[doc(hidden)]
    pub fn tier_indexes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.tiers
            .iter()
            .map(|(name, index)| (name.as_str(), *index))
    }

    /// The grant for a request: its override, else its tier, else the limit. Returns the index in
    /// [`grants`](Self::grants) and the source. A temporary override takes precedence.
    pub(crate) fn grant(&self, attributes: &Attributes<'_>) -> (usize, GrantSource) {
        if !self.overrides.is_empty() {
            let first = self.first_value(attributes);
            if let Some(index) = first.and_then(|value| self.override_of(&value)) {
                return (index, GrantSource::Override);
            }
            if let (Some(networks), Some(ip)) = (&self.override_networks, attributes.ip())
                && let Some(index) = networks.covering(ip).next()
            {
                return (*index, GrantSource::Override);
            }
        }
        if !self.tiers.is_empty() {
            let tier = attributes.get("tier");
            if let Some(index) = tier.and_then(|tier| self.tiers.get(tier)) {
                return (*index, GrantSource::Tier);
            }
        }
        (0, GrantSource::Limit)
    }

    /// The override for this value of the first of `per`, by the value itself or by its hash. A client value that
    /// merely looks like `sha256:…` matches no hashed override.
    fn override_of(&self, value: &str) -> Option<usize> {
        let is_recorded = self.hashed_overrides == HashedOverrides::Recorded;
        let by_value = self
            .overrides
            .get(value)
            .filter(|_| is_recorded || !hashed::is_hash(value));
        let by_hash = || {
            let hash = self
                .hashed_overrides
                .any()
                .then(|| hashed::hash_of(value))?;
            self.overrides.get(&hash)
        };
        by_value.or_else(by_hash).copied()
    }
}
