//! Which attributes of requests a set of rules reads.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::RuleSet;
use super::matching::Match;
use super::rule::{Cost, Rule};

/// The attributes that any rule of a set reads by their names. Path, method, host and address are not among them
/// unless they are read as attributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReadAttributes {
    names: HashSet<String, RandomState>,
    /// Those in `per` of any rule.
    counted: HashSet<String, RandomState>,
    /// Whether a rule may read any: it computes a name, or it is a descriptor.
    is_any: bool,
}

impl ReadAttributes {
    pub(super) fn of(rules: &[Arc<Rule>]) -> Self {
        let mut read = Self::default();
        for rule in rules {
            read.add(rule);
        }
        read
    }

    /// Reads the same as [`Rule::reads`].
    fn add(&mut self, rule: &Rule) {
        self.is_any |= rule.descriptor.is_some();
        for name in rule.per() {
            if !self.counted.contains(name) {
                self.counted.insert(name.clone());
            }
        }
        let cost = match &rule.cost {
            Cost::Attribute(name) => Some(name.as_str()),
            Cost::Fixed(_) => None,
        };
        let tier = rule.has_tiers().then_some("tier");
        let conditions = std::iter::once(&rule.matches).chain(&rule.except);
        let compared = conditions.flat_map(|matches| &matches.attributes);
        let names = rule.per.iter().chain(compared.map(|(name, _)| name));
        for name in names.map(String::as_str).chain(cost).chain(tier) {
            self.insert(name);
        }
        for condition in rule.conditions() {
            for name in condition.reads_by_name() {
                match name {
                    Some(name) => self.insert(name),
                    None => self.is_any = true,
                }
            }
        }
    }

    fn insert(&mut self, name: &str) {
        if !self.names.contains(name) {
            self.names.insert(name.to_owned());
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.is_any || self.names.contains(name)
    }

    pub(super) fn is_counted(&self, name: &str) -> bool {
        self.counted.contains(name)
    }
}

impl RuleSet {
    /// The names of all attributes that any of them reads, with those that `match` and `except` read by keys of their
    /// own, such as `path`. None if they may read any.
    #[doc(hidden)]
    pub fn read_names(&self) -> Option<BTreeSet<&str>> {
        if self.attributes.is_any {
            return None;
        }
        let mut names: BTreeSet<&str> = self.attributes.names.iter().map(String::as_str).collect();
        let conditions = self
            .iter()
            .flat_map(|rule| std::iter::once(&rule.matches).chain(&rule.except));
        for condition in conditions {
            for name in keys_of(condition) {
                names.insert(name);
            }
        }
        Some(names)
    }
}

/// The attributes that keys of `match` are about.
fn keys_of(matches: &Match) -> impl Iterator<Item = &'static str> {
    let keys = [
        ("host", matches.host.is_empty()),
        ("ip", matches.ip.is_empty()),
        ("method", matches.method.is_empty()),
        ("path", matches.path.is_empty()),
    ];
    let given = keys.into_iter().filter(|(_, is_empty)| !is_empty);
    given.map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use crate::rules::RuleSet;

    #[test]
    fn a_set_reads_what_any_of_its_rules_reads() {
        let rules = "rules:
- {id: a, per: [user_id], limit: 1/s, tiers: {pro: 2/s}, match: {attributes: {plan: x}}}
- {id: b, per: [], limit: 1/s, cost: {attribute: bytes}, except: [{attributes: {region: eu}}]}";
        let set = RuleSet::from_yaml(rules).unwrap();
        let names = [
            "user_id", "tier", "plan", "bytes", "region", "path", "api_key",
        ];
        for name in names {
            let by_rules = set.iter().any(|rule| rule.reads(name));
            assert_eq!(set.reads(name), by_rules, "{name}");
        }
        assert!(set.reads("region") && !set.reads("api_key"));
        assert!(set.counts_by("user_id") && !set.counts_by("plan"));
        assert!(!RuleSet::empty().reads("user_id"));
    }

    #[test]
    fn the_names_include_what_match_and_except_read_by_their_own_keys() {
        let names = |rules: &str| {
            let set = RuleSet::from_yaml(&format!("rules: [{rules}]")).unwrap();
            let names = set.read_names().unwrap();
            names.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names("{id: a, per: [], limit: 1/s}"), "");
        let all = "{id: a, per: [user_id], limit: 1/s, match: {path: /a, attributes: {plan: x}}, except: [{ip: 10.0.0.0/8}, {method: GET}]}, {id: b, per: [], limit: 1/s, match: {host: h.example}}";
        assert_eq!(names(all), "host ip method path plan user_id");
        let file =
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 1}}]";
        assert_eq!(RuleSet::from_yaml(file).unwrap().read_names(), None);
    }

    #[cfg(feature = "cel")]
    #[test]
    fn a_condition_reads_what_it_names_and_a_computed_name_is_any() {
        let set = |when: &str| {
            let rule = serde_json::json!({"rules": [{"id": "a", "per": [], "limit": "1/s", "match": {"when": when}}]});
            RuleSet::from_yaml(&rule.to_string()).unwrap()
        };
        let named = set(r#""plan" in attributes && attributes["plan"] == "a" && cost > 1"#);
        assert!(named.reads("plan") && !named.reads("other"));
        let computed = set(r#"attributes.exists(name, name.startsWith("x"))"#);
        assert!(computed.reads("other"));
    }
}
