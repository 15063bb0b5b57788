//! The HTTP front end: one function from a request to its reply.
//!
//! `route.rs` has the table of calls with their scopes, a file for each group of calls answers them, `crate::problem`
//! turns errors into replies. The gate decides.

mod activity;
mod activity_stream;
mod asked;
mod authorize;
mod body;
mod call;
mod check;
mod conditional;
mod console;
mod counters;
mod explain;
mod feedback;
mod healthcheck;
mod history;
mod openapi;
mod original;
mod overrides;
mod probes;
mod promote;
mod query;
mod rate_limit_json;
mod raw_request;
mod reservations;
mod route;
mod rules;
mod status;
mod validate;

pub(crate) use asked::answer_others;
use authorize::Authorize;

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tidegate_codec::json::{answer, explain as explain_question, number, question, reservation};
use tidegate_listen::{Drain, ListenSettings, Peer};
use tokio::net::TcpListener;

use crate::access::{CallScope, Caller};
use crate::admin::Admin;
use crate::decider::Decider;
use crate::problem::{ApiReply, HttpProblem};
use body::ArrivingBody;
use call::ApiCall;
pub use explain::explain_offline;
use route::{ApiHandler, ApiRoute};

/// The body of a reply: whole, or a stream of events.
pub(crate) type ApiBody = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

pub(crate) use route::ServedCalls;

/// The HTTP API, as a listener serves it.
pub(crate) struct Api {
    decider: Arc<Decider>,
    admin: Arc<Admin>,
    authorize: Authorize,
    /// The description of the API, as JSON.
    openapi: Bytes,
    calls: ServedCalls,
    /// Whether every call but a probe needs a client certificate.
    pub(crate) needs_certificate: bool,
}

impl Api {
    pub(crate) fn new(admin: Arc<Admin>, calls: ServedCalls) -> Self {
        let decider = Arc::clone(&admin.decider);
        Self {
            authorize: Authorize::new(&decider),
            openapi: openapi::describe(decider.trust_timestamps),
            decider,
            admin,
            calls,
            needs_certificate: false,
        }
    }
}

/// Serves connections until the drain begins and the open ones have ended.
pub(crate) async fn serve(listener: TcpListener, api: Api, settings: ListenSettings, drain: Drain) {
    let api = Arc::new(api);
    let service = move |request, peer| {
        // Boxed: it is large, and an idle connection need not hold it.
        Box::pin(answer(Arc::clone(&api), request, peer))
    };
    tidegate_listen::serve(listener, service, settings, drain).await;
}

/// Answers one request.
async fn answer(
    api: Arc<Api>,
    request: Request<Incoming>,
    peer: Peer,
) -> Result<Response<ApiBody>, Infallible> {
    let (parts, body) = request.into_parts();
    let reply = dispatch(api, parts, body, peer).await;
    Ok(reply.unwrap_or_else(|problem| problem.reply().map(Either::Left)))
}

async fn dispatch(
    api: Arc<Api>,
    mut parts: Parts,
    body: Incoming,
    peer: Peer,
) -> Result<Response<ApiBody>, HttpProblem> {
    let found = route::find(api.calls, &parts.method, parts.uri.path());
    if api.needs_certificate && !peer.is_certified {
        refuse_uncertified(found.as_ref().map(|(route, _)| *route).ok())?;
    }
    let (route, names) = found?;
    let body = ArrivingBody::new(body, route.body, route.scope);
    let access = &api.decider.access;
    let reply = match route.handler {
        ApiHandler::Check => {
            // It asks for its peer only where tokens are wanted, and the extensions are two allocations.
            if access.wants_tokens() {
                parts.extensions.insert(peer);
            }
            route.admit(access, &parts)?;
            check::check(&api.decider, body).await?
        }
        ApiHandler::Authorize => {
            parts.extensions.insert(peer);
            route.admit(access, &parts)?;
            api.authorize.answer(&api.decider, parts, body).await?
        }
        ApiHandler::Boxed(handler) => {
            let names = names.map(str::to_owned);
            parts.extensions.insert(peer);
            let answering = match admit(&api, route, &parts, &body) {
                Ok(caller) => handler(ApiCall {
                    api,
                    parts,
                    names,
                    caller,
                    body,
                }),
                Err(problem) => Box::pin(ready(Err(problem))),
            };
            let answer = answering.await;
            let mut reply = answer.unwrap_or_else(|problem| problem.reply().map(Either::Left));
            if route.path.starts_with("/v1/") {
                forbid_storing(reply.headers_mut());
            }
            return Ok(reply);
        }
    };
    Ok(reply.map(Either::Left))
}

/// Refuses a call without a client certificate, unless it is a probe: those of platforms present none.
fn refuse_uncertified(route: Option<&ApiRoute>) -> Result<(), HttpProblem> {
    if route.is_some_and(|route| route.scope == CallScope::Probe) {
        return Ok(());
    }
    Err(HttpProblem::forbidden_for(
        "client_certificate",
        "this server requires a client certificate; connect with one that an authority in its `http_tls_client_ca` has issued",
    ))
}

/// The caller of a call that an operator or a page makes, if it can be answered.
fn admit(
    api: &Api,
    route: &ApiRoute,
    parts: &Parts,
    body: &ArrivingBody,
) -> Result<Caller, HttpProblem> {
    if matches!(route.scope, CallScope::Open | CallScope::Probe) {
        body.check_length()?;
    }
    if route.is_of_console() && !api.admin.has_console {
        return Err(HttpProblem::not_found(
            "this server has no console; its setting `console` is `off`",
        ));
    }
    let caller = route.admit(&api.decider.access, parts)?;
    if route.is_of_operator() && parts.method != Method::GET && parts.method != Method::HEAD {
        // Calls that read have parameters; what changes something has a body.
        let [] = query::parameters(parts, [])?;
    }
    Ok(caller)
}

/// Forbids caches to store answers to an operator or a page.
fn forbid_storing(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Refuses a request that cannot be decided because the rules are not known.
fn need_rules(decider: &Decider) -> Result<(), HttpProblem> {
    let needed = decider.need_rules();
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
