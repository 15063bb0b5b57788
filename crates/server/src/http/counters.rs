//! Calls that change counters: reset and leases.

use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate::gate::ResetCounter;
use tidegate::{Attributes, PermitId};

use super::body;
use super::call::ApiCall;
use super::question::ResetRequest;
use crate::problem::{ApiReply, HttpProblem};
use crate::server::Server;

/// `POST /v1/reset`: clears the usage of a client, and returns what it was.
pub(super) async fn reset(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let server = &call.api.server;
    let body = call.body.read(&server.bodies).await?;
    let reset: ResetRequest<'_> = body::parse(&body)?;
    let attributes = match server.observer.latest_time() {
        Some(at) => &reset.attributes.0.at(at),
        None => &reset.attributes.0,
    };
    let done = server.gate.reset(attributes, reset.rule.as_deref()).await?;
    for counter in &done.counters {
        let key = counter.rule.key_text(attributes).unwrap_or_default();
        tracing::info!(
            by = call.caller.name,
            rule = counter.rule.id(),
            key = server.observer.hashed(&key),
            limit = counter.limit,
            used = counter.used,
            "a counter was reset"
        );
    }
    Ok(super::json(
        StatusCode::OK,
        written(server, &done, attributes),
    ))
}

/// The result of a reset, as JSON. Values are those of the caller, in the form in which they are counted; secret
/// ones as in the tables of activity.
fn written(server: &Server, done: &tidegate::gate::Reset, attributes: &Attributes<'_>) -> String {
    let entry = |counter: &ResetCounter| {
        let values = counter.rule.key_values(attributes).into_iter();
        let key: Map<String, Value> = values
            .map(|(name, value)| (name.to_owned(), json!(server.shown(name, &value))))
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
    let (server, [id, _]) = (&call.api.server, &call.names);
    call.body.read_unused(&server.bodies).await?;
    let lease = lease(id)?;
    if server.gate.release(lease).await? {
        return Ok(super::no_content());
    }
    Err(unknown(id))
}

/// `PUT /v1/leases/{id}`: renews a lease.
pub(super) async fn renew(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (server, [id, _]) = (&call.api.server, &call.names);
    call.body.read_unused(&server.bodies).await?;
    let lease = lease(id)?;
    if server.gate.renew(lease).await? {
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
