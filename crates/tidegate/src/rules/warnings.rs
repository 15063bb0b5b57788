//! What is allowed in a rule, and probably not meant.

use super::rule::{Missing, Mode, Rule, Sync};
use crate::document::{Node, Place, Problems, Spot, Value};

/// Attributes that every front end knows of a request, so that a client cannot leave them out.
const ALWAYS_KNOWN: [&str; 4] = ["ip", "method", "path", "host"];
/// Names that people mean when they write one that is like them.
const WELL_KNOWN: [&str; 7] = ["ip", "method", "path", "host", "user_id", "api_key", "tier"];

pub(super) fn of(rule: &Rule, node: &Node, spot: &Spot, problems: &mut Problems) {
    if rule.missing == Missing::Skip && rule.mode == Mode::Enforce {
        let required = |name: &String| {
            rule.matches
                .attributes
                .iter()
                .any(|(known, _)| known == name)
        };
        let escape = |name: &&String| !ALWAYS_KNOWN.contains(&name.as_str()) && !required(name);
        let escapes: Vec<&String> = rule.per.iter().filter(escape).collect();
        if let Some(first) = escapes.first() {
            let names: Vec<String> = escapes.iter().map(|name| format!("`{name}`")).collect();
            let message = format!(
                "a request without {} escapes this rule; write `missing: deny` or `missing: share` if it must not, or see that another rule is about such requests",
                names.join(" or ")
            );
            problems.warning(place_in(node, "per", first), &spot.field("per"), message);
        }
    }
    for name in &rule.per {
        let known = WELL_KNOWN.contains(&name.as_str());
        let suggestion = match name.strip_prefix("headers.") {
            Some(header) => format!(" (did you mean `header.{header}`?)"),
            None if known || name.len() < 4 => String::new(),
            None => crate::document::suggestion(name, &WELL_KNOWN),
        };
        if !suggestion.is_empty() {
            let message = format!(
                "`{name}` is not an attribute that Tidegate knows{suggestion}; ignore this if your callers send it"
            );
            problems.warning(place_in(node, "per", name), &spot.field("per"), message);
        }
    }
    if rule.sync == Sync::Leased && rule.mode == Mode::Shadow {
        problems.warning(
            &value_of(node, "sync").place,
            &spot.field("sync"),
            "a shadow rule is charged for every request; `leased` makes no difference",
        );
    }
}

/// The value of a key of the rule.
fn value_of<'n>(node: &'n Node, key: &str) -> &'n Node {
    let Value::Map(entries) = &node.value else {
        return node;
    };
    let entry = entries.iter().find(|entry| entry.key == key);
    entry.map_or(node, |entry| &entry.value)
}

/// Where a text stands in the list under a key of the rule.
fn place_in<'n>(node: &'n Node, key: &str, text: &str) -> &'n Place {
    let value = value_of(node, key);
    let is_meant =
        |item: &&Node| matches!(&item.value, Value::Scalar(scalar) if scalar.text == text);
    let item = match &value.value {
        Value::List(list) => list.iter().find(is_meant),
        _ => None,
    };
    &item.unwrap_or(value).place
}
