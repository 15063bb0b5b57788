//! Calls about what was used: reset, and leases.

use http::request::Parts;
use hyper::body::Incoming;
use tidegate::LeaseId;

use super::body;
use super::problem::{Problem, Reply};
use super::question::Reset;
use crate::server::Server;

/// `POST /v1/reset`: forgets what somebody has used.
pub(super) async fn reset(
    server: &Server,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Problem> {
    let caller = server.access.may_write(parts)?;
    let body = body::read(body, body::SMALL).await?;
    let reset: Reset<'_> = body::parse(&body)?;
    let rule = reset.rule.as_deref();
    server.gate.reset(&reset.attributes.0, rule).await?;
    tracing::info!(by = caller.name, rule, "counters were reset");
    Ok(super::no_content())
}

/// `DELETE /v1/leases/{id}`: the request that held it is done.
pub(super) async fn release(server: &Server, parts: &Parts, id: &str) -> Result<Reply, Problem> {
    server.access.may_check(parts)?;
    let lease = lease(id)?;
    if server.gate.release(lease).await? {
        return Ok(super::no_content());
    }
    Err(unknown(id))
}

/// `PUT /v1/leases/{id}`: the request that holds it goes on.
pub(super) async fn renew(server: &Server, parts: &Parts, id: &str) -> Result<Reply, Problem> {
    server.access.may_check(parts)?;
    let lease = lease(id)?;
    if server.gate.renew(lease).await? {
        return Ok(super::no_content());
    }
    Err(unknown(id))
}

fn lease(id: &str) -> Result<LeaseId, Problem> {
    id.parse().map_err(|_| unknown(id))
}

fn unknown(id: &str) -> Problem {
    let id: String = id.chars().take(64).collect();
    Problem::not_found(format!(
        "there is no lease `{id}`; it was released, or it has ended"
    ))
}
