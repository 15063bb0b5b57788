//! `tidegate rules list`: the server's rules, a line each.

use serde_json::Value;
use tidegate::rules::{Rule, RuleSettings};
use tidegate_server::rulebook::id_of;

use super::promise;
use super::remote::{Remote, understood};
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output::{self, TextTable, counted};

/// How much of a rule's match is shown, in characters.
const MAX_MATCH: usize = 60;

pub(super) fn run(client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let reply = client.get("/v1/rules")?.accept(&[200])?;
    let remote = Remote::from_reply(&reply)?;
    if json {
        output::print_json(&reply.body)?;
    } else if remote.rules.is_empty() {
        output::note("there are no rules; add some with `tidegate rules apply -f FILE`\n")?;
    } else {
        output::print(&table(&remote.rules))?;
    }
    Ok(Answer::Yes)
}

fn table(rules: &[Value]) -> String {
    let mut table = TextTable::new(&[
        "id",
        "limit",
        "algorithm",
        "per",
        "match",
        "mode",
        "worst case",
    ]);
    for rule in rules {
        let read = understood(rule, &RuleSettings::default());
        let canonical = read.as_ref().map(Rule::to_json);
        let rule = canonical.as_ref().unwrap_or(rule);
        let text = |key: &str| rule.get(key).map(words);
        let algorithm = read.as_ref().and_then(promise::algorithms);
        let algorithm = algorithm.or_else(|| text("algorithm"));
        let per = text("per").unwrap_or_default();
        table.row(vec![
            id_of(rule).to_owned(),
            limit(rule),
            algorithm.unwrap_or_else(|| "-".to_owned()),
            if per.is_empty() {
                "(one for all)".to_owned()
            } else {
                per
            },
            matches(rule),
            mode(rule),
            read.as_ref()
                .map_or_else(|| "-".to_owned(), promise::in_one_line),
        ]);
    }
    table.render()
}

/// The limit, and how many tiers and overrides there are.
fn limit(rule: &Value) -> String {
    let mut text = match rule.get("adaptive") {
        Some(adaptive) => bounds(adaptive),
        None => rule.get("limit").map(words).unwrap_or_default(),
    };
    for (key, one) in [("tiers", "tier"), ("overrides", "override")] {
        if let Some(map) = rule.get(key).and_then(Value::as_object) {
            text.push_str(" +");
            text.push_str(&counted(map.len(), one));
        }
    }
    if let Some(candidate) = rule.get("candidate") {
        let limit = candidate.get("limit").unwrap_or(candidate);
        let limit = match limit {
            Value::Object(_) => "other".to_owned(),
            limit => words(limit),
        };
        text.push_str(", candidate ");
        text.push_str(&limit);
    }
    text
}

/// The bounds of an adaptive limit.
fn bounds(adaptive: &Value) -> String {
    let part = |key| adaptive.get(key).map(words).unwrap_or_default();
    format!("{} to {}", part("min"), part("max"))
}

/// Whether it decides, and for which share of its keys it or its candidate does.
fn mode(rule: &Value) -> String {
    let mode = rule.get("mode").map_or_else(|| "enforce".to_owned(), words);
    match rule.get("rollout").map(words) {
        Some(share) if rule.get("candidate").is_some() => format!("{mode}, candidate for {share}"),
        Some(share) => format!("{mode} for {share}"),
        None => mode,
    }
}

fn matches(rule: &Value) -> String {
    let parts = rule.get("match").and_then(Value::as_object);
    let mut named = Vec::new();
    for (part, value) in parts.into_iter().flatten() {
        match (part.as_str(), value.as_object()) {
            ("attributes", Some(attributes)) => {
                let attribute =
                    |(name, value): (&String, &Value)| format!("{name}={}", words(value));
                named.extend(attributes.iter().map(attribute));
            }
            _ => named.push(format!("{part}={}", words(value))),
        }
    }
    let text = if named.is_empty() {
        "-".to_owned()
    } else {
        named.join(" ")
    };
    if text.chars().count() <= MAX_MATCH {
        return text;
    }
    let kept: String = text.chars().take(MAX_MATCH - 1).collect();
    format!("{kept}…")
}

/// A value as short text: strings as they are, lists with commas.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(words).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_rule_has_a_line() {
        let rules = [
            json!({"id": "per-user", "per": ["user_id"], "limit": "100/minute burst 20",
                   "tiers": {"free": "10/minute", "pro": "unlimited"}, "overrides": {"x": "blocked"},
                   "match": {"path": ["/v1/**", "/login"], "method": ["GET"], "attributes": {"plan": ["free"]}}}),
            json!({"id": "monthly", "per": ["api_key", "ip"], "limit": {"requests": 5, "window": "month"}, "mode": "shadow",
                   "match": {"when": "attributes[\"region\"] == \"eu\" && cost > 1 && attributes[\"plan\"] == \"free\""}}),
            json!({"id": "quota", "per": ["api_key"], "limit": "10000/day; 100/second"}),
            json!({"id": "all", "per": [], "limit": "10/second", "algorithm": "sliding_window_log"}),
            json!({"id": "upstream", "per": [], "algorithm": "concurrency", "adaptive": {"min": 10, "max": 500}}),
            json!({"id": "tried", "per": ["ip"], "limit": "9/s", "candidate": "5/s", "rollout": "10%"}),
            json!({"id": "tiered", "per": ["ip"], "limit": "9/s", "candidate": {"tiers": {"pro": "5/s"}}}),
            json!({"id": "some", "per": ["ip"], "limit": "9/s", "rollout": "2.5%"}),
            json!({"id": "from-the-future", "per": ["ip"], "limit": "1/s", "colour": "red"}),
        ];
        insta::assert_snapshot!(anstream::adapter::strip_str(&table(&rules)));
    }
}
