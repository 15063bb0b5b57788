//! What a set of rules says of itself if the rules are written as descriptors.

use crate::attributes::Attributes;
use crate::rules::{RuleSet, Units};

impl RuleSet {
    /// Whether they are written as descriptors, in the form of envoyproxy/ratelimit.
    #[doc(hidden)]
    pub fn is_by_descriptors(&self) -> bool {
        self.descriptors.is_some()
    }

    /// How the units of time of their limits are meant, if they are written as descriptors.
    #[doc(hidden)]
    pub fn descriptor_units(&self) -> Option<Units> {
        let descriptors = self.descriptors.as_ref()?;
        Some(descriptors.settings().units)
    }

    /// Whether a call is charged as a whole although they are written as descriptors.
    pub(crate) fn is_all_or_nothing(&self) -> bool {
        let descriptors = self.descriptors.as_ref();
        descriptors.is_some_and(|descriptors| descriptors.settings().all_or_nothing)
    }

    /// The canonical form of rules that are written as descriptors.
    #[doc(hidden)]
    pub fn descriptors(&self) -> Option<&serde_json::Value> {
        self.descriptors
            .as_deref()
            .map(|descriptors| &descriptors.written)
    }

    /// Whether there is any domain, or any rule if they are not written as descriptors.
    #[doc(hidden)]
    pub fn has_domains(&self) -> bool {
        let descriptors = self.descriptors.as_ref();
        descriptors.map_or(!self.is_empty(), |descriptors| descriptors.has_any())
    }

    /// Whether limits that callers bring count for this domain: the descriptors name it, or accept any.
    pub(crate) fn knows_domain(&self, attributes: &Attributes<'_>) -> bool {
        let descriptors = self.descriptors.as_ref();
        descriptors.is_none_or(|descriptors| descriptors.knows_domain(attributes))
    }
}
