//! `/healthcheck`: the probe of envoyproxy/ratelimit.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;

use super::call::ApiCall;
use crate::problem::{ApiReply, HttpProblem};

pub(super) async fn check(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    if !call.api.decider.is_serving().await {
        let mut reply = Response::new(Full::default());
        *reply.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return Ok(reply);
    }
    Ok(text(StatusCode::OK, "OK"))
}

/// An answer of plain text.
pub(super) fn text(status: StatusCode, text: &'static str) -> ApiReply {
    let mut reply = Response::new(Full::from(text));
    *reply.status_mut() = status;
    let media_type = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    reply
}
