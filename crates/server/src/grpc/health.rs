//! `grpc.health.v1`: whether requests can be decided here, asked once or watched.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use tidegate_listen::Drain;

use super::body::GrpcBody;
use super::call::SERVICES;
use super::proto::health::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use super::status::{Code, Status};
use super::{message, stream};
use crate::server::Server;

/// How often those who watch are told what has changed.
const EVERY: Duration = Duration::from_millis(500);

/// How a service is now.
pub(super) async fn check(
    server: &Arc<Server>,
    body: Incoming,
) -> Result<Response<GrpcBody>, Status> {
    let asked: HealthCheckRequest = message::decode(message::only(body).await?)?;
    let service = &asked.service;
    if !is_known(service) {
        let message = format!("there is no service `{service}` here");
        return Err(Status::new(Code::NotFound, message));
    }
    Ok(message::reply(&response(status(server).await)))
}

/// How a service is now, and whenever that changes.
pub(super) async fn watch(
    server: &Arc<Server>,
    drain: &Drain,
    body: Incoming,
) -> Result<Response<GrpcBody>, Status> {
    let asked: HealthCheckRequest = message::decode(message::only(body).await?)?;
    let is_known = is_known(&asked.service);
    let (server, drain) = (Arc::clone(server), drain.clone());
    Ok(stream::reply(move |sender| async move {
        let mut told = None;
        loop {
            let now = if is_known {
                status(&server).await
            } else {
                ServingStatus::ServiceUnknown
            };
            if told != Some(now) && sender.send(&response(now)).await.is_err() {
                return;
            }
            told = Some(now);
            // A stream that stays would hold the end of the server up.
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

/// The server as a whole has the empty name.
fn is_known(service: &str) -> bool {
    service.is_empty() || SERVICES.contains(&service)
}

async fn status(server: &Server) -> ServingStatus {
    if server.is_ready().await {
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
