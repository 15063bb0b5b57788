//! Calls that change counters: reset and leases.

use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate::gate::{ResetCounter, ResetError};
use tidegate::{Attributes, PermitId};

use super::asked::{AskedCall, ClientCall, unanswered};
use super::body;
use super::call::ApiCall;
use super::question::ResetRequest;
use crate::meant::{self, Meant, MeantClient};
use crate::problem::{ApiReply, HttpProblem};

/// `POST /v1/reset`: clears the usage of a client, and returns the earlier usage.
pub(super) async fn reset(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let admin = &call.api.admin;
    let body = call.body.read(&admin.decider.bodies).await?;
    let call = ClientCall {
        admin,
        by: &call.caller.name,
        may_ask: true,
    };
    reset_client(call, &body).await
}

/// Resets what a body asks for.
pub(super) async fn reset_client(
    call: ClientCall<'_>,
    body: &[u8],
) -> Result<ApiReply, HttpProblem> {
    let admin = call.admin;
    let reset: ResetRequest<'_> = body::parse(body)?;
    let rule = reset.rule.as_deref();
    let mut done = DoneReset::new(call);
    match (reset.attributes, reset.client) {
        (Some(attributes), None) => {
            let attributes = match admin.decider.observer.latest_time() {
                Some(at) => attributes.0.at(at),
                None => attributes.0,
            };
            match meant::resolve(admin, attributes, rule).await? {
                Meant::Here(attributes) => done.reset(&attributes, rule).await?,
                Meant::Elsewhere(seen) => {
                    let body = String::from_utf8_lossy(body);
                    let reply = call.ask(AskedCall::Reset, &seen, &body).await;
                    return reply.ok_or_else(|| unanswered(&seen));
                }
            }
        }
        (None, Some(client)) => {
            let client = match meant::find_client(admin, &client, rule).await? {
                Meant::Here(client) => client,
                Meant::Elsewhere(seen) => {
                    let mut body = json!({"client": seen.client});
                    if let Some(rule) = rule {
                        body["rule"] = json!(rule);
                    }
                    let body = body.to_string();
                    if let Some(reply) = call.ask(AskedCall::Reset, &seen, &body).await {
                        return Ok(reply);
                    }
                    let unlisted = meant::find_unlisted(admin, &client, rule).await;
                    unlisted.map_err(|_| unanswered(&seen))?
                }
            };
            done.reset_all(&client, rule).await?;
        }
        _ => {
            return Err(HttpProblem::bad_request(
                "give exactly one of `attributes` and `client`",
            ));
        }
    }
    Ok(super::json(StatusCode::OK, done.written()))
}

/// The counters that were reset, as JSON.
struct DoneReset<'c> {
    call: ClientCall<'c>,
    counters: Vec<Value>,
    ignored: Vec<String>,
}

impl<'c> DoneReset<'c> {
    fn new(call: ClientCall<'c>) -> Self {
        Self {
            call,
            counters: Vec::new(),
            ignored: Vec::new(),
        }
    }

    async fn reset(
        &mut self,
        attributes: &Attributes<'_>,
        rule: Option<&str>,
    ) -> Result<(), ResetError> {
        let admin = self.call.admin;
        let done = admin.gate.reset(attributes, rule).await?;
        for counter in &done.counters {
            tracing::info!(
                by = self.call.by,
                rule = counter.rule.id(),
                key = admin.decider.observer.logged_key(&counter.rule, attributes),
                limit = counter.limit,
                used = counter.used,
                "a counter was reset"
            );
            self.counters.push(entry(self.call, counter, attributes));
        }
        self.ignored.extend(done.ignored);
        Ok(())
    }

    /// Resets every counter of a client: those of its own attributes, and those of longer keys that were seen.
    async fn reset_all(
        &mut self,
        client: &MeantClient,
        rule: Option<&str>,
    ) -> Result<(), ResetError> {
        let now = self.call.admin.decider.observer.latest_time();
        let timed = |attributes: Attributes<'static>| match now {
            Some(at) => attributes.at(at),
            None => attributes,
        };
        let own = self.reset(&timed(client.own_attributes()), rule).await;
        let mut has_longer = false;
        for (rule, attributes) in client.longer_keys() {
            has_longer = true;
            self.reset(&timed(attributes), Some(rule)).await?;
        }
        self.ignored.clear();
        match own {
            Err(ResetError::NoCounter { .. } | ResetError::WhoIsMissing { .. }) if has_longer => {
                Ok(())
            }
            own => own,
        }
    }

    fn written(self) -> String {
        let mut body = json!({"reset": self.counters});
        if !self.ignored.is_empty() {
            body["ignored"] = json!(self.ignored);
        }
        body.to_string()
    }
}

/// A counter that was reset. Values are in the form in which they are counted; secret ones as in the tables of
/// activity.
fn entry(call: ClientCall<'_>, counter: &ResetCounter, attributes: &Attributes<'_>) -> Value {
    let values = counter.rule.key_values(attributes).into_iter();
    let key: Map<String, Value> = values
        .map(|(name, value)| (name.to_owned(), json!(call.shown(name, &value))))
        .collect();
    json!({
        "rule": counter.rule.id(),
        // What is granted now, not what was granted when it was used.
        "limit": (counter.grant != "unlimited").then_some(counter.limit),
        "key": key,
        "used": counter.used,
    })
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
