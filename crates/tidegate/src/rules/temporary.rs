//! Temporary overrides: grants for single clients until a given time, kept apart from the rules.
//!
//! The gate keeps them with the state of their rule. It skips an override that has ended; its owner removes it.
//! `override_key.rs` says which client one is for.

mod of_entries;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde::Deserialize as _;
use tidegate_core::Timestamp;

use super::digest::ValueDigest;
use super::grant::Grant;
use super::keys::RULE;
use super::networks::Networks;
use super::override_key::OverrideKey;
use super::read_limit::{self, Counting};
use super::read_override::network_of;
use super::rule::{Consistency, Rule};
use super::{hashed, read_adaptive};
use crate::attributes::Attributes;
use crate::internal::document::{Fields, Node, Problems, Spot};
use of_entries::GrantsOfEntries;

/// Temporary overrides, by the id of their rule. Overrides of an unknown rule have no effect.
pub type TemporaryOverrides = BTreeMap<String, Vec<TemporaryOverride>>;

/// A grant for one client until a given time, instead of the rule's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemporaryOverride {
    /// The client that it is for.
    pub key: OverrideKey,
    /// Its limit, such as `100/minute`, `unlimited` or `blocked`.
    pub limit: String,
    /// When it ends: from then on the rule's own value applies.
    pub expires_at: Timestamp,
}

impl Rule {
    /// The grant of a temporary override of this rule with this limit.
    pub fn override_grant(&self, limit: &str) -> Result<Grant, String> {
        OverrideReader::for_rule(self)?.read(limit)
    }
}

/// The temporary overrides of a rule, with their grants.
#[derive(Debug)]
pub(crate) struct TemporaryGrants {
    /// Their indexes follow those of the rule's own grants.
    grants: Vec<Grant>,
    /// By value or by hash.
    by_key: HashMap<String, TemporaryGrant, RandomState>,
    has_hashes: bool,
    networks: Networks<Option<TemporaryGrant>>,
    by_digest: HashMap<String, TemporaryGrant, RandomState>,
    by_entries: GrantsOfEntries,
    digest: Option<Arc<ValueDigest>>,
}

/// The index of a grant, and when it ends.
#[derive(Debug, Clone, Copy)]
struct TemporaryGrant {
    index: usize,
    expires_at: Timestamp,
}

impl TemporaryGrant {
    fn at(self, now: Timestamp) -> Option<usize> {
        (now < self.expires_at).then_some(self.index)
    }
}

impl TemporaryGrants {
    /// The overrides of a rule, without those that do not fit it.
    pub(crate) fn of(
        rule: &Rule,
        overrides: &[TemporaryOverride],
        digest: Option<&Arc<ValueDigest>>,
    ) -> Self {
        let mut temporary = Self {
            grants: Vec::new(),
            by_key: HashMap::default(),
            has_hashes: false,
            networks: Networks::default(),
            by_digest: HashMap::default(),
            by_entries: GrantsOfEntries::default(),
            digest: digest.cloned(),
        };
        if let Ok(reader) = OverrideReader::for_rule(rule) {
            for one in overrides {
                if let Ok(grant) = reader.read(&one.limit) {
                    let index = rule.grants.len() + temporary.grants.len();
                    temporary.add(rule, one, index);
                    temporary.grants.push(grant);
                }
            }
        }
        temporary
    }

    /// Their grants. The indexes follow those of the rule's own grants.
    pub(crate) fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The index of the grant for a request of this rule.
    pub(crate) fn find(
        &self,
        rule: &Rule,
        attributes: &Attributes<'_>,
        now: Timestamp,
    ) -> Option<usize> {
        if let Some(descriptor) = &rule.descriptor {
            return match &descriptor.open_values(attributes)?[..] {
                [] => self.of_value(&descriptor.fixed_text(), now),
                [value] => self.of_value(value, now),
                values => self.by_entries.find(values, self.digest.as_deref(), now),
            };
        }
        let value = rule.first_value(attributes);
        self.of_client(value.as_deref(), attributes.ip(), now)
    }

    fn add(&mut self, rule: &Rule, one: &TemporaryOverride, index: usize) {
        let expires_at = one.expires_at;
        let grant = TemporaryGrant { index, expires_at };
        match &one.key {
            OverrideKey::Digest(digest) => {
                self.by_digest.insert(digest.clone(), grant);
            }
            OverrideKey::Hash(hash) => {
                self.has_hashes = true;
                self.by_key.insert(hash.clone(), grant);
            }
            OverrideKey::Entries(keys) => self.by_entries.add(keys, grant),
            OverrideKey::Value(value) => {
                let is_address = rule.is_overridden_by_address();
                match network_of(value, rule.ipv6_prefix).filter(|_| is_address) {
                    Some(network) => *self.networks.value(network) = Some(grant),
                    None => {
                        self.by_key.insert(value.clone(), grant);
                    }
                }
            }
        }
    }

    /// The index of the grant for a client with this value and address at `now`.
    fn of_client(&self, value: Option<&str>, ip: Option<IpAddr>, now: Timestamp) -> Option<usize> {
        let by_value = value.and_then(|value| self.of_value(value, now));
        let networks = || {
            let mut networks = self.networks.covering(ip?);
            networks.find_map(|grant| grant.as_ref()?.at(now))
        };
        by_value.or_else(networks)
    }

    fn of_value(&self, value: &str, now: Timestamp) -> Option<usize> {
        // A client value that merely looks like `sha256:…` matches no hashed override.
        let is_value = || !self.has_hashes || !hashed::is_hash(value);
        let by_value = self.by_key.get(value).filter(|_| is_value());
        if let Some(index) = by_value.and_then(|grant| grant.at(now)) {
            return Some(index);
        }
        // If both name the client, the newer one wins.
        self.of_hash(value, now).max(self.of_digest(value, now))
    }

    fn of_hash(&self, value: &str, now: Timestamp) -> Option<usize> {
        let hash = self.has_hashes.then(|| hashed::hash_of(value))?;
        self.by_key.get(&hash)?.at(now)
    }

    fn of_digest(&self, value: &str, now: Timestamp) -> Option<usize> {
        let secret = self.digest.as_ref();
        let digest = secret.filter(|_| !self.by_digest.is_empty())?.of(value);
        self.by_digest.get(&digest)?.at(now)
    }
}

/// Reads the limits of overrides as the rule itself reads its `overrides`.
struct OverrideReader {
    counting: Counting,
    is_leased: bool,
}

impl OverrideReader {
    fn for_rule(rule: &Rule) -> Result<Self, String> {
        let mut problems = Problems::new();
        let node = Node::deserialize(rule.written()).ok();
        let spot = Spot::rule_with_id(rule.id());
        let fields = node
            .as_ref()
            .and_then(|node| Fields::new(node, spot, &RULE, &mut problems));
        match fields {
            Some(fields) => {
                let counting = Counting::read(&fields, &mut problems);
                Ok(Self {
                    counting: match &rule.descriptor {
                        Some(descriptor) => counting.of_descriptor(descriptor.units),
                        None => counting,
                    },
                    is_leased: rule.sync == Consistency::Leased,
                })
            }
            None => Err(format!("rule `{}` cannot have overrides", rule.id())),
        }
    }

    fn read(&self, limit: &str) -> Result<Grant, String> {
        let node = Node::of_text(limit);
        let spot = Spot::document().field("limit");
        let mut problems = Problems::new();
        let Some(grant) = read_limit::grant(&node, &spot, &self.counting, &mut problems) else {
            let messages = problems.errors().map(|problem| problem.message.as_str());
            return Err(messages.collect::<Vec<_>>().join("; "));
        };
        if self.counting.adaptive.is_some()
            && let Some(wrong) = read_adaptive::wrong_exception(&grant)
        {
            return Err(wrong.to_owned());
        }
        match read_limit::why_not_leased(std::slice::from_ref(&grant)) {
            Some(why_not) if self.is_leased => Err(format!(
                "the rule has `sync: leased`, which does not go with {why_not}; give another limit"
            )),
            _ => Ok(grant),
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod descriptor_tests;
