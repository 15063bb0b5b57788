//! Rules through the API: read and change. Their history is in `history.rs`.

use std::collections::HashSet;
use std::sync::Arc;

use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::json;
use tidegate::document::{Entry, Node, Place, Problems, Spot, Value};
use tidegate::rules::{Rule, RuleSet};

use super::body::ArrivingBody;
use super::call::ApiCall;
use super::conditional::unless_known;
use super::query::parameters;
use super::{body, json};
use crate::admin::Admin;
use crate::problem::{ApiReply, HttpProblem};
use crate::rulebook::{ChangeError, Changed, Expected, RuleChange, etag, etag_of};

/// A document that is read without leaving the thread, in bytes.
const SHORT: usize = 64 << 10;
const WORST_CASE: &str = "worst_case";
/// The name of the stats of a rule that is written as a descriptor.
const STAT: &str = "stat";

pub(super) fn list(call: &ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let admin = &call.api.admin;
    super::need_rules(&admin.decider)?;
    Ok(unless_known(&call.parts.headers, whole_set(admin)))
}

/// The version that a body is based on, so that a body that was read can be sent back.
fn take_version(document: &mut Node) -> Result<Option<u64>, HttpProblem> {
    let Value::Map(entries) = &mut document.value else {
        return Ok(None);
    };
    let Some(at) = entries.iter().position(|entry| entry.key == "version") else {
        return Ok(None);
    };
    let version = entries.remove(at).value;
    if matches!(version.value, Value::Null) {
        return Ok(None);
    }
    let mut problems = Problems::new();
    let spot = Spot::document().field("version");
    let version = spot.integer(&version, 0, u64::MAX, &mut problems);
    let wrong = || HttpProblem::invalid_rules(&problems);
    version.map(Some).ok_or_else(wrong)
}

/// All rules, with their version and tag.
pub(super) fn whole_set(admin: &Admin) -> ApiReply {
    // The version is read first: it may be older than the rules, never newer.
    let version = admin.book.version();
    let rules = admin.gate.rules();
    let tag = etag(&rules.written());
    let rules: Vec<serde_json::Value> = rules.iter().map(|rule| answered(&rule)).collect();
    let body = json!({"rules": rules, "version": version});
    with_header(json(StatusCode::OK, body.to_string()), ETAG, &tag)
}

pub(super) fn get(call: &ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let (admin, [id, _]) = (&call.api.admin, &call.names);
    super::need_rules(&admin.decider)?;
    let rules = admin.gate.rules();
    let rule = rules.get(id).ok_or_else(|| no_such_rule(id))?;
    let reply = one(StatusCode::OK, &rule);
    Ok(unless_known(&call.parts.headers, reply))
}

pub(super) fn one(status: StatusCode, rule: &Rule) -> ApiReply {
    let reply = json(status, answered(rule).to_string());
    with_header(reply, ETAG, &etag_of(rule))
}

/// A rule as answers have it: as it was written, with the most that it can admit, and the name of its stats. Those are
/// computed, and part of no tag and no version.
pub(super) fn answered(rule: &Rule) -> serde_json::Value {
    let mut written = rule.written().clone();
    if let Some(written) = written.as_object_mut() {
        written.insert(WORST_CASE.to_owned(), rule.worst_case());
        if let Some(stat) = rule.stat() {
            written.insert(STAT.to_owned(), json!(stat));
        }
    }
    written
}

/// Removes the fields that an [answer](answered) has and a rule does not, so that an answer can be sent back.
pub(super) fn drop_computed(rule: &mut Node) {
    if let Value::Map(entries) = &mut rule.value {
        entries.retain(|entry| ![WORST_CASE, STAT].contains(&entry.key.as_str()));
    }
}

pub(super) async fn replace(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let admin = &call.api.admin;
    let reading = read_document(admin, call.body, |admin, mut document| {
        let version = take_version(&mut document)?;
        rules_in(&mut document).iter_mut().for_each(drop_computed);
        let given = rules_of(&document)?;
        let rules = RuleSet::from_node(&document, admin.book.settings());
        let rules = rules.map_err(|problems| {
            let is_all = problems.errors().count() == repeated_ids(given);
            HttpProblem::invalid_rules(&problems).with_status_if(is_all, StatusCode::CONFLICT)
        })?;
        Ok((rules, version))
    });
    let (rules, version) = reading.await?;
    let expected = Expected {
        version,
        ..expected(&call.parts.headers)?
    };
    let replacing = RuleChange::ReplaceAll(Box::new(rules));
    change(admin, expected, &call.caller.name, replacing).await?;
    Ok(whole_set(admin))
}

pub(super) async fn create(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let admin = &call.api.admin;
    let rule = Arc::new(read_document(admin, call.body, read_rule).await?);
    let expected = expected(&call.parts.headers)?;
    let creating = RuleChange::Create(Arc::clone(&rule));
    change(admin, expected, &call.caller.name, creating).await?;
    Ok(created(&rule))
}

pub(super) async fn put(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (admin, [id, _]) = (&call.api.admin, &call.names);
    let name = id.clone();
    let reading = read_document(admin, call.body, move |admin, mut document| {
        name_if_nameless(&mut document, &name);
        read_rule(admin, document)
    });
    let rule = Arc::new(reading.await?);
    if rule.id() != id.as_str() {
        let detail = format!(
            "the path names rule `{id}` and the body `{}`; make them the same",
            rule.id()
        );
        return Err(HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let expected = expected(&call.parts.headers)?;
    let putting = RuleChange::Put(Arc::clone(&rule));
    let changed = change(admin, expected, &call.caller.name, putting).await?;
    Ok(if changed.is_created {
        created(&rule)
    } else {
        one(StatusCode::OK, &rule)
    })
}

/// The rules in a body, if there is a list of them.
fn rules_in(document: &mut Node) -> &mut [Node] {
    let Value::Map(entries) = &mut document.value else {
        return &mut [];
    };
    let list = entries.iter_mut().find(|entry| entry.key == "rules");
    match list.map(|entry| &mut entry.value.value) {
        Some(Value::List(rules)) => rules,
        _ => &mut [],
    }
}

/// The list of rules in a body. A missing list is an error: it must not remove all rules.
fn rules_of(document: &Node) -> Result<&[Node], HttpProblem> {
    match document.get("rules").map(|rules| &rules.value) {
        Some(Value::List(rules)) => Ok(rules),
        Some(Value::Null) => Err(HttpProblem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "`rules` must be a list; write `[]` to remove all rules",
        )),
        _ => Ok(&[]),
    }
}

/// How many rules repeat the id of an earlier one.
fn repeated_ids(rules: &[Node]) -> usize {
    let mut seen = HashSet::new();
    let ids = rules.iter().filter_map(|rule| rule.get("id")?.text());
    ids.filter(|id| !seen.insert(*id)).count()
}

/// Adds the id of the path to a rule without one.
pub(super) fn name_if_nameless(document: &mut Node, id: &str) {
    let Value::Map(entries) = &mut document.value else {
        return;
    };
    if entries.iter().all(|entry| entry.key != "id") {
        let id = Entry {
            key: "id".to_owned(),
            key_place: Place::Nowhere,
            value: Node::of_text(id),
        };
        entries.insert(0, id);
    }
}

fn created(rule: &Rule) -> ApiReply {
    let reply = one(StatusCode::CREATED, rule);
    with_header(reply, LOCATION, &format!("/v1/rules/{}", rule.id()))
}

pub(super) async fn delete(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (admin, [id, _]) = (&call.api.admin, &call.names);
    let is_own = admin.book.is_own();
    if is_own && admin.gate.rules().get(id).is_none() {
        return Err(no_such_rule(id));
    }
    let expected = expected(&call.parts.headers)?;
    let deleting = RuleChange::Delete(id.clone());
    change(admin, expected, &call.caller.name, deleting).await?;
    Ok(super::no_content())
}

/// Parses a body as a document and reads it: a long one on a thread that may block.
async fn read_document<T: Send + 'static>(
    admin: &Arc<Admin>,
    body: ArrivingBody,
    read: impl FnOnce(&Admin, Node) -> Result<T, HttpProblem> + Send + 'static,
) -> Result<T, HttpProblem> {
    let body = body.read(&admin.decider.bodies).await?;
    if body.len() <= SHORT {
        return read(admin, body::document(&body)?);
    }
    let reading = admin.read_document(move |admin| {
        let document = body::document(&body)?;
        drop(body);
        read(admin, document)
    });
    reading.await.ok_or(ChangeError::Interrupted)?
}

fn read_rule(admin: &Admin, mut document: Node) -> Result<Rule, HttpProblem> {
    drop_computed(&mut document);
    Rule::from_node(&document, admin.book.settings())
        .map_err(|problems| HttpProblem::invalid_rule(&problems))
}

/// Makes the change, and finishes it even if the caller disconnects.
pub(super) async fn change(
    admin: &Arc<Admin>,
    expected: Expected,
    by: &str,
    change: RuleChange,
) -> Result<Changed, HttpProblem> {
    let (admin, by) = (Arc::clone(admin), by.to_owned());
    let changing = tokio::spawn(async move {
        let changing = admin.book.change(&admin.gate, &by, &expected, change);
        logged(changing.await, &by)
    });
    let changed = changing.await.map_err(|_| ChangeError::Interrupted)?;
    Ok(changed?)
}

fn logged(changed: Result<Changed, ChangeError>, by: &str) -> Result<Changed, ChangeError> {
    if let Ok(changed) = &changed
        && !changed.changes.is_empty()
    {
        let what = changed.changes.join(", ");
        tracing::info!(
            version = changed.version,
            by,
            changes = what,
            "the rules were changed"
        );
    }
    changed
}

/// The precondition in `If-Match` and `If-None-Match`.
pub(super) fn expected(headers: &HeaderMap) -> Result<Expected, HttpProblem> {
    let mut tags: Option<Vec<String>> = None;
    for value in headers.get_all(IF_MATCH) {
        let text = value.to_str().map_err(|_| {
            HttpProblem::bad_request("`If-Match` must be an ETag such as \"0123\", or `*`")
        })?;
        let list = tags.get_or_insert_default();
        list.extend(text.split(',').map(|tag| tag.trim().to_owned()));
    }
    let none_match = headers.get(IF_NONE_MATCH).map(HeaderValue::as_bytes);
    Ok(Expected {
        tags,
        is_absent: none_match == Some(b"*"),
        version: None,
    })
}

pub(super) fn no_such_rule(id: &str) -> HttpProblem {
    HttpProblem::not_found(format!("there is no rule `{id}`"))
}

pub(super) fn with_header(mut reply: ApiReply, name: HeaderName, value: &str) -> ApiReply {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
    reply
}

#[cfg(test)]
mod tests {
    use tidegate::rules::RuleSettings;

    use super::*;

    fn node(text: &str) -> Node {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_rule_without_an_id_has_that_of_the_path() {
        let read = |text: &str| {
            let mut document = node(text);
            name_if_nameless(&mut document, "of-the-path");
            let rule = Rule::from_node(&document, &RuleSettings::default());
            rule.ok().map(|rule| rule.written().to_string())
        };
        assert_eq!(
            read(r#"{"per": [], "limit": "1/s"}"#).as_deref(),
            Some(r#"{"id":"of-the-path","per":[],"limit":"1/s"}"#)
        );
        assert_eq!(
            read(r#"{"per": [], "limit": "1/s", "id": "own"}"#).as_deref(),
            Some(r#"{"per":[],"limit":"1/s","id":"own"}"#)
        );
        assert_eq!(read(r#"{"per": [], "limit": "1/s", "id": null}"#), None);
        assert_eq!(read("[]"), None);
    }

    #[test]
    fn all_rules_go_only_if_that_is_said() {
        assert!(rules_of(&node(r#"{"rules": []}"#)).is_ok());
        assert!(rules_of(&node(r#"{"rules": null}"#)).is_err());
    }

    #[test]
    fn ids_are_counted_from_their_second_time() {
        let document =
            node(r#"{"rules": [{"id": "a"}, {"id": "b"}, {"id": "a"}, {"id": "a"}, {}, 1]}"#);
        assert_eq!(repeated_ids(rules_of(&document).unwrap()), 2);
    }
}
