//! The history of the rules: earlier versions, the differences between them, and the way back.

use std::sync::Arc;

use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::call::ApiCall;
use super::number::{parse_whole, whole};
use super::query::parameters;
use super::rules::{change, expected, whole_set, with_header};
use super::{body, json};
use crate::admin::Admin;
use crate::data_dir::Row;
use crate::overrides::HistoryRow;
use crate::problem::{ApiReply, HttpProblem};
use crate::rulebook::{
    ChangeError, MAX_TEXT, Preview, RuleChange, RuleDiff, TooMuchText, etag, unified_sets,
};
use crate::seconds::date_time;

/// `GET /v1/rules/history`: the versions, newest first.
pub(super) async fn list(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let admin = &call.api.admin;
    let rows = admin.overrides.with_rows(admin.book.history().await?);
    let rows: Vec<Value> = rows.iter().map(written_in_history).collect();
    Ok(reply(&json!({ "history": rows })))
}

/// `GET /v1/rules/history/{version}`: the rules of an earlier version.
pub(super) async fn version(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let (admin, [version, _]) = (&call.api.admin, &call.names);
    let kept = admin.book.kept(parse_whole("version", version)?).await?;
    let mut body = written(&kept.row);
    body["rules"] = Value::clone(&kept.rules);
    Ok(reply(&body))
}

fn written(row: &Row) -> Value {
    json!({"version": row.version, "at": date_time(row.at), "by": row.by, "changes": row.changes})
}

fn written_in_history(row: &HistoryRow) -> Value {
    let mut written = written(&row.row);
    if let Some(mark) = &row.mark {
        written["override"] = json!(mark);
    }
    written
}

/// `GET /v1/rules/diff`: how version `to` differs from version `from`. By default, the last change.
pub(super) async fn diff(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [from, to] = parameters(&call.parts, ["from", "to"])?;
    let admin = &call.api.admin;
    let number = |name, text: Option<String>| text.map(|text| parse_whole(name, &text)).transpose();
    let (from, to) = (number("from", from)?, number("to", to)?);
    let to = to.unwrap_or_else(|| admin.book.version());
    let from = match from {
        Some(from) => from,
        None => admin.book.before(to).await?,
    };
    let comparing = {
        let admin = Arc::clone(admin);
        async move {
            let (before, after) = (rules_of(&admin, from).await?, rules_of(&admin, to).await?);
            compared([from, to], before, after).await
        }
    };
    let compared = admin.turns.take(comparing).await;
    Ok(reply(&compared.ok_or(ChangeError::Interrupted)??))
}

/// The rules of a version. Version 0 is before the first change and has none.
async fn rules_of(admin: &Admin, version: u64) -> Result<Arc<Value>, HttpProblem> {
    if version == 0 {
        return Ok(Arc::new(json!([])));
    }
    Ok(admin.book.kept(version).await?.rules)
}

/// The differences between two lists of rules, if they are not too large. Called in a [turn](crate::turns::Turns), in
/// which the lists were read too.
pub(super) async fn compared(
    [from, to]: [u64; 2],
    before: Arc<Value>,
    after: Arc<Value>,
) -> Result<Value, HttpProblem> {
    let comparing = tokio::task::spawn_blocking(move || {
        let [before, after] = [&before, &after].map(|rules| items(rules));
        let mut body = json!({"from": from, "to": to});
        let names = [from, to].map(|version| format!("version {version}"));
        let text = unified_sets([&names[0], &names[1]], before, after);
        let text = text.map_err(|TooMuchText { index }| {
            let name = &names[index];
            let detail = format!("{name} has more than {MAX_TEXT} bytes (2 MiB) of text, too much to compare; read both versions at /v1/rules/history/VERSION and compare them with a tool");
            HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
        })?;
        let diff = RuleDiff::between(before, after).to_json();
        if let (Value::Object(body), Value::Object(diff)) = (&mut body, diff) {
            body.extend(diff);
            body.insert("text".to_owned(), Value::String(text));
        }
        Ok(body)
    });
    comparing.await.map_err(|_| ChangeError::Interrupted)?
}

fn items(rules: &Value) -> &[Value] {
    rules.as_array().map_or(&[], Vec::as_slice)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RollBack {
    #[serde(deserialize_with = "version_number")]
    version: u64,
    #[serde(default)]
    dry_run: bool,
}

fn version_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    whole(deserializer, "version")
}

/// `POST /v1/rules/rollback`: returns to an earlier version, as a new one; or shows the change as a preview.
pub(super) async fn roll_back(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let admin = &call.api.admin;
    let body = call.body.read(&admin.decider.bodies).await?;
    let RollBack { version, dry_run } = body::parse(&body)?;
    let expected = expected(&call.parts.headers)?;
    let rollback = RuleChange::RollBack(version);
    if !dry_run {
        change(admin, expected, &call.caller.name, rollback).await?;
        return Ok(whole_set(admin));
    }
    let comparing = {
        let admin = Arc::clone(admin);
        async move {
            let previewing = admin.book.preview(&admin.gate, &expected, &rollback);
            let Preview {
                version: current,
                before,
                after,
            } = previewing.await?;
            // With this tag in `If-Match`, the rollback makes exactly the previewed change, or none.
            let tag = etag(&before);
            let (before, after) = (Arc::new(before), Arc::new(after));
            let body = compared([current, version], before, after).await?;
            Ok::<_, HttpProblem>(with_header(reply(&body), ETAG, &tag))
        }
    };
    let compared = admin.turns.take(comparing).await;
    compared.ok_or(ChangeError::Interrupted)?
}

pub(super) fn reply(body: &Value) -> ApiReply {
    json(StatusCode::OK, body.to_string().into_bytes())
}
