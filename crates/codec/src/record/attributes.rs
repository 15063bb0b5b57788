//! What is recorded of a request: the attributes that the rules in force read, and secret ones only as hashes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tidegate::Attributes;
use tidegate::address::key_of;
use tidegate::printable::hexadecimal;
use tidegate::rules::{ALWAYS_SECRET, RuleSet, RuleSettings, ValueDigest};

use super::query::without_queries;
use super::text::{list, quoted};

/// Stands for all attributes in the list of a header.
const ANY: &str = "*";

/// The attribute that is secret in every recording.
const API_KEY: &str = "api_key";

/// The attributes that are recorded, and which of them are secret.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property of its own"
)]
pub struct RecordedAttributes {
    names: BTreeSet<String>,
    /// Whether all others are recorded too, because a rule computes a name or goes by whole descriptors.
    has_all: bool,
    /// The secret ones, each with the hashes of its values that the rules name.
    secret: BTreeMap<String, BTreeSet<String>>,
    /// Those that the settings name.
    listed_secret: Vec<String>,
    /// Whether attributes are as callers wrote them: then paths may have a query.
    is_raw: bool,
    /// Whether the decisions are those of a simulation.
    is_simulated: bool,
    /// Whether all values are hidden.
    is_anonymous: bool,
    ipv6_prefix: u8,
    digest: Arc<ValueDigest>,
}

impl RecordedAttributes {
    /// The attributes that these rules read.
    pub fn new(rules: &RuleSet, settings: &RuleSettings, digest: &Arc<ValueDigest>) -> Self {
        let read = rules.read_names();
        let of_settings = settings.secret_attributes.iter().map(String::as_str);
        let secret = ALWAYS_SECRET.into_iter().chain(of_settings);
        Self {
            has_all: read.is_none(),
            names: read.into_iter().flatten().map(str::to_owned).collect(),
            secret: secret
                .map(|name| (name.to_owned(), rules.named_hashes(name)))
                .collect(),
            listed_secret: settings.secret_attributes.clone(),
            is_raw: rules.is_by_descriptors(),
            is_simulated: false,
            is_anonymous: false,
            ipv6_prefix: settings.ipv6_prefix,
            digest: Arc::clone(digest),
        }
    }

    /// These and others, whether the rules read them or not.
    #[must_use]
    pub fn with(mut self, others: &[String]) -> Self {
        self.names.extend(others.iter().cloned());
        self
    }

    /// The same for decisions of a simulation, whose requests are those of logs: digests of a recording stay as they
    /// are, and URLs lose their queries. If it is anonymous, all values are hidden.
    #[must_use]
    pub fn simulated(self, is_anonymous: bool) -> Self {
        Self {
            is_simulated: true,
            is_anonymous,
            ..self
        }
    }

    /// Whether decisions are those of a simulation.
    pub(super) fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// Their names, sorted; `*` if they are all that a request has.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let any = self.has_all.then_some(ANY);
        let names = self.names.iter().map(String::as_str);
        any.into_iter().chain(names.filter(|_| !self.has_all))
    }

    /// The names of the secret ones, sorted: `api_key`, those of the settings, and others that are recorded.
    pub fn secret(&self) -> impl Iterator<Item = &str> {
        let is_listed = |name: &&String| {
            *name == API_KEY
                || self.has_all
                || self.names.contains(*name)
                || self.listed_secret.contains(name)
        };
        self.secret.keys().filter(is_listed).map(String::as_str)
    }

    /// Writes those of a request as a JSON object.
    pub(super) fn write(&self, out: &mut Vec<u8>, attributes: &Attributes<'_>) {
        let recorded = attributes
            .iter()
            .filter(|(name, _)| self.has_all || self.names.contains(*name));
        list(out, *b"{}", recorded, |out, (name, value)| {
            quoted(out, name);
            out.push(b':');
            let none_named = BTreeSet::new();
            let all = self.is_anonymous.then_some(&none_named);
            match self.secret.get(name).or(all) {
                Some(_) if self.is_simulated && is_hidden(value) => quoted(out, value),
                Some(named) => quoted(out, &self.hidden(attributes, name, value, named)),
                None if self.is_simulated && name != "path" => quoted(out, &without_queries(value)),
                None if self.is_raw && name == "path" => quoted(out, without_query(value)),
                None => quoted(out, value),
            }
        });
    }

    /// A secret value: its hash if the rules name it, so that they still know it; else its digest.
    fn hidden(
        &self,
        attributes: &Attributes<'_>,
        name: &str,
        value: &str,
        named: &BTreeSet<String>,
    ) -> String {
        if !named.is_empty() {
            let hash = format!("sha256:{}", hexadecimal(&Sha256::digest(value)));
            if named.contains(&hash) {
                return hash;
            }
        }
        match attributes.ip().filter(|_| name == "ip") {
            // Addresses of one network are one client.
            Some(ip) => self.digest.recorded(&key_of(ip, self.ipv6_prefix)),
            None => self.digest.recorded(value),
        }
    }
}

/// Whether a value is the digest or the hash of one, as recordings have it.
fn is_hidden(value: &str) -> bool {
    let has_digits = |text: &str, count: usize| {
        text.len() == count && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    match value.split_once(':') {
        Some(("hmac", digits)) => has_digits(digits, 32),
        Some(("sha256", digits)) => has_digits(digits, 64),
        _ => false,
    }
}

fn without_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or_default()
}
