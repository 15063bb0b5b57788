//! `/v1/authorize`: whether the request of somebody else may go on, for proxies that ask before they
//! forward. The middleware decides and answers; here stands what is special about being asked by a
//! proxy. What the proxy says about the request is read in `original.rs`.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use tidegate::path::has_hidden_slash;
use tidegate::rules::FrontEnd;
use tidegate::{AttributeError, AttributeValue, Attributes};
use tidegate_identity as identity;
use tidegate_listen::Peer;
use tidegate_tower::{Protocol, RateLimit, RateLimitLayer, UnderscoreHeaders, Unmeasured};
use tower::{Layer as _, Service, ServiceExt as _};

use super::original::Original;
use crate::problem::{Problem, Reply};
use crate::server::Server;
use crate::store::AnyStore;

const X_RATELIMIT_STATUS: HeaderName = HeaderName::from_static("x-ratelimit-status");

/// How much of a body that nobody asked for is taken off the connection, so that it can be kept.
const MOST_DISCARDED: usize = 64 * 1024;
/// And for how long.
const DISCARDING: Duration = Duration::from_secs(1);

/// Decides requests of others.
#[derive(Clone)]
pub(crate) struct Authorize(RateLimit<AnyStore, Allowed>);

/// The service behind the limits: whoever gets here may go on.
#[derive(Clone)]
struct Allowed;

impl Service<Request<()>> for Allowed {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut reply = Reply::default();
        // The work is done elsewhere: how fast this is says nothing about it.
        reply.extensions_mut().insert(Unmeasured);
        ready(Ok(reply))
    }
}

impl Authorize {
    pub(crate) fn new(server: &Arc<Server>) -> Self {
        let [finding, describing] = [(); 2].map(|()| Arc::clone(server));
        let limits = RateLimitLayer::new(Arc::clone(&server.gate));
        let limits = limits
            .forwarded_header(server.identity.forwarded_header())
            .reads_headers(server.identity.headers())
            // The proxy passes on what is only dropped here.
            .underscore_headers(UnderscoreHeaders::Refuse)
            .headers(server.headers)
            .front_end(FrontEnd::Authorize)
            // A proxy goes by the status, whatever its client speaks.
            .protocol(Protocol::Http)
            // Of proxies that are not trusted no host is known; for the others it is looked at below.
            .allow_missing_host()
            .leave_permits()
            .client_address(move |request| {
                let Some(peer) = peer(request) else {
                    return Ok(None);
                };
                let client = finding.identity.client_address(peer, &request.headers);
                client.map(Some)
            })
            .attributes(move |request, attributes| describe(&describing, request, attributes));
        Self(limits.layer(Allowed))
    }

    /// Answers a proxy: 200, 429 or what it wants instead, 400 for a request that could mean two things,
    /// 503 if it cannot be decided.
    pub(crate) async fn answer(
        &self,
        server: &Server,
        parts: Parts,
        body: Incoming,
    ) -> Result<Reply, Problem> {
        let deny_status = deny_status(parts.uri.query().unwrap_or_default())?;
        super::need_rules(server)?;
        let reply = match self.decide(server, parts).await {
            Ok(reply) => reply,
            Err(problem) => problem.reply(),
        };
        discard(body).await;
        Ok(as_asked(reply, deny_status))
    }

    async fn decide(&self, server: &Server, parts: Parts) -> Result<Reply, Problem> {
        let header = server.identity.forwarded_header();
        let original = match peer(&parts) {
            Some(peer) if server.identity.trusts(peer) => {
                let original = Original::of(&parts.headers, header)?;
                check(server, &original)?;
                original
            }
            _ => Original::default(),
        };
        let mut request = Request::from_parts(parts, ());
        request.extensions_mut().insert(original);
        let Ok(reply) = self.0.clone().oneshot(request).await;
        let (head, body) = reply.into_parts();
        let Ok(body) = body.collect().await;
        Ok(Response::from_parts(head, Full::from(body.to_bytes())))
    }
}

/// The answer with the status that the proxy understands. What is denied or refused says in a header what
/// the client should get.
fn as_asked(mut reply: Reply, deny_status: StatusCode) -> Reply {
    let meant = match reply.status() {
        StatusCode::TOO_MANY_REQUESTS => "429",
        StatusCode::BAD_REQUEST => "400",
        _ => return reply,
    };
    if deny_status != StatusCode::TOO_MANY_REQUESTS {
        *reply.status_mut() = deny_status;
        let meant = HeaderValue::from_static(meant);
        reply.headers_mut().insert(X_RATELIMIT_STATUS, meant);
    }
    reply
}

/// What is known of the request that a proxy asks about, in place of what is known of its question.
fn describe<'r>(
    server: &Server,
    question: &'r Parts,
    attributes: &mut Attributes<'r>,
) -> Result<(), AttributeError> {
    let original = question.extensions.get::<Original>();
    let of = |part: fn(&Original) -> &Option<String>| {
        let part = original.and_then(|original| part(original).as_deref());
        part.unwrap_or_default()
    };
    attributes.set("method", of(|original| &original.method))?;
    attributes.set("host", of(|original| &original.host))?;
    // The proxy sends the path on as it came.
    let slashes = server.encoded_slashes.unwrap_or_default();
    attributes.set_raw_path(of(|original| &original.path), slashes)?;
    let query = original.and_then(|original| original.query.as_deref());
    server
        .identity
        .describe(&question.headers, query, attributes)
}

/// Refuses what servers do not agree on, and what would escape a rule.
fn check(server: &Server, original: &Original) -> Result<(), Problem> {
    let path = original.path.as_deref().unwrap_or_default();
    if server.encoded_slashes.is_none() && has_hidden_slash(path) {
        return Err(Problem::hidden_slash());
    }
    if original.host.is_none() && server.gate.rules().reads_host() {
        return Err(Problem::bad_request(
            "the request has no host, and there is a rule that asks for it; the proxy must send `X-Forwarded-Host`",
        ));
    }
    Ok(())
}

fn peer(request: &Parts) -> Option<IpAddr> {
    let Peer(peer) = request.extensions.get()?;
    Some(peer.ip())
}

/// The status that a proxy wants to get for a request that is denied.
fn deny_status(query: &str) -> Result<StatusCode, Problem> {
    let given = identity::parameter(query, "deny_status");
    match given
        .map(|status| status.map(AttributeValue::into_form))
        .as_ref()
        .map(Option::as_deref)
    {
        Ok(None | Some("429")) => Ok(StatusCode::TOO_MANY_REQUESTS),
        Ok(Some("401")) => Ok(StatusCode::UNAUTHORIZED),
        Ok(Some("403")) => Ok(StatusCode::FORBIDDEN),
        _ => Err(Problem::bad_request(
            "`deny_status` must be 401, 403 or 429, once",
        )),
    }
}

/// Takes a body off the connection that nobody has a use for, if that is soon done. What is longer is
/// left, and ends the connection.
async fn discard(body: Incoming) {
    let is_small = body.size_hint().lower() <= MOST_DISCARDED as u64;
    if is_small && !body.is_end_stream() {
        let whole = Limited::new(body, MOST_DISCARDED).collect();
        let _ = tokio::time::timeout(DISCARDING, whole).await;
    }
}
