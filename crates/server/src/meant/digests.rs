//! What is known of values and their digests: the clients that were seen, `clients_file`, overrides, other instances.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use tidegate::gate::RulesInForce;
use tidegate::rules::{OverrideKey, Rule};
use tidegate::{Attributes, Clock as _, SystemClock};
use tidegate_activity::{KeptAttribute, KeyPart};

use super::{ClearKey, add};
use crate::activity::FoundClient;
use crate::admin::Admin;
use crate::problem::HttpProblem;

/// The attribute by which `clients_file` knows clients.
const API_KEY: &str = "api_key";

/// What is known of a digest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KnownDigest {
    /// The value that has it.
    Value(String),
    /// The instance that has seen the value.
    Elsewhere(String),
    /// A temporary override is for it; the value is not known.
    Hashed,
    Unknown,
}

/// Whether a client is known by this value: it has used something, or it is written in `clients_file` or in
/// `overrides`.
pub(super) async fn is_in_clear(
    admin: &Admin,
    attributes: &Attributes<'_>,
    (name, value): (&str, &str),
    rule: Option<&str>,
) -> bool {
    if name == API_KEY && admin.decider.identity.knows_key(value) {
        return true;
    }
    if overridden(admin, name).any(|overridden| overridden == value) {
        return true;
    }
    let now = admin.decider.observer.latest_time();
    let used = match now.filter(|_| attributes.time().is_none()) {
        Some(now) => {
            let attributes = attributes.clone().at(now);
            admin.gate.has_used(&attributes, name, rule).await
        }
        None => admin.gate.has_used(attributes, name, rule).await,
    };
    // Without the store, what is given is looked up.
    used.unwrap_or(false)
}

/// The values of an attribute that have an override, temporary or in a rule.
pub(super) fn overridden(admin: &Admin, attribute: &str) -> impl Iterator<Item = String> {
    let rules = admin.gate.rules();
    let is_named = |rule: &Rule| rule.overridden_by().iter().any(|name| name == attribute);
    let mut values: Vec<String> = Vec::new();
    for rule in rules.iter().filter(|rule| is_named(rule)) {
        let overrides = rule.overrides().map(|(value, _)| value);
        values.extend(overrides.filter(|value| !value.starts_with("sha256:")));
        for one in admin.overrides.list(Some(rule.id()), SystemClock.now()) {
            let keys = keys_of(&rule, &one.grant.key, attribute);
            let in_clear = keys.filter(|key| matches!(key, OverrideKey::Value(_)));
            values.extend(in_clear.map(OverrideKey::text));
        }
    }
    values.into_iter()
}

/// What the key of an override has of an attribute.
fn keys_of<'k>(
    rule: &'k Rule,
    key: &'k OverrideKey,
    attribute: &'k str,
) -> impl Iterator<Item = &'k OverrideKey> {
    let named = rule.overridden_by().iter().zip(key.values());
    let of_attribute = named.filter(move |(name, _)| *name == attribute);
    of_attribute.map(|(_, key)| key)
}

/// Whether a temporary override is for a digest.
pub(super) fn is_overridden(admin: &Admin, attribute: &str, digits: &str) -> bool {
    let rules = admin.gate.rules();
    let overrides = admin.overrides.list(None, SystemClock.now());
    overrides.iter().any(|one| {
        rules.get(&one.rule).is_some_and(|rule| {
            let mut keys = keys_of(&rule, &one.grant.key, attribute);
            keys.any(|key| key.digest() == Some(digits))
        })
    })
}

/// Looks up a digest of a value of this attribute.
pub(super) async fn find_digest(
    admin: &Arc<Admin>,
    attribute: &str,
    digits: &str,
) -> Result<KnownDigest, HttpProblem> {
    let is_meant = |value: &str| admin.digest.of(value) == digits;
    let mut values: BTreeSet<String> = overridden(admin, attribute)
        .filter(|value| is_meant(value))
        .collect();
    let found = find_clients(admin, digits).await.into_iter();
    let rules = admin.gate.rules();
    let parts = found.flat_map(|found| clear_key(&rules, &found));
    let meant = parts.filter(|(name, value)| name == attribute && is_meant(value));
    values.extend(meant.map(|(_, value)| value));
    if values.is_empty() && attribute == API_KEY {
        let digits = digits.to_owned();
        let reading = admin.read_document(move |admin| {
            let is_meant = |key: &str| admin.digest.of(key) == digits;
            admin.decider.identity.find_keys(is_meant)
        });
        values.extend(reading.await.unwrap_or_default());
    }
    if values.len() > 1 {
        return Err(HttpProblem::new(
            StatusCode::CONFLICT,
            format!("two keys have the digest `{digits}`; give the key itself"),
        ));
    }
    if let Some(value) = values.into_iter().next() {
        return Ok(KnownDigest::Value(value));
    }
    if let Some(activity) = &admin.activity {
        let lists = |_: &str, parts: &[KeyPart]| {
            let mut parts = parts.iter();
            parts.any(|part| {
                *part.attribute == *attribute && part.is_digest && *part.value == *digits
            })
        };
        let redis = admin.store.redis();
        if let Some(instance) = activity.find_elsewhere(redis, lists).await {
            return Ok(KnownDigest::Elsewhere(instance));
        }
    }
    Ok(if is_overridden(admin, attribute, digits) {
        KnownDigest::Hashed
    } else {
        KnownDigest::Unknown
    })
}

/// The key of a client in clear, as its rule counts it. Empty if the rule is gone.
pub(super) fn clear_key(rules: &RulesInForce, found: &FoundClient) -> ClearKey {
    let attributes = of_pairs(found.last.attributes.iter().map(pair));
    let Some(rule) = rules.get(&found.rule) else {
        return Vec::new();
    };
    let values = rule.key_values(&attributes).into_iter();
    let values = values.map(|(name, value)| (name.to_owned(), value.into_owned()));
    values.collect()
}

/// The clients in the tables of this instance that a value or digest names. On a thread that may block: there can be
/// many.
pub(super) async fn find_clients(admin: &Admin, wanted: &str) -> Vec<FoundClient> {
    let Some(activity) = admin.activity.clone() else {
        return Vec::new();
    };
    let wanted = wanted.to_owned();
    let finding = tokio::task::spawn_blocking(move || activity.find_clients(&wanted));
    finding.await.unwrap_or_default()
}

pub(super) fn pair(kept: &KeptAttribute) -> (&str, &str) {
    (&kept.shown.attribute, kept.value())
}

pub(super) fn pairs(key: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    key.iter().map(|(name, value)| (&**name, &**value))
}

/// Attributes in the form in which they are counted.
pub(super) fn of_pairs<'p>(
    pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> Attributes<'static> {
    let mut attributes = Attributes::new();
    for (name, value) in pairs {
        add(&mut attributes, name, value);
    }
    attributes
}
