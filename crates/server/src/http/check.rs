//! `POST /v1/check` and `POST /v1/check/batch`.

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tidegate::Attributes;
use tidegate::gate::Decision;
use tidegate::headers::HeaderSettings;
use tidegate::rules::FrontEnd;

use super::body::ArrivingBody;
use super::call::ApiCall;
use super::question::{Batch, CheckRequest};
use super::{answer, body};
use crate::condition_steps::{MAX_CONDITION_STEPS, condition_steps};
use crate::decider::Decider;
use crate::problem::{ApiReply, HttpProblem};

/// How many checks one batch may have.
const MAX_BATCH: usize = 1_000;
/// How many checks of a batch are decided at the same time, before the task yields: as many as [`join_all`] polls in
/// their order, without a task for each.
const TOGETHER: usize = 30;
/// Room for the headers of a reply, with those that are added later: the map need not grow.
const MOST_HEADERS: usize = 9;

pub(super) async fn check(decider: &Decider, body: ArrivingBody) -> Result<ApiReply, HttpProblem> {
    super::need_rules(decider)?;
    let body = body.read(&decider.bodies).await?;
    let question = CheckRequest::parse(&body)?;
    let attributes = question.attributes(decider.trust_timestamps)?;
    let rules = decider.gate.rules();
    let deciding = decider.gate.decide_by(&rules, FrontEnd::Http, &attributes);
    Ok(reply(decider.headers, deciding.await.decision()))
}

fn reply(settings: HeaderSettings, decision: &Decision) -> ApiReply {
    decision_reply(settings, decision, |body| answer::write(body, decision))
}

/// The reply to a question about a request, whose body is written by the caller.
#[inline]
pub(super) fn decision_reply(
    settings: HeaderSettings,
    decision: &Decision,
    write: impl FnOnce(&mut Vec<u8>),
) -> ApiReply {
    let mut body = Vec::with_capacity(512);
    write(&mut body);
    let mut reply = Response::new(Full::from(Bytes::from(body)));
    *reply.status_mut() = if decision.is_failed() {
        StatusCode::SERVICE_UNAVAILABLE
    } else if decision.is_denied() {
        StatusCode::TOO_MANY_REQUESTS
    } else {
        StatusCode::OK
    };
    let headers = reply.headers_mut();
    *headers = HeaderMap::with_capacity(MOST_HEADERS);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    tidegate_tower::insert_headers(headers, decision, settings);
    reply
}

/// Every check is read before the first is decided, so that a malformed batch charges nothing.
pub(super) async fn batch(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let decider = &call.api.decider;
    super::need_rules(decider)?;
    let body = call.body.read(&decider.bodies).await?;
    let batch: Batch<'_> = body::parse(&body)?;
    if batch.checks.len() > MAX_BATCH {
        return Err(HttpProblem::bad_request(format!(
            "a batch may have at most {MAX_BATCH} checks, this has {}; split it",
            batch.checks.len()
        )));
    }
    let mut asked: Vec<Attributes<'_>> = Vec::with_capacity(batch.checks.len());
    for (index, check) in batch.checks.iter().enumerate() {
        let part = || format!("checks[{index}]");
        let question: CheckRequest<'_> = body::parse_part(check, part)?;
        let attributes = question.attributes(decider.trust_timestamps);
        asked.push(attributes.map_err(|error| HttpProblem::from(error).in_part(&part()))?);
    }
    let rules = decider.gate.rules();
    let steps = condition_steps(&rules, &asked);
    if steps > MAX_CONDITION_STEPS {
        return Err(HttpProblem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!(
                "the conditions of the rules could take {steps} steps for this batch, more than {MAX_CONDITION_STEPS}; nothing was charged; send fewer checks at a time"
            ),
        ));
    }
    let mut out = Vec::with_capacity(16 + asked.len() * 400);
    out.extend_from_slice(br#"{"decisions":["#);
    for (index, together) in asked.chunks(TOGETHER).enumerate() {
        let deciding = together.iter().map(|attributes| {
            let deciding = decider.gate.decide_by(&rules, FrontEnd::Http, attributes);
            async { deciding.await.into_decision() }
        });
        for (position, decision) in join_all(deciding).await.iter().enumerate() {
            if index + position > 0 {
                out.push(b',');
            }
            answer::write(&mut out, decision);
        }
        tokio::task::yield_now().await;
    }
    out.extend_from_slice(b"]}");
    Ok(super::json(StatusCode::OK, out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use tidegate::Gate;
    use tidegate::rules::RuleSet;
    use tidegate_testkit::FailingStore;

    #[tokio::test]
    async fn a_decision_without_the_store_has_the_shape_of_every_other() {
        let allow = "- {id: allow, per: [], limit: 5/minute, on_store_failure: allow}\n";
        let deny = "- {id: deny, per: [], limit: 5/minute, on_store_failure: deny}\n";
        let local = "- {id: local, per: [], limit: 4/minute}\n";
        let shadow = "- {id: s, mode: shadow, per: [], limit: 5/minute, on_store_failure: deny}\n";
        #[rustfmt::skip]
        let table = [
            // rules                    status  allowed rule        limit   remaining   retry after
            (vec![allow],               200,    true,   "allow",    5,      5,          None),
            (vec![local],               200,    true,   "local",    2,      1,          None),
            (vec![local, shadow],       200,    true,   "local",    2,      1,          None),
            (vec![deny],                503,    false,  "deny",     5,      0,          Some("1")),
            (vec![allow, deny, local],  503,    false,  "deny",     5,      0,          Some("1")),
        ];
        for (list, status, allowed, rule, limit, remaining, retry_after) in table {
            let rules = RuleSet::from_yaml(&format!("rules:\n{}", list.concat())).unwrap();
            let gate = Gate::new(FailingStore::unreachable(), rules).with_instances(2);
            let decision = gate.decide(&Attributes::new()).await;
            let reply = reply(HeaderSettings::default(), &decision);
            assert_eq!(reply.status().as_u16(), status, "{list:?}");
            let wait = reply.headers().get("retry-after");
            assert_eq!(wait.map(|wait| wait.to_str().unwrap()), retry_after);
            let body = reply.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let expected = serde_json::json!({
                "allowed": allowed, "rule": rule, "limit": limit, "remaining": remaining, "degraded": true,
            });
            for (name, value) in expected.as_object().unwrap() {
                assert_eq!(&body[name], value, "{name} of {list:?}");
            }
            assert_eq!(body["limits"].as_array().unwrap().len(), list.len());
        }
    }
}
