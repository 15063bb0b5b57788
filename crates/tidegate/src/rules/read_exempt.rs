//! Reads `exempt`: exceptions for all rules of a document, which become part of the `except` of each.

use serde_json::Value as Json;

use super::client_written::warn_if_client_written;
use super::matching::Match;
use super::read_match::{MAX_EXCEPTIONS, read_except};
use super::rule::Rule;
use super::write::as_written;
use crate::internal::document::{Fields, MAX_TEXT, Node, Problems, Spot, Value};

/// The exceptions of all rules.
#[derive(Default)]
pub(super) struct Exempt {
    items: Vec<Match>,
    written: Vec<Json>,
}

impl Exempt {
    /// The exceptions of a document with this many rules.
    pub(super) fn read(fields: &Fields<'_>, rules: usize, problems: &mut Problems) -> Self {
        let Some((spot, node)) = fields.take("exempt") else {
            return Self::default();
        };
        let before = problems.error_count();
        let items = read_except(node, &spot, problems);
        let Value::List(nodes) = &node.value else {
            return Self::default();
        };
        if problems.error_count() > before {
            return Self::default();
        }
        for (index, (item, node)) in items.iter().zip(nodes).enumerate() {
            warn_if_client_written(item, node, &spot.item(index), problems);
        }
        let written: Vec<Json> = nodes.iter().map(as_written).collect();
        let size = Json::from(written.clone()).to_string().len();
        if size.saturating_mul(rules) > MAX_TEXT {
            let message = format!(
                "{size} bytes in each of {rules} rules are more than {} MiB; name networks instead of addresses, or give fewer rules `except`",
                MAX_TEXT >> 20
            );
            problems.error(&node.place, &spot, message);
            return Self::default();
        }
        Self { items, written }
    }

    /// Adds them to a rule that was read.
    pub(super) fn add_to(&self, rule: &mut Rule, node: &Node, problems: &mut Problems) {
        if self.items.is_empty() {
            return;
        }
        let own = rule.except.len();
        if own + self.items.len() > MAX_EXCEPTIONS {
            let message = format!(
                "there may be {MAX_EXCEPTIONS} exceptions at the most, here are {own} and {} of `exempt`; put paths or networks together in the list of one item",
                self.items.len()
            );
            let spot = Spot::rule_with_id(rule.id()).field("except");
            problems.error(&node.get("except").unwrap_or(node).place, &spot, message);
            return;
        }
        rule.except.extend(self.items.iter().cloned());
        let list = rule.written.as_object_mut().map(|map| map.entry("except"));
        let list = list.map(|list| list.or_insert_with(|| Json::Array(Vec::new())));
        if let Some(list) = list.and_then(Json::as_array_mut) {
            list.extend(self.written.iter().cloned());
        }
    }
}
