//! Which attributes of requests a set of rules reads.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::rule::{Cost, Rule};

/// The attributes that any rule of a set reads by their names. Path, method, host and address are not among them
/// unless they are read as attributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReadAttributes {
    names: HashSet<String, RandomState>,
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
        assert!(!RuleSet::empty().reads("user_id"));
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
