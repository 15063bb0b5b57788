//! The `dynamic_metadata` of a call with a `quota_mode` limit, with the field names of envoyproxy/ratelimit. Later
//! Envoy filters choose an upstream by it.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::{Map, Value as Json, json};
use tidegate::gate::{Decision, Decisions};

use super::call::{CallDescriptor, RateLimitCall};

/// The exceeded quotas and the request; `None` if no quota applied.
pub(super) fn of_quotas(asked: &RateLimitCall<'_>, decisions: &Decisions) -> Option<Struct> {
    if !decisions.quotas().any(|is_quota| is_quota) {
        return None;
    }
    let numbered = decisions.iter().zip(decisions.quotas()).enumerate();
    let exceeded = numbered.filter(|(_, (decision, is_quota))| *is_quota && decision.is_denied());
    let exceeded: Vec<usize> = exceeded.map(|(number, _)| number).collect();
    let both = asked.descriptors.iter().zip(decisions.iter());
    let descriptors: Vec<Json> = both
        .map(|(asked, decision)| descriptor(asked, decision))
        .collect();
    let mut fields = json!({
        "domain": asked.domain,
        "quotaModeEnabled": true,
        "quotaModeViolations": exceeded,
        "descriptors": descriptors,
    });
    if asked.hits_addend > 0 {
        fields["hitsAddend"] = json!(asked.hits_addend);
    }
    let mut available = Map::new();
    for decision in decisions.iter().filter(|decision| decision.is_allowed()) {
        if let Some(Json::Object(metadata)) = metadata_of(decision) {
            add_missing(&mut available, metadata);
        }
    }
    if !available.is_empty() {
        fields["metadata"] = Json::Object(available);
    }
    match value(fields).kind {
        Some(Kind::StructValue(fields)) => Some(fields),
        _ => None,
    }
}

/// The entries of a descriptor, and the metadata of its limit.
fn descriptor(asked: &CallDescriptor<'_>, decision: &Decision) -> Json {
    let entries = asked.entries.iter();
    let entries = entries.map(|entry| {
        let value = String::from_utf8_lossy(entry.value);
        format!("{}={value}", entry.key)
    });
    let mut fields = json!({"entries": entries.collect::<Vec<_>>()});
    if let Some(hits) = asked.hits_addend {
        fields["hitsAddend"] = json!(hits);
    }
    if let Some(metadata) = metadata_of(decision) {
        fields["metadata"] = metadata.clone();
    }
    fields
}

/// The metadata of the limit of a descriptor.
fn metadata_of(decision: &Decision) -> Option<&Json> {
    let mut limits = decision.limits();
    limits.next().and_then(|limit| limit.rule.metadata())
}

/// Adds missing fields. Maps on both sides are merged.
fn add_missing(all: &mut Map<String, Json>, more: &Map<String, Json>) {
    for (key, new) in more {
        match (all.get_mut(key), new) {
            (None, _) => {
                all.insert(key.clone(), new.clone());
            }
            (Some(Json::Object(known)), Json::Object(new)) => add_missing(known, new),
            (Some(_), _) => {}
        }
    }
}

fn value(json: Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(flag) => Kind::BoolValue(flag),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text),
        Json::Array(list) => Kind::ListValue(ListValue {
            values: list.into_iter().map(value).collect(),
        }),
        Json::Object(fields) => Kind::StructValue(Struct {
            fields: fields
                .into_iter()
                .map(|(name, json)| (name, value(json)))
                .collect(),
        }),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_become_one_and_what_is_known_stays() {
        let Json::Object(mut all) = json!({"a": 1, "route": {"pool": "x"}}) else {
            panic!("a map")
        };
        let Json::Object(more) = json!({"a": 2, "b": [1], "route": {"pool": "y", "zone": "z"}})
        else {
            panic!("a map")
        };
        add_missing(&mut all, &more);
        assert_eq!(
            Json::Object(all),
            json!({"a": 1, "b": [1], "route": {"pool": "x", "zone": "z"}})
        );
    }
}
