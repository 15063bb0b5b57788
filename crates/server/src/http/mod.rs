//! The HTTP front end: one function from a request to its reply.
//!
//! `route.rs` says which call it is, a file for each group of calls answers it, `crate::problem` turns what
//! went wrong into a reply. Deciding is left to the gate.

mod answer;
mod authorize;
mod body;
mod check;
mod conditional;
mod counters;
mod feedback;
mod number;
mod openapi;
mod original;
mod probes;
mod question;
mod route;
mod rules;

use authorize::Authorize;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::problem::{Problem, Reply};
use crate::server::Server;
use route::Call;

/// What answers requests.
pub(crate) struct Api {
    server: Arc<Server>,
    authorize: Authorize,
    /// What the API is, for those who ask it.
    openapi: Bytes,
}

impl Api {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self {
            authorize: Authorize::new(&server),
            openapi: openapi::describe(server.trust_timestamps),
            server,
        }
    }
}

/// Answers one request.
pub(crate) async fn answer(api: Arc<Api>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    let (parts, body) = request.into_parts();
    let reply = match dispatch(&api, parts, body).await {
        Ok(reply) => reply,
        Err(problem) => problem.reply(),
    };
    Ok(reply)
}

async fn dispatch(api: &Api, parts: Parts, body: Incoming) -> Result<Reply, Problem> {
    match route::find(&parts.method, parts.uri.path())? {
        Call::Authorize => api.authorize.answer(&api.server, parts, body).await,
        Call::Check => check::check(&api.server, &parts, body).await,
        // In a box, so that a check does not carry what the other calls need.
        call => Box::pin(administer(api, call, &parts, body)).await,
    }
}

/// Answers all calls but the two that are made for each request of a client.
async fn administer(
    api: &Api,
    call: Call<'_>,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Problem> {
    let server = &api.server;
    match call {
        Call::Authorize | Call::Check => Err(Problem::not_found("there is no such call")),
        Call::CheckBatch => check::batch(server, parts, body).await,
        Call::ListRules => rules::list(server, parts),
        Call::ReplaceRules => rules::replace(server, parts, body).await,
        Call::CreateRule => rules::create(server, parts, body).await,
        Call::GetRule(id) => rules::get(server, parts, id),
        Call::PutRule(id) => rules::put(server, parts, id, body).await,
        Call::DeleteRule(id) => rules::delete(server, parts, id).await,
        Call::History => rules::history(server, parts).await,
        Call::RollBack => rules::roll_back(server, parts, body).await,
        Call::Reset => counters::reset(server, parts, body).await,
        Call::Feedback => feedback::feedback(server, parts, body).await,
        Call::ReleaseLease(id) => counters::release(server, parts, id, body).await,
        Call::RenewLease(id) => counters::renew(server, parts, id, body).await,
        Call::Health => Ok(probes::health()),
        Call::Readiness => Ok(probes::readiness(server).await),
        Call::Metrics => Ok(probes::metrics(server, parts)),
        Call::OpenApi => Ok(probes::openapi(&api.openapi)),
    }
}

/// Refuses a request that cannot be decided because the rules are not known.
fn need_rules(server: &Server) -> Result<(), Problem> {
    let needed = server.book.need_rules();
    needed.map_err(|problem| Problem::new(StatusCode::SERVICE_UNAVAILABLE, problem))
}

fn json(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::from(body.into()));
    *reply.status_mut() = status;
    let media_type = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    reply
}

fn no_content() -> Reply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}
