//! The most that a rule can admit: as numbers for the API, and in words for people.

use serde_json::{Map, Value, json};
use tidegate_core::{Limit, WorstCase};

use super::grant::{Grant, GrantIndexes};
use super::rule::Rule;
use crate::value::text_of_form;

impl Rule {
    /// The member `worst_case` of a rule in the API: the most that each limit of the rule and of its tiers can admit.
    pub fn worst_case(&self) -> Value {
        self.of_grants(|limit| worst_case(limit.worst_case()))
    }

    /// The same in words.
    pub fn promises(&self) -> Value {
        self.of_grants(|limit| json!(self.promise(limit)))
    }

    /// The [promise](Limit::promise) of one of its limits, after the unit that it counts if that is not requests:
    /// `tokens: at most 199 in any minute: 100 at once, then one every 600 ms`.
    pub fn promise(&self, limit: &Limit) -> String {
        let promise = limit.promise();
        if self.unit.is_requests() {
            return promise;
        }
        format!("{}: {promise}", self.unit)
    }

    /// The tiers of the rule with their grants, in the order of the file.
    pub fn tiers(&self) -> impl Iterator<Item = (String, &Grant)> {
        self.in_order(&self.tiers)
    }

    /// Its overrides, likewise. Temporary ones are not among them.
    pub fn overrides(&self) -> impl Iterator<Item = (String, &Grant)> {
        self.in_order(&self.overrides)
    }

    /// The limits of a grant as the worst case has them: of an adaptive rule the highest.
    pub fn highest(&self, grant: &Grant) -> Vec<Limit> {
        match self.adaptive() {
            Some(adaptive) if !grant.limits().is_empty() => vec![adaptive.highest()],
            _ => grant.limits().to_vec(),
        }
    }

    fn of_grants(&self, of: impl Fn(&Limit) -> Value) -> Value {
        let each = |grant: &Grant| self.highest(grant).iter().map(&of).collect::<Value>();
        let tiers = self.tiers().map(|(name, grant)| (name, each(grant)));
        json!({
            "limit": self.grants.first().map_or_else(|| json!([]), each),
            "tiers": tiers.collect::<Map<_, _>>(),
        })
    }

    pub(super) fn in_order(&self, named: &GrantIndexes) -> impl Iterator<Item = (String, &Grant)> {
        let mut indexes: Vec<(&String, &usize)> = named.iter().collect();
        indexes.sort_by_key(|(_, index)| **index);
        let grant = |index: &usize| &self.grants[*index];
        indexes
            .into_iter()
            .map(move |(name, index)| (text_of_form(name), grant(index)))
    }
}

/// A worst case as JSON.
pub(crate) fn worst_case(worst: WorstCase) -> Value {
    json!({"window": worst.window, "instant": worst.instant})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::RuleSet;

    #[test]
    fn worst_cases_of_rules_by_hand() {
        let bucket = |window: u64, instant: u64| json!({"window": window, "instant": instant});
        #[rustfmt::skip]
        let table = [
            ("limit: 3/minute", json!([bucket(5, 3)]), json!({})),
            ("limit: 10000/day; 100/second", json!([bucket(20_000, 10_000), bucket(199, 100)]), json!({})),
            ("limit: 10/minute, tiers: {b: 100/day, a: unlimited, c: blocked}", json!([bucket(19, 10)]),
             json!({"b": [bucket(200, 100)], "a": [], "c": []})),
            ("limit: blocked, tiers: {pro: 5/second}", json!([]), json!({"pro": [bucket(9, 5)]})),
            ("limit: unlimited", json!([]), json!({})),
            ("limit: 7, algorithm: concurrency", json!([{"window": null, "instant": 7}]), json!({})),
            ("limit: 60/minute burst 3, algorithm: leaky_bucket", json!([bucket(60, 1)]), json!({})),
            ("limit: 200/s, adaptive: {min: 20/s, max: 1000/s burst 50}", json!([bucket(1_049, 50)]), json!({})),
            ("adaptive: {min: 10, max: 500}, algorithm: concurrency, tiers: {vip: unlimited}",
             json!([{"window": null, "instant": 500}]), json!({"vip": []})),
        ];
        for (text, limit, tiers) in table {
            let rules = format!("rules: [{{id: a, per: [], {text}}}]");
            let rules = RuleSet::from_yaml(&rules).unwrap();
            let rule = rules.get("a").unwrap();
            assert_eq!(
                rule.worst_case(),
                json!({"limit": limit, "tiers": tiers}),
                "{text}"
            );
        }
    }
}
