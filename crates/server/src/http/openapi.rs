//! The description of the API as it applies to this server: `openapi.json`, with the schemas of rules from the
//! tables of their keys and the version of the package.

use bytes::Bytes;
use serde_json::Value;

const DOCUMENT: &str = include_str!("openapi.json");

/// The description. It has `timestamp` only for servers that trust timestamps.
pub(super) fn describe(trust_timestamps: bool) -> Bytes {
    let Ok(mut document) = serde_json::from_str::<Value>(DOCUMENT) else {
        debug_assert!(false, "openapi.json must be JSON");
        return Bytes::from_static(DOCUMENT.as_bytes());
    };
    if let Some(version) = document.pointer_mut("/info/version") {
        *version = env!("CARGO_PKG_VERSION").into();
    }
    if let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas") {
        schemas.extend(tidegate::rules::api_schemas());
    }
    for schema in ["Check", "Explain", "Reserve", "Settle", "Extend", "Cancel"] {
        let properties = format!("/components/schemas/{schema}/properties");
        if let Some(Value::Object(properties)) = document.pointer_mut(&properties)
            && !trust_timestamps
        {
            properties.shift_remove("timestamp");
        }
    }
    format!("{document:#}").into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::route::{ANY, ROUTES};
    use super::*;
    use crate::access::CallScope;

    fn document(trust_timestamps: bool) -> Value {
        serde_json::from_slice(&describe(trust_timestamps)).unwrap()
    }

    /// Every operation with its method and its path, by its name.
    fn described(document: &Value) -> BTreeMap<String, (String, Value)> {
        let mut operations = BTreeMap::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                let call = format!("{} {path}", method.to_uppercase());
                let earlier = operations.insert(id.to_owned(), (call, operation.clone()));
                assert!(earlier.is_none(), "two operations are called {id}");
            }
        }
        operations
    }

    #[test]
    fn what_is_described_is_routed_and_what_is_routed_is_described() {
        // None for the default: a token is needed only where some are configured.
        let described: BTreeMap<String, Option<Value>> = described(&document(true))
            .into_values()
            .map(|(call, operation)| (call, operation.get("security").cloned()))
            .collect();
        // Files are not part of the API.
        let is_file = |path: &str| path == "/" || path.starts_with("/console");
        let of_api = ROUTES.iter().filter(|route| !is_file(route.path));
        let routed = of_api.map(|route| {
            // A call that answers all methods is described by one.
            let method = if route.method == ANY {
                "GET"
            } else {
                route.method
            };
            let security = match route.scope {
                CallScope::Open | CallScope::Probe => Some(serde_json::json!([])),
                CallScope::Check => None,
                _ => Some(serde_json::json!([{"token": []}])),
            };
            (format!("{method} {}", route.path), security)
        });
        assert_eq!(described, routed.collect());
    }

    #[test]
    fn every_reply_is_described_and_every_reference_leads_somewhere() {
        let document = document(true);
        for (id, (_, operation)) in described(&document) {
            for (status, reply) in operation["responses"].as_object().unwrap() {
                let reply = match reply["$ref"].as_str() {
                    Some(reference) => document.pointer(&reference[1..]).unwrap(),
                    None => reply,
                };
                assert!(reply["description"].is_string(), "{id} {status}");
                let Some(content) = reply["content"].as_object() else {
                    let is_empty = matches!(status.as_str(), "204" | "304") || id == "authorize";
                    assert!(is_empty, "{id} {status}");
                    continue;
                };
                for (media_type, body) in content {
                    let is_json = media_type.ends_with("json");
                    let is_other = matches!(id.as_str(), "metrics" | "activityStream");
                    assert!(is_json || is_other, "{id} {status}: {media_type}");
                    assert!(body["schema"].is_object(), "{id} {status}");
                }
                let is_refusal = status.starts_with('4') && status != "429";
                let is_problem = content.contains_key("application/problem+json");
                assert!(is_problem || !is_refusal, "{id} {status}");
            }
        }
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            match value {
                Value::Array(list) => open.extend(list),
                Value::Object(map) => open.extend(map.values()),
                _ => {}
            }
            if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
            }
        }
    }

    #[test]
    fn the_version_is_that_of_the_package() {
        let version = &document(true)["info"]["version"];
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn what_rules_may_be_is_not_written_twice() {
        let written: Value = serde_json::from_str(DOCUMENT).unwrap();
        let written = written["components"]["schemas"].as_object().unwrap();
        for name in tidegate::rules::api_schemas().keys() {
            assert!(!written.contains_key(name), "{name} is in openapi.json too");
        }
    }

    #[test]
    fn timestamps_are_described_only_where_they_are_trusted() {
        let has_timestamp = |trust_timestamps| {
            let document = document(trust_timestamps);
            let check = &document["components"]["schemas"]["Check"]["properties"];
            assert!(check["cost"].is_object());
            check.get("timestamp").is_some()
        };
        assert!(has_timestamp(true) && !has_timestamp(false));
    }
}
