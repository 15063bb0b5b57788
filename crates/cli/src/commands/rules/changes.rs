//! How one set of rules differs from another: by id, in canonical form, and in their order.

use serde_json::{Value, json};
use tidegate::rules::RuleSettings;
use tidegate_server::rulebook::{RuleDiff, id_of};

use super::remote::canonical;
use crate::output::counted;

/// The differences between `before` and `after`. Rules are in canonical form.
#[derive(Debug, Default)]
pub(super) struct Changes(pub(super) RuleDiff);

impl Changes {
    pub(super) fn between(before: &[Value], after: &[Value], settings: &RuleSettings) -> Self {
        let canonical = |rules: &[Value]| -> Vec<Value> {
            rules.iter().map(|rule| canonical(rule, settings)).collect()
        };
        Self(RuleDiff::between(&canonical(before), &canonical(after)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ids of all changed rules, for programs.
    pub(super) fn ids_as_json(&self) -> Value {
        let ids = |rules: &[Value]| -> Vec<String> {
            rules.iter().map(|rule| id_of(rule).to_owned()).collect()
        };
        let changed: Vec<&str> = self.0.changed.iter().map(|(_, rule)| id_of(rule)).collect();
        json!({
            "added": ids(&self.0.added),
            "changed": changed,
            "removed": ids(&self.0.removed),
            "reordered": self.0.order.is_some(),
        })
    }

    /// `1 rule added, 2 rules changed, order changed`.
    pub(super) fn summary(&self) -> String {
        let Self(diff) = self;
        let counts = [diff.added.len(), diff.changed.len(), diff.removed.len()];
        summary(counts, diff.order.is_some())
    }
}

/// How many rules were added, changed and removed, in words.
pub(super) fn summary(counts: [usize; 3], is_reordered: bool) -> String {
    let counts = counts.into_iter().zip(["added", "changed", "removed"]);
    let counts = counts.filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> = counts
        .map(|(count, what)| format!("{} {what}", counted(count, "rule")))
        .collect();
    if is_reordered {
        parts.push("order changed".to_owned());
    }
    parts.join(", ")
}

/// Merges the rules of a file into those of the server: in place if the server has the id, otherwise at the
/// end. The others stay as the server wrote them.
pub(super) fn merged(server: &[Value], file: &[Value]) -> Vec<Value> {
    let of_file = |rule: &Value| find(file, id_of(rule)).unwrap_or(rule).clone();
    let mut rules: Vec<Value> = server.iter().map(of_file).collect();
    let is_new = |rule: &&Value| find(server, id_of(rule)).is_none();
    rules.extend(file.iter().filter(is_new).cloned());
    rules
}

fn find<'r>(rules: &'r [Value], id: &str) -> Option<&'r Value> {
    rules.iter().find(|rule| id_of(rule) == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(id: &str, limit: &str) -> Value {
        json!({"id": id, "per": ["ip"], "limit": limit})
    }

    fn between(before: &[Value], after: &[Value]) -> Changes {
        Changes::between(before, after, &RuleSettings::default())
    }

    #[test]
    fn the_same_rule_in_other_words_is_no_change() {
        let words = json!({"limit": "60/minute", "per": "ip", "id": "a", "missing": "skip"});
        assert!(between(&[rule("a", "60/minute")], &[words]).is_empty());
    }

    #[test]
    fn each_kind_of_change_is_found() {
        let before = [
            rule("a", "1/s"),
            rule("b", "1/s"),
            rule("c", "1/s"),
            rule("d", "1/s"),
        ];
        let after = [
            rule("c", "1/s"),
            rule("new", "1/s"),
            rule("b", "2/s"),
            rule("d", "1/s"),
        ];
        let changes = between(&before, &after);
        let expected =
            json!({"added": ["new"], "changed": ["b"], "removed": ["a"], "reordered": true});
        assert_eq!(changes.ids_as_json(), expected);
        assert_eq!(
            changes.summary(),
            "1 rule added, 1 rule changed, 1 rule removed, order changed"
        );
    }

    #[test]
    fn merging_keeps_places_and_the_rules_of_others() {
        let server = [
            rule("a", "1/s"),
            json!({"id": "b", "strange": true}),
            rule("c", "1/s"),
        ];
        let file = [rule("new", "9/s"), rule("c", "2/s"), rule("a", "1/s")];
        let expected = [
            rule("a", "1/s"),
            server[1].clone(),
            rule("c", "2/s"),
            rule("new", "9/s"),
        ];
        assert_eq!(merged(&server, &file), expected);
    }
}
