//! The next step of a rule that is being tried: its candidate becomes its limit, or it becomes enforced for all.

use serde_json::Value;

use super::key_share::KeyShare;
use super::rule::{Mode, Rule};

impl Rule {
    /// The rule as JSON, after the first of these that it has: its candidate's parts replace its own, and `candidate` and
    /// `rollout` go; `rollout` goes; `mode: shadow` goes. None if it has none of them.
    pub fn promoted(&self) -> Option<Value> {
        match &self.candidate {
            Some(candidate) => Some(self.with_own_exceptions(&candidate.written)),
            None if self.rollout.is_some() => Some(self.without("rollout")),
            None if self.mode == Mode::Shadow => Some(self.without("mode")),
            None => None,
        }
    }

    /// The rule as JSON, with this rollout.
    pub fn rolled_out(&self, rollout: KeyShare) -> Value {
        let mut rule = self.written.clone();
        rule["rollout"] = Value::from(rollout.to_string());
        rule
    }

    /// What its candidate is written as, with the exceptions that the rule has by `exempt`, too.
    fn with_own_exceptions(&self, candidate: &Value) -> Value {
        let mut rule = candidate.clone();
        if let Some(except) = self.written.get("except") {
            rule["except"] = except.clone();
        }
        rule
    }

    fn without(&self, key: &str) -> Value {
        let mut rule = self.written.clone();
        if let Value::Object(map) = &mut rule {
            map.shift_remove(key);
        }
        rule
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::RuleSet;

    #[test]
    fn promotions_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("limit: 9/s, candidate: 5/s, rollout: 10%, mode: enforce", "limit: 5/s, mode: enforce"),
            ("limit: 9/s, candidate: 5/s, mode: shadow", "limit: 5/s, mode: shadow"),
            ("limit: 9/s, rollout: 10%", "limit: 9/s"),
            ("limit: 9/s, mode: shadow", "limit: 9/s"),
            ("limit: 9/s, algorithm: fixed_window, anchor: first_request, tiers: {a: 5/s}, candidate: {algorithm: token_bucket, tiers: {}}",
             "limit: 9/s, algorithm: token_bucket, tiers: {}"),
            ("limit: 9/s, candidate: {tiers: {b: 2/s}, overrides: {u1: blocked}}", "limit: 9/s, tiers: {b: 2/s}, overrides: {u1: blocked}"),
            ("limit: 9/s, algorithm: sliding_window_slots, slots: 5, strict: true, candidate: {limit: 7/s, strict: false}",
             "limit: 7/s, algorithm: sliding_window_slots, slots: 5, strict: false"),
            ("limit: 9/s", ""),
        ];
        let rule = |fields: &str| {
            let text = format!("rules: [{{id: a, per: [user_id], {fields}}}]");
            let set = RuleSet::from_yaml(&text).unwrap();
            std::sync::Arc::clone(set.get("a").unwrap())
        };
        for (before, after) in table {
            let promoted = rule(before).promoted();
            let expected = (!after.is_empty()).then(|| rule(after).written().clone());
            assert_eq!(promoted, expected, "{before}");
        }
        let exempt =
            "exempt: [{path: /healthz}]\nrules: [{id: a, per: [ip], limit: 9/s, candidate: 5/s}]";
        let exempt = RuleSet::from_yaml(exempt).unwrap();
        let promoted = exempt.get("a").unwrap().promoted().unwrap();
        assert_eq!(promoted["except"][0]["path"], "/healthz", "{promoted}");
        let rolled = rule("limit: 9/s").rolled_out("2.5%".parse().unwrap());
        assert_eq!(rolled["rollout"], "2.5%");
    }
}
