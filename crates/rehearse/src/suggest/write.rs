//! Prints suggestions: rules as YAML with the evidence as comments, or JSON.

use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};
use tidegate::Limit;
use tidegate::document::write_yaml;
use tidegate::limit::Window;
use tidegate::printable::escaped;
use tidegate::rules::Rule;

use super::goal::SuggestGoal;
use super::{Suggested, SuggestedGrant};
use crate::report::rename_overrides;
use crate::run::{ClientNames, hash_of};

/// Limits as rules write them.
fn written(limits: &[Limit]) -> String {
    let limits: Vec<String> = limits
        .iter()
        .map(|limit| limit.rate().to_string())
        .collect();
    limits.join("; ")
}

/// The suggestions as JSON.
pub fn suggestions_to_json(suggested: &Suggested) -> Value {
    let goal = match suggested.goal {
        SuggestGoal::Clients(share) => json!({"clients": share.as_f64()}),
        SuggestGoal::Requests(share) => json!({"requests": share.as_f64()}),
    };
    let mut entries = Vec::new();
    for grant in &suggested.grants {
        let rule = &suggested.rules[grant.rule];
        for (limit, was) in grant.limits.iter().zip(&grant.was) {
            entries.push(entry(suggested, grant, rule, (limit, was)));
        }
    }
    json!({"goal": goal, "suggestions": entries, "input": suggested.input, "warnings": suggested.warnings})
}

fn entry(
    suggested: &Suggested,
    grant: &SuggestedGrant,
    rule: &Rule,
    (limit, was): (&Limit, &Limit),
) -> Value {
    let rate = limit.rate();
    let window = match rate.window {
        Some(Window::Span(span)) => crate::report::seconds(span.get()),
        Some(window) => json!(window.to_string()),
        None => Value::Null,
    };
    let busiest = grant.busiest.as_ref();
    let busiest = busiest.map(
        |(key, requests)| json!({"key": suggested.names.key(rule, key), "requests": requests}),
    );
    json!({
        "rule": rule.id(),
        "tier": grant.tier,
        "limit": rate.to_string(),
        "requests_per_window": rate.count,
        "window": window,
        "burst": rate.burst,
        "was": (!suggested.are_new).then(|| was.rate().to_string()),
        "clients": grant.clients,
        "clients_denied": grant.clients_denied,
        "requests": grant.requests,
        "requests_denied": grant.requests_denied,
        "busiest": busiest,
    })
}

/// The suggestions as a rule file. Rules without a suggestion stay as they are.
pub fn suggestions_to_yaml(suggested: &Suggested) -> String {
    let mut text = String::new();
    for warning in &suggested.warnings {
        text.push_str(&format!("# warning: {}\n", escaped(warning)));
    }
    text.push_str("rules:\n");
    for (index, rule) in suggested.rules.iter().enumerate() {
        let grants: Vec<&SuggestedGrant> = suggested
            .grants
            .iter()
            .filter(|grant| grant.rule == index)
            .collect();
        for grant in &grants {
            for line in evidence(suggested, grant, rule) {
                text.push_str(&format!("  # {}\n", escaped(&line)));
            }
        }
        let rule = changed(rule, &grants, suggested.as_candidate, &suggested.names);
        for (number, line) in write_yaml(&rule).lines().enumerate() {
            text.push_str(if number == 0 { "  - " } else { "    " });
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Why these limits.
fn evidence(suggested: &Suggested, grant: &SuggestedGrant, rule: &Rule) -> Vec<String> {
    let what = match &grant.tier {
        Some(tier) => format!("tier {tier}"),
        None => "limit".to_owned(),
    };
    let was = if suggested.are_new {
        String::new()
    } else {
        format!(", was {}", written(&grant.was))
    };
    let mut lines = vec![
        format!("{what}: {}{was}", written(&grant.limits)),
        format!(
            "denies {} of {} requests, of {} of {} clients",
            grant.requests_denied, grant.requests, grant.clients_denied, grant.clients
        ),
    ];
    if let Some((key, requests)) = &grant.busiest {
        let key = suggested.names.key(rule, key);
        let values = key.as_object().into_iter().flatten();
        let values: Vec<String> = values
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
            .collect();
        let client = if values.is_empty() {
            "all clients".to_owned()
        } else {
            values.join(" ")
        };
        lines.push(format!("busiest: {client} with {requests} requests"));
    }
    let all = algorithms(rule);
    if all.len() > 1 {
        let each: Vec<String> = grant
            .limits
            .iter()
            .map(|limit| format!("{} of {}", limit.algorithm().name(), limit.rate()))
            .collect();
        lines.push(format!(
            "algorithm: {}, each the default of its window; one key cannot name several",
            each.join(", ")
        ));
    }
    if grant.is_raised {
        lines.push("raised in steps of 5 %, because costs are not equal".to_owned());
    }
    lines
}

/// A rule with the suggested limits, as it is written.
fn changed(
    rule: &Rule,
    grants: &[&SuggestedGrant],
    as_candidate: bool,
    names: &ClientNames,
) -> Value {
    let mut object = rule.written().clone();
    let mut per = rule.per().iter();
    if let Some(first) = per.next().filter(|first| names.is_hidden(first)) {
        // A network has no hash that its addresses match.
        let has_hash = |value: &str| first != "ip" || value.parse::<Ipv4Addr>().is_ok();
        let name = |value: &str| {
            if has_hash(value) {
                hash_of(value)
            } else {
                value.to_owned()
            }
        };
        rename_overrides(&mut object, &name);
    }
    let mut object: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
    if grants.is_empty() {
        return Value::Object(object);
    }
    let limit = grants
        .iter()
        .find(|grant| grant.tier.is_none())
        .map(|grant| json!(written(&grant.limits)));
    let tiers: Map<String, Value> = grants
        .iter()
        .filter_map(|grant| Some((grant.tier.clone()?, json!(written(&grant.limits)))))
        .collect();
    if as_candidate {
        let candidate = match (limit, tiers.is_empty()) {
            (Some(limit), true) => limit,
            (limit, _) => {
                let mut candidate = Map::new();
                candidate.extend(limit.map(|limit| ("limit".to_owned(), limit)));
                if !tiers.is_empty() {
                    candidate.insert("tiers".to_owned(), Value::Object(tiers));
                }
                Value::Object(candidate)
            }
        };
        object.insert("candidate".to_owned(), candidate);
    } else {
        if let Some(limit) = limit {
            object.insert("limit".to_owned(), limit);
        }
        if let Some(known) = object.get_mut("tiers").and_then(Value::as_object_mut) {
            for (tier, limit) in tiers {
                known.insert(tier, limit);
            }
        }
    }
    // Without the key each limit has its default, as it had before; a candidate has that of its rule.
    if let [algorithm] = algorithms(rule)[..]
        && !object.contains_key("algorithm")
    {
        let limit = object
            .keys()
            .position(|key| key == "limit")
            .map_or(object.len(), |at| at + 1);
        object.shift_insert(limit, "algorithm".to_owned(), json!(algorithm));
    }
    Value::Object(object)
}

/// The names of the algorithms that the limits of a rule have, each once.
fn algorithms(rule: &Rule) -> Vec<&'static str> {
    let limits = rule
        .grants()
        .iter()
        .flat_map(tidegate::rules::Grant::limits);
    let mut names: Vec<&str> = limits.map(|limit| limit.algorithm().name()).collect();
    names.sort_unstable();
    names.dedup();
    names
}
