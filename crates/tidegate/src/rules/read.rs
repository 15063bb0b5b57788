//! Reads a list of rules as they are written, and says everything that is wrong with it.

use std::collections::HashMap;
use std::sync::Arc;

use super::RuleSettings;
use super::keys::{RULE, RULE_SET};
use super::pointless::warn_of_alike;
use super::read_exempt::Exempt;
use super::read_rule::rule;
use super::rule::Rule;
use crate::internal::document::{Entry, Fields, Node, Place, Problems, Spot, Value};

/// The rules of a document, or nothing if there is an error.
pub(super) fn rules(
    node: &Node,
    settings: &RuleSettings,
    problems: &mut Problems,
) -> Option<Vec<Arc<Rule>>> {
    let document = Spot::document();
    match &node.value {
        Value::Null => {
            let message = "there is nothing in it; write `rules:` and below it a list of rules";
            return document.refused(node, message, problems);
        }
        Value::List(_) => {
            let message = "the list of rules must stand below the key `rules:`";
            return document.refused(node, message, problems);
        }
        Value::Scalar(_) | Value::Map(_) => {}
    }
    let fields = Fields::new(node, document.clone(), &RULE_SET, problems)?;
    let empty = fields.key("rules");
    let listed = fields.take("rules");
    let is_of_rule = |entry: &&Entry| RULE.iter().any(|row| row.name == entry.key);
    // It has lost its indentation.
    if let Some(Entry { key, key_place, .. }) = node.entries().iter().find(is_of_rule) {
        let for_all = match key.as_str() {
            "except" => ", or write `exempt:` for all rules",
            _ => "",
        };
        let message =
            format!("`{key}` belongs to a rule: indent it below the rule's `- id:`{for_all}");
        problems.error(key_place, &document, message);
        return None;
    }
    let all_known = fields.done(problems);
    let Some((spot, list)) = listed else {
        if empty.is_none() && all_known {
            problems.error(
                &node.place,
                &document,
                "the key `rules` is missing; write `rules:` and below it a list of rules",
            );
        }
        if let Some(entry) = empty {
            problems.error(
                &entry.key_place,
                &document.field("rules"),
                "there is nothing below `rules`; write `rules: []` if none are meant",
            );
        }
        return None;
    };
    let Value::List(list) = &list.value else {
        let message = format!(
            "this must be a list of rules, each beginning with `- id:`, not {}",
            list.kind()
        );
        return spot.refused(list, message, problems);
    };
    let exempt = Exempt::read(&fields, list.len(), problems);
    let mut read: Vec<Option<Rule>> = Vec::new();
    let mut seen: HashMap<&str, &Place> = HashMap::new();
    for (index, item) in list.iter().enumerate() {
        let mut rule = rule(item, index, settings, problems);
        if let Some(rule) = &mut rule {
            exempt.add_to(rule, item, problems);
        }
        read.push(rule);
        if let Some((id, place)) = id_of(item) {
            if let Some(first) = seen.get(id) {
                let spot = Spot::rule_with_id(id).field("id");
                problems.error(place, &spot, repeated_id(id, first));
            } else {
                seen.insert(id, place);
            }
        }
    }
    if problems.has_errors() {
        return None;
    }
    let rules: Vec<Arc<Rule>> = read.into_iter().flatten().map(Arc::new).collect();
    warn_of_alike(&rules, |index| &list[index].place, problems);
    Some(rules)
}

/// The message for a duplicate id that was first used at `first`.
pub(super) fn repeated_id(id: &str, first: &Place) -> String {
    let first = first.as_first();
    format!("two rules have the id `{id}`{first}; give each its own")
}

/// The text under `id`, if there is one, and where it stands.
pub(super) fn id_of(node: &Node) -> Option<(&str, &Place)> {
    let id = node.get("id")?;
    Some((id.text()?, &id.place))
}
