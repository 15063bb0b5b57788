//! The `dynamic_metadata` of a call with a `quota_mode` limit, with the field names of envoyproxy/ratelimit. Later
//! Envoy filters choose an upstream by it.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::{Map, Value as Json, json};
use tidegate::gate::{Decision, Decisions};

use super::call::{CallDescriptor, RateLimitCall};
use super::proto::rate_limit::{RateLimitOverride, Unit};

/// The exceeded quotas and the request; `None` if no quota applied.
pub(super) fn of_quotas(asked: &RateLimitCall<'_>, decisions: &Decisions) -> Option<Struct> {
    if !decisions.quotas().any(|is_quota| is_quota) {
        return None;
    }
    let both = asked.descriptors.iter().zip(decisions.iter());
    let descriptors = both.map(|(asked, decision)| {
        let mut fields = descriptor(asked);
        if let Some(metadata) = metadata_of(decision) {
            fields["metadata"] = metadata.clone();
        }
        fields
    });
    let mut fields = json!({
        "domain": asked.domain,
        "quotaModeEnabled": true,
        "quotaModeViolations": exceeded_quotas(decisions),
        "descriptors": descriptors.collect::<Vec<_>>(),
    });
    add_common(&mut fields, asked, decisions);
    encoded(fields)
}

/// The request, and the metadata of the limits that are not exceeded, in the form of envoyproxy/ratelimit; the exceeded
/// quotas, if any applied.
pub(super) fn of_call(asked: &RateLimitCall<'_>, decisions: &Decisions) -> Option<Struct> {
    let descriptors = asked.descriptors.iter().map(|asked| {
        let mut fields = descriptor(asked);
        if let Some(limit) = asked.limit {
            fields["limit"] = json!(limit_text(limit));
        }
        fields
    });
    let mut fields = json!({
        "domain": asked.domain,
        "descriptors": descriptors.collect::<Vec<_>>(),
    });
    if decisions.quotas().any(|is_quota| is_quota) {
        fields["quotaModeViolations"] = json!(exceeded_quotas(decisions));
    }
    add_common(&mut fields, asked, decisions);
    encoded(fields)
}

/// The numbers of the descriptors whose quota is exceeded.
fn exceeded_quotas(decisions: &Decisions) -> Vec<usize> {
    let numbered = decisions.iter().zip(decisions.quotas()).enumerate();
    let exceeded = numbered.filter(|(_, (decision, is_quota))| *is_quota && decision.is_denied());
    exceeded.map(|(number, _)| number).collect()
}

/// Adds the hits of the call, and the metadata of the limits that are not exceeded.
fn add_common(fields: &mut Json, asked: &RateLimitCall<'_>, decisions: &Decisions) {
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
}

fn encoded(fields: Json) -> Option<Struct> {
    match value(fields).kind {
        Some(Kind::StructValue(fields)) => Some(fields),
        _ => None,
    }
}

/// The entries of a descriptor, and its own hits.
fn descriptor(asked: &CallDescriptor<'_>) -> Json {
    let entries = asked.entries.iter();
    let entries = entries.map(|entry| {
        let value = String::from_utf8_lossy(entry.value);
        format!("{}={value}", entry.key)
    });
    let mut fields = json!({"entries": entries.collect::<Vec<_>>()});
    if let Some(hits) = asked.hits_addend {
        fields["hitsAddend"] = json!(hits);
    }
    fields
}

/// The limit of a call as protobuf writes it as text.
fn limit_text(limit: RateLimitOverride) -> String {
    let mut parts = Vec::new();
    if limit.requests_per_unit > 0 {
        parts.push(format!("requests_per_unit:{}", limit.requests_per_unit));
    }
    match Unit::try_from(limit.unit) {
        Ok(Unit::Unknown) => {}
        Ok(unit) => parts.push(format!("unit:{}", unit.name())),
        Err(_) => parts.push(format!("unit:{}", limit.unit)),
    }
    parts.join(" ")
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
