//! Calls that change counters: reset and leases.

use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate::gate::ResetCounter;
use tidegate::{Attributes, PermitId};

use super::body;
use super::call::ApiCall;
use super::question::ResetRequest;
use crate::admin::Admin;
use crate::problem::{ApiReply, HttpProblem};

/// `POST /v1/reset`: clears the usage of a client, and returns the earlier usage.
pub(super) async fn reset(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let admin = &call.api.admin;
    let body = call.body.read(&admin.decider.bodies).await?;
    let reset: ResetRequest<'_> = body::parse(&body)?;
    let attributes = match admin.decider.observer.latest_time() {
        Some(at) => &reset.attributes.0.at(at),
        None => &reset.attributes.0,
    };
    let done = admin.gate.reset(attributes, reset.rule.as_deref()).await?;
    for counter in &done.counters {
        let key = counter.rule.key_text(attributes).unwrap_or_default();
        tracing::info!(
            by = call.caller.name,
            rule = counter.rule.id(),
            key = admin.decider.observer.hashed(&key),
            limit = counter.limit,
            used = counter.used,
            "a counter was reset"
        );
    }
    Ok(super::json(
        StatusCode::OK,
        written(admin, &done, attributes),
    ))
}

/// The result of a reset, as JSON. Values are in the form in which they are counted; secret ones as in the tables of
/// activity.
fn written(admin: &Admin, done: &tidegate::gate::Reset, attributes: &Attributes<'_>) -> String {
    let entry = |counter: &ResetCounter| {
        let values = counter.rule.key_values(attributes).into_iter();
        let key: Map<String, Value> = values
            .map(|(name, value)| (name.to_owned(), json!(admin.shown(name, &value))))
            .collect();
        json!({
            "rule": counter.rule.id(),
            "limit": counter.limit,
            "key": key,
            "used": counter.used,
        })
    };
    let mut body = json!({"reset": done.counters.iter().map(entry).collect::<Vec<_>>()});
    if !done.ignored.is_empty() {
        body["ignored"] = json!(done.ignored);
    }
    body.to_string()
}

/// `DELETE /v1/leases/{id}`: releases a lease.
pub(super) async fn release(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (decider, [id, _]) = (&call.api.decider, &call.names);
    call.body.read_unused(&decider.bodies).await?;
    let lease = lease(id)?;
    if decider.gate.release(lease).await? {
        return Ok(super::no_content());
    }
    Err(unknown(id))
}

/// `PUT /v1/leases/{id}`: renews a lease.
pub(super) async fn renew(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (decider, [id, _]) = (&call.api.decider, &call.names);
    call.body.read_unused(&decider.bodies).await?;
    let lease = lease(id)?;
    if decider.gate.renew(lease).await? {
        return Ok(super::no_content());
    }
    Err(unknown(id))
}

fn lease(id: &str) -> Result<PermitId, HttpProblem> {
    id.parse().map_err(|_| unknown(id))
}

fn unknown(id: &str) -> HttpProblem {
    let id: String = id.chars().take(64).collect();
    HttpProblem::not_found(format!(
        "there is no lease `{id}`; it was released, or it has ended"
    ))
}
