//! How one set of rules differs from another: by id and in their order, as JSON and as a unified diff of their
//! YAML. For the API and the commands alike.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use similar::{ChangeTag, DiffOp, DiffTag, TextDiff};
use tidegate::document::write_yaml;

/// How long the search for the smallest diff may take; then a larger one is good enough.
const PATIENCE: Duration = Duration::from_millis(500);

/// The differences between two sets of rules, as they are written.
#[derive(Debug, Default, PartialEq)]
pub struct RuleDiff {
    /// Rules that only the second set has.
    pub added: Vec<Value>,
    /// Rules that differ, before and after.
    pub changed: Vec<(Value, Value)>,
    /// Rules that only the first set has.
    pub removed: Vec<Value>,
    /// The ids that both sets have, in the order of each, if that differs.
    pub order: Option<(Vec<String>, Vec<String>)>,
}

impl RuleDiff {
    /// Compares two lists of rules.
    pub fn between(before: &[Value], after: &[Value]) -> Self {
        let (old, new) = (by_id(before), by_id(after));
        let mut diff = Self::default();
        for rule in after {
            match old.get(id_of(rule)) {
                None => diff.added.push(rule.clone()),
                Some(&earlier) if earlier != rule => {
                    diff.changed.push((earlier.clone(), rule.clone()));
                }
                Some(_) => {}
            }
        }
        let is_gone = |rule: &&Value| !new.contains_key(id_of(rule));
        diff.removed = before.iter().filter(is_gone).cloned().collect();
        let common = |rules: &[Value], others: &HashMap<&str, &Value>| -> Vec<String> {
            let ids = rules.iter().map(id_of).filter(|id| others.contains_key(id));
            ids.map(str::to_owned).collect()
        };
        let (old, new) = (common(before, &new), common(after, &old));
        diff.order = (old != new).then_some((old, new));
        diff
    }

    /// Whether the sets are the same.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The differences as JSON: `added`, `removed`, `changed` and `order`.
    pub fn to_json(&self) -> Value {
        let both = |(before, after): &(Value, Value)| json!({"rule": id_of(after), "before": before, "after": after});
        let order = self.order.as_ref();
        json!({
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed.iter().map(both).collect::<Vec<Value>>(),
            "order": order.map(|(before, after)| json!({"before": before, "after": after})),
        })
    }
}

/// The id of a rule; empty if it has none.
pub fn id_of(rule: &Value) -> &str {
    rule.get("id").and_then(Value::as_str).unwrap_or_default()
}

fn by_id(rules: &[Value]) -> HashMap<&str, &Value> {
    rules.iter().map(|rule| (id_of(rule), rule)).collect()
}

/// The hunks of a unified diff of two texts; empty if they are the same.
pub fn unified(before: &str, after: &str) -> String {
    hunks(before, after, |_| None)
}

/// The most text that a set of rules may have to be compared, in bytes.
pub const MAX_TEXT: usize = 2 << 20;

/// A set of rules has too much text to be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuchText {
    /// Which of the two sets.
    pub index: usize,
}

/// A unified diff of the YAML of two sets of rules. Each hunk names the rule of its first change. Empty if the
/// sets are the same. An error if one of them has more than 2 MiB.
pub fn unified_sets(
    names: [&str; 2],
    before: &[Value],
    after: &[Value],
) -> Result<String, TooMuchText> {
    let old = SetText::of(before).ok_or(TooMuchText { index: 0 })?;
    let new = SetText::of(after).ok_or(TooMuchText { index: 1 })?;
    let hunks = hunks(&old.yaml, &new.yaml, |first| {
        let id = match first.tag() {
            DiffTag::Delete => old.rule_at(first.old_range().start),
            _ => new.rule_at(first.new_range().start),
        };
        id.map(|id| format!(" rule {id}"))
    });
    if hunks.is_empty() {
        return Ok(hunks);
    }
    Ok(format!("--- {}\n+++ {}\n{hunks}", names[0], names[1]))
}

/// The YAML of a set of rules, and the line at which each rule begins.
struct SetText<'r> {
    yaml: String,
    starts: Vec<(usize, &'r str)>,
}

impl<'r> SetText<'r> {
    /// None if it is more than can be compared.
    fn of(rules: &'r [Value]) -> Option<Self> {
        if rules.is_empty() {
            let (yaml, starts) = (write_yaml(&json!({"rules": []})), Vec::new());
            return Some(Self { yaml, starts });
        }
        let mut text = Self {
            yaml: "rules:\n".to_owned(),
            starts: Vec::new(),
        };
        let mut line = 1;
        for rule in rules {
            let alone = write_yaml(&json!({"rules": [rule]}));
            let item = alone.strip_prefix("rules:\n").unwrap_or(&alone);
            text.starts.push((line, id_of(rule)));
            text.yaml.push_str(item);
            line += item.lines().count();
            if text.yaml.len() > MAX_TEXT {
                return None;
            }
        }
        Some(text)
    }

    /// The rule that a line belongs to.
    fn rule_at(&self, line: usize) -> Option<&'r str> {
        let after = self.starts.partition_point(|(start, _)| *start <= line);
        let (_, id) = self.starts.get(after.checked_sub(1)?)?;
        Some(id)
    }
}

/// The hunks of a diff. `section` is what follows the position of a hunk, from its first change.
fn hunks(before: &str, after: &str, section: impl Fn(&DiffOp) -> Option<String>) -> String {
    let diff = TextDiff::configure()
        .timeout(PATIENCE)
        .diff_lines(before, after);
    let mut text = String::new();
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        let first = hunk.ops().iter().find(|op| op.tag() != DiffTag::Equal);
        text.push_str(hunk.header().to_string().trim_end());
        text.extend(first.and_then(&section));
        text.push('\n');
        for change in hunk.iter_changes() {
            text.push(match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            });
            text.push_str(change.value().trim_end_matches('\n'));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(id: &str, limit: &str) -> Value {
        json!({"id": id, "per": ["ip"], "limit": limit})
    }

    #[test]
    fn each_kind_of_change_is_found() {
        let before = ["a", "b", "c", "d"].map(|id| rule(id, "1/s"));
        let after = [
            rule("c", "1/s"),
            rule("new", "1/s"),
            rule("b", "2/s"),
            rule("d", "1/s"),
        ];
        let diff = RuleDiff::between(&before, &after);
        let expected = json!({
            "added": [rule("new", "1/s")],
            "removed": [rule("a", "1/s")],
            "changed": [{"rule": "b", "before": rule("b", "1/s"), "after": rule("b", "2/s")}],
            "order": {"before": ["b", "c", "d"], "after": ["c", "b", "d"]},
        });
        assert_eq!(diff.to_json(), expected);
        assert!(RuleDiff::between(&after, &after).is_empty());
    }

    #[test]
    fn a_rule_in_between_changes_no_order() {
        let before = [rule("a", "1/s"), rule("b", "1/s")];
        let after = [rule("a", "1/s"), rule("x", "1/s"), rule("b", "1/s")];
        assert_eq!(RuleDiff::between(&before, &after).order, None);
    }

    #[test]
    fn a_diff_of_sets_names_the_rule_of_each_hunk() {
        let before = ["a", "b", "c"].map(|id| rule(id, "1/s"));
        let after = [rule("a", "1/s"), rule("b", "1/s"), rule("c", "9/s")];
        let unified_sets =
            |names, before: &[Value], after: &[Value]| unified_sets(names, before, after).unwrap();
        let text = unified_sets(["version 3", "version 5"], &before, &after);
        let expected = "--- version 3\n+++ version 5\n@@ -7,4 +7,4 @@ rule c\n     limit: 1/s\n   - id: c\n     per: [ip]\n-    limit: 1/s\n+    limit: 9/s\n";
        assert_eq!(text, expected);
        assert_eq!(unified_sets(["a", "b"], &after, &after), "");
        let gone = unified_sets(["version 1", "version 2"], &before[..1], &[]);
        let expected = "--- version 1\n+++ version 2\n@@ -1,4 +1 @@\n-rules:\n-  - id: a\n-    per: [ip]\n-    limit: 1/s\n+rules: []\n";
        assert_eq!(gone, expected);
    }

    #[test]
    fn sets_with_much_text_are_not_compared() {
        let long = |bytes: usize| [json!({"id": "a", "description": "x".repeat(bytes)})];
        let (most, more) = (long(MAX_TEXT - 100), long(MAX_TEXT));
        assert_eq!(unified_sets(["1", "2"], &most, &most), Ok(String::new()));
        let refused = |index| Err(TooMuchText { index });
        assert_eq!(unified_sets(["1", "2"], &more, &most), refused(0));
        assert_eq!(unified_sets(["1", "2"], &most, &more), refused(1));
    }

    /// The text is what a person would have in a file, so that `patch` can use the diff.
    #[test]
    fn the_text_of_a_set_is_its_yaml() {
        let rules = [
            json!({"per": [], "limit": "1/s", "id": "last", "description": "two\nlines"}),
            json!({"id": "b", "match": {"path": ["/a", "/b"]}, "per": ["ip"], "limit": "1/s"}),
        ];
        let text = SetText::of(&rules).unwrap();
        assert_eq!(text.yaml, write_yaml(&json!({"rules": rules})));
        assert_eq!((text.rule_at(0), text.rule_at(1)), (None, Some("last")));
        assert_eq!(
            (text.rule_at(6), text.rule_at(99)),
            (Some("last"), Some("b"))
        );
    }
}
