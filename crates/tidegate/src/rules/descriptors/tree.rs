//! Finds the rule for a request's descriptor, entry by entry: by its value, else by the first wildcard that fits, else
//! by its key alone.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use tidegate_core::Scope;

use super::counter::counter_of_entries;
use super::descriptor::{DescriptorStep, Wanted};
use super::wildcard::Wildcard;
use super::{DOMAIN, entries};
use crate::attributes::Attributes;
use crate::rules::RuleSettings;

type TextMap<T> = HashMap<String, T, RandomState>;

/// All descriptors, by their domains.
#[derive(Debug, Default)]
pub(in crate::rules) struct Descriptors {
    domains: TextMap<DescriptorLevel>,
    pub(crate) written: serde_json::Value,
    settings: RuleSettings,
}

/// The descriptors below one.
#[derive(Debug, Default)]
pub(super) struct DescriptorLevel {
    by_key: TextMap<Choices>,
}

/// The descriptors with one key.
#[derive(Debug, Default)]
struct Choices {
    exact: TextMap<Branch>,
    /// In the order of the file.
    wildcards: Vec<(Wildcard, Branch)>,
    bare: Option<Branch>,
}

#[derive(Debug, Default)]
pub(super) struct Branch {
    /// The index of its rule, if it has a limit.
    pub(super) rule: Option<u32>,
    pub(super) below: DescriptorLevel,
}

impl Descriptors {
    pub(super) fn new(settings: RuleSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// The settings that the descriptors were read with.
    pub(in crate::rules) fn settings(&self) -> &RuleSettings {
        &self.settings
    }

    pub(super) fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// Takes the descriptors of a domain out, for more to be added; none yet if it is new.
    pub(super) fn take_domain(&mut self, domain: &str) -> DescriptorLevel {
        self.domains.remove(domain).unwrap_or_default()
    }

    /// Adds a domain with its descriptors.
    pub(super) fn add(&mut self, domain: &str, level: DescriptorLevel) {
        self.domains.insert(domain.to_owned(), level);
    }

    pub(in crate::rules) fn has_any(&self) -> bool {
        !self.domains.is_empty()
    }

    pub(in crate::rules) fn knows_domain(&self, attributes: &Attributes<'_>) -> bool {
        self.level(attributes).is_some()
    }

    /// The scope and the key of the counter of these entries, for a limit that comes with a request.
    pub(in crate::rules) fn counter(&self, attributes: &Attributes<'_>) -> (Scope, String) {
        let domain = attributes.get(DOMAIN).or_else(|| {
            let mut domains = self.domains.keys().map(String::as_str);
            domains.next().filter(|_| self.domains.len() == 1)
        });
        counter_of_entries(domain.unwrap_or_default(), attributes, &self.settings)
    }

    /// The index of the rule for these entries, all of them.
    pub(in crate::rules) fn find(&self, attributes: &Attributes<'_>) -> Option<u32> {
        let mut level = self.level(attributes)?;
        let mut rule = None;
        for (key, value) in entries(attributes) {
            let branch = level.by_key.get(key)?.of(value)?;
            rule = branch.rule;
            level = &branch.below;
        }
        rule
    }

    /// The descriptors of the domain that is named; of the only one, if none is.
    fn level(&self, attributes: &Attributes<'_>) -> Option<&DescriptorLevel> {
        match attributes.get(DOMAIN) {
            Some(domain) => self.domains.get(domain),
            None if self.domains.len() == 1 => self.domains.values().next(),
            None => None,
        }
    }
}

impl DescriptorLevel {
    /// Adds a descriptor. Whether there was not the same already.
    pub(super) fn add(&mut self, step: &DescriptorStep, branch: Branch) -> bool {
        let choices = self.by_key.entry(step.key.clone()).or_default();
        match &step.wanted {
            Wanted::Text(text) => {
                let is_new = !choices.exact.contains_key(text);
                if is_new {
                    choices.exact.insert(text.clone(), branch);
                }
                is_new
            }
            Wanted::Fitting { wildcard, .. } => {
                let is_same = |(known, _): &(Wildcard, Branch)| known == wildcard;
                let is_new = !choices.wildcards.iter().any(is_same);
                if is_new {
                    choices.wildcards.push((wildcard.clone(), branch));
                }
                is_new
            }
            Wanted::Any => {
                let is_new = choices.bare.is_none();
                choices.bare.get_or_insert(branch);
                is_new
            }
        }
    }
}

impl Choices {
    fn of(&self, value: &str) -> Option<&Branch> {
        let fitting = || {
            let find = |is_meant: fn(&Wildcard, &str) -> bool| {
                let mut wildcards = self.wildcards.iter();
                wildcards.find(|(wildcard, _)| is_meant(wildcard, value))
            };
            let written = find(Wildcard::is_written_as);
            let found = written.or_else(|| find(Wildcard::matches));
            found.map(|(_, branch)| branch)
        };
        let exact = self.exact.get(value);
        exact.or_else(fitting).or(self.bare.as_ref())
    }
}
