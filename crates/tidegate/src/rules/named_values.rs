//! The values of an attribute that rules name: in overrides, tiers, `match` and `except`, and in descriptors.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rule::Rule;
use super::{RuleSet, hashed};

impl RuleSet {
    /// The hashes of all values of this attribute that any rule names, in clear or by their hash: `sha256:` and 64
    /// digits. What a condition compares is not among them.
    #[doc(hidden)]
    pub fn named_hashes(&self, attribute: &str) -> BTreeSet<String> {
        let mut hashes: BTreeSet<String> = self
            .iter()
            .flat_map(|rule| rule.named_values(attribute))
            .map(hash_of_named)
            .collect();
        if let Some(written) = self.descriptors() {
            add_descriptors(written, attribute, &mut hashes);
        }
        hashes
    }
}

impl Rule {
    fn named_values<'r>(&'r self, attribute: &'r str) -> impl Iterator<Item = &'r str> {
        let is_first = self.per.first().is_some_and(|first| first == attribute);
        let tried = self.candidate.iter();
        let granting = move || std::iter::once(self).chain(tried.clone().map(|tried| &**tried));
        let overrides = granting().flat_map(|rule| rule.overrides.keys());
        let overrides = overrides.filter(move |_| is_first);
        let tiers = granting().flat_map(|rule| rule.tiers.keys());
        let tiers = tiers.filter(move |_| attribute == "tier");
        let compared = std::iter::once(&self.matches)
            .chain(&self.except)
            .flat_map(|matches| &matches.attributes)
            .filter(move |(name, _)| name == attribute)
            .flat_map(|(_, values)| values);
        overrides.chain(tiers).chain(compared).map(String::as_str)
    }
}

/// The hash of a value as a rule has it, which may be the hash itself.
fn hash_of_named(value: &str) -> String {
    if hashed::is_hash(value) {
        return value.to_owned();
    }
    hashed::hash_of(value)
}

/// Adds the values of descriptors with this key, at any depth.
fn add_descriptors(written: &Value, attribute: &str, hashes: &mut BTreeSet<String>) {
    match written {
        Value::Array(items) => {
            for item in items {
                add_descriptors(item, attribute, hashes);
            }
        }
        Value::Object(map) => {
            let of_attribute = map.get("key").and_then(Value::as_str) == Some(attribute);
            if let (true, Some(value)) = (of_attribute, map.get("value").and_then(Value::as_str)) {
                hashes.insert(hashed::hash_of(value));
            }
            for below in map.values() {
                add_descriptors(below, attribute, hashes);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_named_by_overrides_match_and_except_in_clear_or_by_their_hash() {
        let k2 = hashed::hash_of("k2");
        let rules = format!(
            "rules:
- {{id: a, per: [api_key, ip], limit: 1/s, overrides: {{k1: 2/s, \"{k2}\": blocked}}}}
- {{id: b, per: [ip], limit: 1/s, overrides: {{192.0.2.1: 2/s}}, tiers: {{pro: 2/s}}}}
- {{id: c, per: [], limit: 1/s, match: {{attributes: {{api_key: [k3, k4]}}}}, except: [{{attributes: {{api_key: k5}}}}]}}"
        );
        let set = RuleSet::from_yaml(&rules).unwrap();
        let hashes = |values: &[&str]| -> BTreeSet<String> {
            values.iter().map(|value| hashed::hash_of(value)).collect()
        };
        let named = set.named_hashes("api_key");
        assert_eq!(named, hashes(&["k1", "k2", "k3", "k4", "k5"]));
        assert_eq!(set.named_hashes("tier"), hashes(&["pro"]));
        assert!(set.named_hashes("user_id").is_empty());
    }

    #[test]
    fn a_tree_of_descriptors_names_its_values() {
        let file = "domain: d
descriptors:
- key: path
  value: api_key
  descriptors:
  - {key: api_key, value: k1, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: api_key, rate_limit: {unit: second, requests_per_unit: 2}}";
        let set = RuleSet::from_yaml(file).unwrap();
        assert_eq!(
            set.named_hashes("api_key"),
            BTreeSet::from([hashed::hash_of("k1")])
        );
    }
}
