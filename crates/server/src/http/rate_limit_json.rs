//! `/json`: a call of Envoy in JSON, answered as over gRPC.

use http::HeaderValue;
use http::StatusCode;
use http::header::X_CONTENT_TYPE_OPTIONS;
use tidegate_codec::grpc::proto::rate_limit::{LimitCode, RateLimitResponse};
use tidegate_codec::grpc::{MessageBuffer, RateLimitCall, decode};
use tidegate_ratelimit::json;

use super::body::LARGE;
use super::call::ApiCall;
use super::healthcheck;
use crate::grpc::decide;
use crate::problem::{ApiReply, HttpProblem};

/// 200 or 429; 400 if the body is not a call, or the call fails.
pub(super) async fn answer(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let Some(response) = response(call).await else {
        let mut refused = healthcheck::text(StatusCode::BAD_REQUEST, "Bad Request\n");
        let nosniff = HeaderValue::from_static("nosniff");
        refused
            .headers_mut()
            .insert(X_CONTENT_TYPE_OPTIONS, nosniff);
        return Ok(refused);
    };
    let status = match LimitCode::try_from(response.overall_code) {
        Ok(LimitCode::OverLimit) => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::OK,
    };
    Ok(super::json(status, json::write(&response)))
}

async fn response(call: ApiCall) -> Option<RateLimitResponse> {
    let decider = &call.api.decider;
    let body = call.body.at_most(LARGE).read(&decider.bodies).await.ok()?;
    let request = json::read(&body).inspect_err(|problem| {
        tracing::debug!(%problem, "this is not a call");
    });
    let request = request.ok()?;
    let answer = decide(decider, &RateLimitCall::of(&request)).await.ok()?;
    let mut frames = MessageBuffer::default();
    frames.put(answer);
    decode(frames.take().ok()??).ok()
}
