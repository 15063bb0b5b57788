//! `grpc.health.v1`: whether requests can be decided, checked once or watched.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use tidegate_codec::grpc::decode;
use tidegate_codec::grpc::proto::health::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use tidegate_listen::Drain;
use tidegate_ratelimit::EnvoyRatelimit;
use tidegate_ratelimit::stats::CountedMethod;

use super::body::GrpcBody;
use super::call::SERVICES;
use super::status::{Code, Status};
use super::{message, stream};
use crate::decider::Decider;
use crate::open_streams::OpenStream;

/// How often watches look for a change.
const EVERY: Duration = Duration::from_millis(500);

/// `Check`: the current status of a service.
pub(super) async fn check(
    decider: &Arc<Decider>,
    body: Incoming,
) -> Result<Response<GrpcBody>, Status> {
    let stats = decider.stats.as_ref();
    let _timer = stats.map(|stats| stats.call(CountedMethod::Check));
    let asked: HealthCheckRequest = decode(message(decider, body).await?)?;
    let service = &asked.service;
    if !is_known(decider, service) {
        let message = format!("there is no service `{service}`");
        return Err(Status::new(Code::NotFound, message));
    }
    Ok(message::reply(&response(status(decider).await)))
}

/// `Watch`: the status of a service, now and at each change.
pub(super) async fn watch(
    decider: &Arc<Decider>,
    drain: &Drain,
    body: Incoming,
    open: Option<OpenStream>,
) -> Result<Response<GrpcBody>, Status> {
    let asked: HealthCheckRequest = decode(message(decider, body).await?)?;
    let is_known = is_known(decider, &asked.service);
    let (decider, drain) = (Arc::clone(decider), drain.clone());
    Ok(stream::reply(move |sender| async move {
        let _open = open;
        let mut sent = None;
        loop {
            let now = if is_known {
                status(&decider).await
            } else {
                ServingStatus::ServiceUnknown
            };
            if sent != Some(now) && sender.send(&response(now)).await.is_err() {
                return;
            }
            sent = Some(now);
            // An open stream would delay the shutdown.
            if drain.has_begun() {
                return;
            }
            tokio::select! {
                () = sender.gone() => return,
                () = drain.begun() => {}
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }))
}

async fn message(decider: &Decider, body: Incoming) -> Result<Bytes, Status> {
    let message = message::only(body, message::TINY, &decider.bodies.clients).await?;
    Ok(message.bytes().clone())
}

/// The empty name stands for the whole server, and so does that of envoyproxy/ratelimit in its place.
fn is_known(decider: &Decider, service: &str) -> bool {
    let is_replaced = decider.envoy_ratelimit.is_some() && service == EnvoyRatelimit::PROGRAM;
    service.is_empty() || is_replaced || SERVICES.contains(&service)
}

async fn status(decider: &Decider) -> ServingStatus {
    if decider.is_serving().await {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}
