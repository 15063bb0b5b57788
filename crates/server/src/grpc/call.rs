//! Dispatches a call to the service of its method.

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;

use super::GrpcCalls;
use super::body::GrpcBody;
use super::status::{Code, Status};
use super::{access, health, rate_limit, reflection};

pub(super) const RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService";
pub(super) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
pub(super) const HEALTH: &str = "grpc.health.v1.Health";
pub(super) const REFLECTION: &str = "grpc.reflection.v1.ServerReflection";
pub(super) const REFLECTION_ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";

/// The services of this server.
pub(super) const SERVICES: [&str; 4] = [RATE_LIMIT, HEALTH, REFLECTION, REFLECTION_ALPHA];

pub(super) async fn dispatch(
    calls: &GrpcCalls,
    parts: &Parts,
    body: Incoming,
) -> Result<Response<GrpcBody>, Status> {
    let GrpcCalls { decider, drain, .. } = calls;
    if let Some(refused) = not_grpc(parts) {
        return Ok(refused);
    }
    let path = parts.uri.path();
    if path == SHOULD_RATE_LIMIT {
        return rate_limit::answer(decider, parts, body).await;
    }
    let method = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    match method {
        // Boxed, so that the future of `ShouldRateLimit` stays small.
        Some((HEALTH, "Check")) => Box::pin(health::check(decider, body)).await,
        Some((HEALTH, "Watch")) => {
            let open = access::open_stream(decider, parts, &calls.watches)?;
            Box::pin(health::watch(decider, drain, body, open)).await
        }
        Some((REFLECTION | REFLECTION_ALPHA, "ServerReflectionInfo")) => {
            let open = access::open_stream(decider, parts, &calls.reflections)?;
            Ok(reflection::answer(decider, drain, body, open))
        }
        _ => Err(Status::new(
            Code::Unimplemented,
            format!(
                "there is no method `{path}`; available are {SHOULD_RATE_LIMIT}, health and reflection"
            ),
        )),
    }
}

/// The answer to a request that is not gRPC, as a plain HTTP status.
fn not_grpc(parts: &Parts) -> Option<Response<GrpcBody>> {
    let media_type = parts.headers.get(CONTENT_TYPE);
    let is_grpc = media_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    let status = if !is_grpc {
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    } else if parts.method != Method::POST {
        StatusCode::METHOD_NOT_ALLOWED
    } else {
        return None;
    };
    let mut refused = Response::new(GrpcBody::empty());
    *refused.status_mut() = status;
    Some(refused)
}
