//! `POST /v1/check` and `POST /v1/check/batch`.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tidegate::Attributes;
use tidegate::gate::Decision;

use super::problem::{Problem, Reply};
use super::question::{Batch, Question};
use super::{answer, body};
use crate::server::Server;

/// How many checks one batch may have.
const MAX_BATCH: usize = 1_000;
/// After how many checks of a batch others get their turn.
const YIELD_EVERY: usize = 16;

pub(super) async fn check(
    server: &Server,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Problem> {
    server.access.may_check(parts)?;
    let body = body::read(body, body::SMALL).await?;
    let question: Question<'_> = body::parse(&body)?;
    let attributes = question.attributes(server.trust_timestamps)?;
    let decision = server.decide(&attributes).await;
    Ok(reply(server, &decision))
}

fn reply(server: &Server, decision: &Decision) -> Reply {
    let mut body = Vec::with_capacity(512);
    answer::write(&mut body, decision);
    let mut reply = Response::new(Full::from(Bytes::from(body)));
    *reply.status_mut() = if decision.is_failed() {
        StatusCode::SERVICE_UNAVAILABLE
    } else if decision.is_denied() {
        StatusCode::TOO_MANY_REQUESTS
    } else {
        StatusCode::OK
    };
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in decision.headers(&server.headers) {
        // Every value is printable ASCII, so none is lost here.
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value)) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    reply
}

/// Every check is read before the first is decided, so that one that is malformed costs nobody anything.
pub(super) async fn batch(
    server: &Server,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Problem> {
    server.access.may_check(parts)?;
    let body = body::read(body, body::LARGE).await?;
    let batch: Batch<'_> = body::parse(&body)?;
    if batch.checks.len() > MAX_BATCH {
        return Err(Problem::bad_request(format!(
            "a batch may have {MAX_BATCH} checks at the most, this has {}; split it",
            batch.checks.len()
        )));
    }
    let mut asked: Vec<Attributes<'_>> = Vec::with_capacity(batch.checks.len());
    for (index, check) in batch.checks.iter().enumerate() {
        let question: Question<'_> = serde_json::from_str(check.get()).map_err(|error| {
            Problem::bad_request(format!("checks[{index}] is not as it should be: {error}"))
        })?;
        let attributes = question.attributes(server.trust_timestamps);
        asked.push(attributes.map_err(|problem| problem.in_part(&format!("checks[{index}]")))?);
    }
    let mut out = Vec::with_capacity(16 + asked.len() * 400);
    out.extend_from_slice(br#"{"decisions":["#);
    for (index, attributes) in asked.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        if index % YIELD_EVERY == YIELD_EVERY - 1 {
            tokio::task::yield_now().await;
        }
        answer::write(&mut out, &server.decide(attributes).await);
    }
    out.extend_from_slice(b"]}");
    Ok(super::json(StatusCode::OK, out))
}
