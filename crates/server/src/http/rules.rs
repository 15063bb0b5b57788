//! Rules through the API: read, changed, and taken back.

use std::sync::Arc;

use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use tidegate::Timestamp;
use tidegate::document::{Node, Problems, Spot, Value};
use tidegate::rules::{Rule, RuleSet};

use super::problem::{Problem, Reply};
use super::{body, json};
use crate::rulebook::{Change, Changed, Expected, etag, etag_of};
use crate::server::Server;

pub(super) fn list(server: &Server, parts: &Parts) -> Result<Reply, Problem> {
    server.access.may_read(parts)?;
    Ok(whole_set(server))
}

/// The version that a body says it was made from, so that what was read can be sent back as it is.
fn take_version(document: &mut Node) -> Result<Option<u64>, Problem> {
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
    let version = Spot::document()
        .field("version")
        .integer(&version, 0, u64::MAX, &mut problems);
    match version {
        Some(version) => Ok(Some(version)),
        None => Err(Problem::invalid_rules(&problems)),
    }
}

/// All rules, with their version and tag.
fn whole_set(server: &Server) -> Reply {
    // The version is read first: it may be older than the rules that go with it, never newer.
    let version = server.book.version();
    let rules = server.gate.rules().written();
    let tag = etag(&rules);
    let body = json!({"rules": rules, "version": version});
    with_header(
        json(StatusCode::OK, body.to_string().into_bytes()),
        ETAG,
        &tag,
    )
}

pub(super) fn get(server: &Server, parts: &Parts, id: &str) -> Result<Reply, Problem> {
    server.access.may_read(parts)?;
    let rules = server.gate.rules();
    let rule = rules.get(id).ok_or_else(|| no_such_rule(id))?;
    Ok(one(StatusCode::OK, rule))
}

fn one(status: StatusCode, rule: &Rule) -> Reply {
    let reply = json(status, rule.written().to_string().into_bytes());
    with_header(reply, ETAG, &etag_of(rule))
}

pub(super) async fn replace(
    server: &Arc<Server>,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Problem> {
    let caller = server.access.may_write(parts)?;
    let mut document = body::document(&body::read(body, body::LARGE).await?)?;
    let version = take_version(&mut document)?;
    let (rules, problems) = RuleSet::from_node(&document, server.book.settings());
    let rules = rules.ok_or_else(|| Problem::invalid_rules(&problems))?;
    let expected = Expected {
        version,
        ..expected(&parts.headers)?
    };
    change(server, expected, &caller.name, Change::ReplaceAll(rules)).await?;
    Ok(whole_set(server))
}

pub(super) async fn create(
    server: &Arc<Server>,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Problem> {
    let caller = server.access.may_write(parts)?;
    let rule = read_rule(server, body).await?;
    let id = rule.id().to_owned();
    let written = rule.written().clone();
    change(
        server,
        expected(&parts.headers)?,
        &caller.name,
        Change::Create(rule),
    )
    .await?;
    Ok(created(&id, &written))
}

pub(super) async fn put(
    server: &Arc<Server>,
    parts: &Parts,
    id: &str,
    body: Incoming,
) -> Result<Reply, Problem> {
    let caller = server.access.may_write(parts)?;
    let rule = read_rule(server, body).await?;
    if rule.id() != id {
        let detail = format!(
            "the path names rule `{id}` and the body `{}`; make them the same",
            rule.id()
        );
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let written = rule.written().clone();
    let changed = change(
        server,
        expected(&parts.headers)?,
        &caller.name,
        Change::Put(rule),
    )
    .await?;
    if changed.is_created {
        return Ok(created(id, &written));
    }
    let reply = json(StatusCode::OK, written.to_string().into_bytes());
    Ok(with_header(reply, ETAG, &etag(&written)))
}

fn created(id: &str, written: &serde_json::Value) -> Reply {
    let reply = json(StatusCode::CREATED, written.to_string().into_bytes());
    let reply = with_header(reply, LOCATION, &format!("/v1/rules/{id}"));
    with_header(reply, ETAG, &etag(written))
}

pub(super) async fn delete(
    server: &Arc<Server>,
    parts: &Parts,
    id: &str,
) -> Result<Reply, Problem> {
    let caller = server.access.may_write(parts)?;
    if server.book.file().is_none() && server.gate.rules().get(id).is_none() {
        return Err(no_such_rule(id));
    }
    change(
        server,
        expected(&parts.headers)?,
        &caller.name,
        Change::Delete(id.to_owned()),
    )
    .await?;
    Ok(super::no_content())
}

pub(super) fn history(server: &Server, parts: &Parts) -> Result<Reply, Problem> {
    server.access.may_read(parts)?;
    let rows = server.book.history();
    let row = |row: &crate::data_dir::Row| json!({"version": row.version, "at": time(row.at), "by": row.by, "changes": row.changes});
    let rows: Vec<serde_json::Value> = rows.iter().map(row).collect();
    let body = json!({ "history": rows });
    Ok(json(StatusCode::OK, body.to_string().into_bytes()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RollBack {
    version: u64,
}

pub(super) async fn roll_back(
    server: &Arc<Server>,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Problem> {
    let caller = server.access.may_write(parts)?;
    let body = body::read(body, body::SMALL).await?;
    let RollBack { version } = body::parse(&body)?;
    change(
        server,
        expected(&parts.headers)?,
        &caller.name,
        Change::RollBack(version),
    )
    .await?;
    Ok(whole_set(server))
}

async fn read_rule(server: &Server, body: Incoming) -> Result<Rule, Problem> {
    let document = body::document(&body::read(body, body::LARGE).await?)?;
    let (rule, problems) = RuleSet::rule_from_node(&document, server.book.settings());
    rule.ok_or_else(|| Problem::invalid_rule(&problems))
}

/// Makes the change on a thread that may wait for the disk.
async fn change(
    server: &Arc<Server>,
    expected: Expected,
    by: &str,
    change: Change,
) -> Result<Changed, Problem> {
    let (server, by) = (Arc::clone(server), by.to_owned());
    let changing = move || {
        let changed = server.book.change(&server.gate, &by, &expected, change);
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
    };
    match tokio::task::spawn_blocking(changing).await {
        Ok(changed) => Ok(changed?),
        Err(_) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the change was given up because the server is shutting down; look at the rules before you repeat it",
        )),
    }
}

/// What `If-Match` and `If-None-Match` ask for.
fn expected(headers: &HeaderMap) -> Result<Expected, Problem> {
    let mut tags: Option<Vec<String>> = None;
    for value in headers.get_all(IF_MATCH) {
        let text = value.to_str().map_err(|_| {
            Problem::bad_request("`If-Match` must be an ETag such as \"0123\", or `*`")
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

fn no_such_rule(id: &str) -> Problem {
    Problem::not_found(format!("there is no rule `{id}`"))
}

fn time(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| String::new(), |time| time.to_string())
}

fn with_header(mut reply: Reply, name: HeaderName, value: &str) -> Reply {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
    reply
}
