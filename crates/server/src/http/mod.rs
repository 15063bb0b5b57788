//! The HTTP front end: one function from a request to its reply.
//!
//! `route.rs` finds the call, a file for each group of calls answers it, `crate::problem` turns errors into
//! replies. The gate decides.

mod activity;
mod activity_stream;
mod api_body;
mod authorize;
mod body;
mod check;
mod conditional;
mod console;
mod counters;
mod explain;
mod feedback;
mod history;
mod openapi;
mod original;
mod overrides;
mod probes;
mod query;
mod route;
mod rules;
mod status;
mod validate;

use authorize::Authorize;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tidegate_codec::json::{answer, number, question};
use tidegate_listen::Peer;

use crate::problem::{ApiReply, HttpProblem};
use crate::server::Server;
pub(crate) use api_body::ApiBody;
use route::ApiCall;

/// The HTTP API.
pub(crate) struct Api {
    server: Arc<Server>,
    authorize: Authorize,
    /// The description of the API, as JSON.
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
pub(crate) async fn answer(
    api: Arc<Api>,
    request: Request<Incoming>,
    peer: Peer,
) -> Result<Response<ApiBody>, Infallible> {
    let (mut parts, body) = request.into_parts();
    // A check asks for its peer only where tokens are wanted, and the extensions are two allocations.
    if parts.uri.path() != route::CHECK || api.server.access.wants_tokens() {
        parts.extensions.insert(peer);
    }
    // The only reply that is not whole.
    if parts.uri.path() == route::ACTIVITY_STREAM {
        return Ok(stream(&api, &parts));
    }
    let reply = match dispatch(&api, parts, body).await {
        Ok(reply) => reply,
        Err(problem) => problem.reply(),
    };
    Ok(reply.map(ApiBody::Whole))
}

fn stream(api: &Api, parts: &Parts) -> Response<ApiBody> {
    let opened = route::find(&parts.method, parts.uri.path())
        .and_then(|_| activity_stream::open(&api.server, parts));
    opened.unwrap_or_else(|problem| not_kept(problem.reply()).map(ApiBody::Whole))
}

async fn dispatch(api: &Api, parts: Parts, body: Incoming) -> Result<ApiReply, HttpProblem> {
    match route::find(&parts.method, parts.uri.path())? {
        ApiCall::Authorize => api.authorize.answer(&api.server, parts, body).await,
        ApiCall::Check => check::check(&api.server, &parts, body).await,
        // In a box, so that a check does not carry what the other calls need.
        call => Ok(Box::pin(answer_caller(api, call, &parts, body)).await),
    }
}

/// Answers a call of an operator or a page. No cache keeps what it says.
async fn answer_caller(api: &Api, call: ApiCall<'_>, parts: &Parts, body: Incoming) -> ApiReply {
    let reply = administer(api, call, parts, body).await;
    let reply = reply.unwrap_or_else(HttpProblem::reply);
    if parts.uri.path().starts_with("/v1/") {
        return not_kept(reply);
    }
    reply
}

/// The reply, for no cache to keep.
fn not_kept(mut reply: ApiReply) -> ApiReply {
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

/// Answers all calls but the two that are made for each request of a client.
async fn administer(
    api: &Api,
    call: ApiCall<'_>,
    parts: &Parts,
    body: Incoming,
) -> Result<ApiReply, HttpProblem> {
    let server = &api.server;
    if call.never_needs_token() {
        body::check_length(&body, body::TINY)?;
    }
    match call {
        ApiCall::Authorize | ApiCall::Check | ApiCall::ActivityStream => {
            Err(HttpProblem::not_found("there is no such call"))
        }
        ApiCall::Activity => activity::activity(server, parts).await,
        ApiCall::RuleKeys(id) => activity::keys(server, parts, id).await,
        ApiCall::CheckBatch => check::batch(server, parts, body).await,
        ApiCall::Explain => explain::explain(server, parts, body).await,
        ApiCall::ListRules => rules::list(server, parts),
        ApiCall::ReplaceRules => rules::replace(server, parts, body).await,
        ApiCall::CreateRule => rules::create(server, parts, body).await,
        ApiCall::GetRule(id) => rules::get(server, parts, id),
        ApiCall::PutRule(id) => rules::put(server, parts, id, body).await,
        ApiCall::DeleteRule(id) => rules::delete(server, parts, id).await,
        ApiCall::ValidateRule(id) => validate::validate(server, parts, id, body).await,
        ApiCall::History => history::list(server, parts).await,
        ApiCall::RulesVersion(version) => history::version(server, parts, version).await,
        ApiCall::RulesDiff => history::diff(server, parts).await,
        ApiCall::RollBack => history::roll_back(server, parts, body).await,
        ApiCall::ListOverrides => overrides::list(server, parts, None),
        ApiCall::ListOverridesOf(id) => overrides::list(server, parts, Some(id)),
        ApiCall::PutOverride(id) => overrides::put(server, parts, id, body).await,
        ApiCall::DeleteOverride(id, key) => overrides::delete(server, parts, id, key).await,
        ApiCall::Reset => counters::reset(server, parts, body).await,
        ApiCall::Feedback => feedback::feedback(server, parts, body).await,
        ApiCall::ReleaseLease(id) => counters::release(server, parts, id, body).await,
        ApiCall::RenewLease(id) => counters::renew(server, parts, id, body).await,
        ApiCall::Status => status::status(server, parts).await,
        ApiCall::ConsoleFile(path) => console::file(server, parts, path),
        ApiCall::ConsoleRedirect => console::redirect(server),
        ApiCall::Root => console::redirect_browser(server, parts),
        ApiCall::MakeCode => console::make_code(server, parts, body).await,
        ApiCall::OpenSession => console::open_session(server, parts, body).await,
        ApiCall::ShowSession => console::show_session(server, parts),
        ApiCall::EndSession => console::end_session(server, parts, body).await,
        ApiCall::Health => Ok(probes::health()),
        ApiCall::Readiness => Ok(probes::readiness(server).await),
        ApiCall::Metrics => Ok(probes::metrics(server, parts).await),
        ApiCall::OpenApi => Ok(probes::openapi(&api.openapi)),
    }
}

/// Refuses a request that cannot be decided because the rules are not known.
fn need_rules(server: &Server) -> Result<(), HttpProblem> {
    let needed = server.book.need_rules();
    needed.map_err(|problem| HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, problem))
}

fn json(status: StatusCode, body: impl Into<Bytes>) -> ApiReply {
    let mut reply = Response::new(Full::from(body.into()));
    *reply.status_mut() = status;
    let media_type = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    reply
}

fn no_content() -> ApiReply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}
