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
    let properties = document.pointer_mut("/components/schemas/Check/properties");
    if let Some(Value::Object(properties)) = properties
        && !trust_timestamps
    {
        properties.shift_remove("timestamp");
    }
    format!("{document:#}").into()
}

#[cfg(test)]
mod tests {
    use super::super::route::{self, ApiCall};
    use super::*;
    use http::Method;
    use std::collections::BTreeMap;

    /// One call of each kind.
    const EVERY: &[ApiCall<'_>] = &[
        ApiCall::Check,
        ApiCall::CheckBatch,
        ApiCall::Explain,
        ApiCall::Authorize,
        ApiCall::ListRules,
        ApiCall::ReplaceRules,
        ApiCall::CreateRule,
        ApiCall::GetRule("x"),
        ApiCall::PutRule("x"),
        ApiCall::DeleteRule("x"),
        ApiCall::History,
        ApiCall::RulesVersion("x"),
        ApiCall::RulesDiff,
        ApiCall::RollBack,
        ApiCall::ListOverrides,
        ApiCall::ListOverridesOf("x"),
        ApiCall::PutOverride("x"),
        ApiCall::DeleteOverride("x", "x"),
        ApiCall::Reset,
        ApiCall::Feedback,
        ApiCall::ReleaseLease("x"),
        ApiCall::RenewLease("x"),
        ApiCall::ValidateRule("x"),
        ApiCall::MakeCode,
        ApiCall::OpenSession,
        ApiCall::ShowSession,
        ApiCall::EndSession,
        ApiCall::Health,
        ApiCall::Readiness,
        ApiCall::Metrics,
        ApiCall::OpenApi,
        ApiCall::Status,
        ApiCall::Activity,
        ApiCall::ActivityStream,
        ApiCall::RuleKeys("x"),
    ];

    /// The operation id. A new call needs a row above and in the description.
    fn operation(call: ApiCall<'_>) -> &'static str {
        match call {
            ApiCall::Authorize => "authorize",
            ApiCall::Check => "check",
            ApiCall::CheckBatch => "checkBatch",
            ApiCall::Explain => "explain",
            ApiCall::ListRules => "listRules",
            ApiCall::ReplaceRules => "replaceRules",
            ApiCall::CreateRule => "createRule",
            ApiCall::GetRule(_) => "getRule",
            ApiCall::PutRule(_) => "putRule",
            ApiCall::DeleteRule(_) => "deleteRule",
            ApiCall::History => "ruleHistory",
            ApiCall::RulesVersion(_) => "rulesVersion",
            ApiCall::RulesDiff => "rulesDiff",
            ApiCall::RollBack => "rollBackRules",
            ApiCall::ListOverrides => "listOverrides",
            ApiCall::ListOverridesOf(_) => "listRuleOverrides",
            ApiCall::PutOverride(_) => "putOverride",
            ApiCall::DeleteOverride(..) => "deleteOverride",
            ApiCall::Reset => "reset",
            ApiCall::Feedback => "feedback",
            ApiCall::ReleaseLease(_) => "releaseLease",
            ApiCall::RenewLease(_) => "renewLease",
            ApiCall::ValidateRule(_) => "validateRule",
            ApiCall::MakeCode => "makeConsoleCode",
            ApiCall::OpenSession => "openConsoleSession",
            ApiCall::ShowSession => "showConsoleSession",
            ApiCall::EndSession => "endConsoleSession",
            // Files are not part of the API.
            ApiCall::ConsoleFile(_) | ApiCall::ConsoleRedirect | ApiCall::Root => "console",
            ApiCall::Health => "health",
            ApiCall::Readiness => "readiness",
            ApiCall::Metrics => "metrics",
            ApiCall::OpenApi => "openApi",
            ApiCall::Status => "status",
            ApiCall::Activity => "activity",
            ApiCall::ActivityStream => "activityStream",
            ApiCall::RuleKeys(_) => "ruleKeys",
        }
    }

    fn document(trust_timestamps: bool) -> Value {
        serde_json::from_slice(&describe(trust_timestamps)).unwrap()
    }

    /// Every operation with its method and its path, by its name.
    fn described(document: &Value) -> BTreeMap<String, (Method, String, Value)> {
        let mut operations = BTreeMap::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                let method = method.to_uppercase().parse().unwrap();
                let entry = (
                    method,
                    path.replace("{id}", "x")
                        .replace("{version}", "x")
                        .replace("{key}", "x"),
                    operation.clone(),
                );
                let earlier = operations.insert(id.to_owned(), entry);
                assert!(earlier.is_none(), "two operations are called {id}");
            }
        }
        operations
    }

    #[test]
    fn what_is_described_is_routed_and_what_is_routed_is_described() {
        let document = document(true);
        let operations = described(&document);
        for (id, (method, path, _)) in &operations {
            let call = route::find(method, path).unwrap();
            assert_eq!(operation(call), id, "{method} {path}");
        }
        for call in EVERY {
            assert!(operations.contains_key(operation(*call)), "{call:?}");
        }
        let methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"];
        for (_, path, _) in operations.values() {
            for method in methods.map(|method| method.parse::<Method>().unwrap()) {
                // Which answers to all, and is described by one.
                if let Ok(call) = route::find(&method, path)
                    && call != ApiCall::Authorize
                {
                    let (known, ..) = &operations[operation(call)];
                    assert_eq!(*known, method, "{path} answers to it");
                }
            }
        }
    }

    #[test]
    fn every_reply_is_described_and_every_reference_leads_somewhere() {
        let document = document(true);
        for (id, (_, _, operation)) in described(&document) {
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
