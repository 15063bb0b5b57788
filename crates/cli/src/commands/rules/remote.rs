//! The rules of the server: the set with its tag, and single rules.

use serde_json::{Value, json};
use tidegate::document::Node;
use tidegate::rules::{Rule, RuleSettings};

use crate::client::{ApiClient, Reply};
use crate::output::{self, plain};

/// The rules of a server at one moment.
pub(super) struct Remote {
    pub(super) rules: Vec<Value>,
    pub(super) version: Option<u64>,
    etag: Option<String>,
}

impl Remote {
    pub(super) fn read(client: &ApiClient) -> anyhow::Result<Self> {
        let reply = client.get("/v1/rules")?.accept(&[200])?;
        Self::from_reply(&reply)
    }

    pub(super) fn from_reply(reply: &Reply) -> anyhow::Result<Self> {
        let mut rules = reply.list("rules")?.to_vec();
        rules.iter_mut().for_each(drop_computed);
        Ok(Self {
            rules,
            version: reply.body.get("version").and_then(Value::as_u64),
            etag: reply.etag.clone(),
        })
    }

    /// Replaces all rules. Returns `None` if they have changed since.
    pub(super) fn replace(
        &self,
        client: &ApiClient,
        rules: &[Value],
    ) -> anyhow::Result<Option<Self>> {
        let body = json!({ "rules": rules });
        let reply = client.put("/v1/rules", &body, self.etag.as_deref())?;
        let reply = reply.accept(&[200, 412])?;
        match reply.status {
            412 => Ok(None),
            _ => Self::from_reply(&reply).map(Some),
        }
    }
}

/// Removes the fields that the server computes and a rule cannot have.
pub(super) fn drop_computed(rule: &mut Value) {
    if let Some(rule) = rule.as_object_mut() {
        rule.shift_remove("worst_case");
    }
}

/// Parses a rule. `None` if the server is newer and this program cannot.
pub(super) fn understood(rule: &Value, settings: &RuleSettings) -> Option<Rule> {
    let node: Node = serde_json::from_value(rule.clone()).ok()?;
    Rule::from_node(&node, settings).ok()
}

/// A rule in canonical form; unchanged if it cannot be parsed.
pub(super) fn canonical(rule: &Value, settings: &RuleSettings) -> Value {
    understood(rule, settings).map_or_else(|| rule.clone(), |rule| rule.to_json())
}

/// The path of a rule. `None` if no rule can have this id.
pub(super) fn path_of(id: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let begins = id.starts_with(|c: char| c.is_ascii_alphanumeric());
    // The API has calls under these names.
    let is_call = matches!(id, "diff" | "history" | "rollback");
    let is_id = begins && id.len() <= 64 && id.bytes().all(fits) && !is_call;
    is_id.then(|| format!("/v1/rules/{id}"))
}

/// One rule of the server.
pub(super) fn find(client: &ApiClient, id: &str) -> anyhow::Result<Option<Value>> {
    let Some(path) = path_of(id) else {
        return Ok(None);
    };
    let reply = client.get(&path)?.accept(&[200, 404])?;
    Ok((reply.status == 200).then_some(reply.body))
}

/// Reports that there is no such rule.
pub(super) fn note_missing(id: &str, json: bool) -> std::io::Result<()> {
    let message = format!("there is no rule `{}`", plain(id));
    if json {
        return output::note(&format!("{:#}\n", json!({ "error": message })));
    }
    output::note(&format!("{message}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_an_id_becomes_a_path() {
        assert_eq!(path_of("per-user").as_deref(), Some("/v1/rules/per-user"));
        for id in [
            "", "..", "a/b", "diff", "history", "rollback", "a?b", "ü", "-a",
        ] {
            assert_eq!(path_of(id), None, "{id}");
        }
        assert_eq!(path_of(&"a".repeat(65)), None);
    }

    #[test]
    fn rules_are_compared_in_one_form() {
        let long = json!({"id": "a", "per": "ip", "limit": {"requests": 60, "window": "60s"}, "mode": "enforce"});
        let short = json!({"id": "a", "per": ["ip"], "limit": "60/minute"});
        let settings = RuleSettings::default();
        assert_eq!(canonical(&long, &settings), canonical(&short, &settings));
        let strange = json!({"id": "a", "colour": "red"});
        assert_eq!(canonical(&strange, &settings), strange);
    }
}
