//! `/v1/authorize`: forward-auth, for proxies that ask before they forward a request. The middleware decides and
//! answers; this file has what is special about proxies. `original.rs` reads what the proxy says about
//! the request.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use tidegate::path::has_hidden_slash;
use tidegate::rules::FrontEnd;
use tidegate::{AttributeError, AttributeValue, Attributes};
use tidegate_identity as identity;
use tidegate_listen::Peer;
use tidegate_tower::{Protocol, RateLimit, RateLimitLayer, UnderscoreHeaders, Unmeasured};
use tower::{Layer as _, Service, ServiceExt as _};

use super::body;
use super::original::Original;
use crate::problem::{ApiReply, HttpProblem};
use crate::server::Server;
use crate::store::AnyStore;

const X_RATELIMIT_STATUS: HeaderName = HeaderName::from_static("x-ratelimit-status");

/// For how long an unused body is read.
const DISCARDING: Duration = Duration::from_secs(1);

/// Decides requests on behalf of proxies.
#[derive(Clone)]
pub(crate) struct Authorize(RateLimit<AnyStore, Allowed>);

/// The service behind the limits: a request that gets here is allowed.
#[derive(Clone)]
struct Allowed;

impl Service<Request<()>> for Allowed {
    type Response = ApiReply;
    type Error = Infallible;
    type Future = Ready<Result<ApiReply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut reply = ApiReply::default();
        // The request is served elsewhere: the latency of this answer is not that of the service.
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
            // Dropping the header here would not drop it at the proxy.
            .underscore_headers(UnderscoreHeaders::Refuse)
            .headers(server.headers)
            .front_end(FrontEnd::Authorize)
            // A proxy reads the status, whatever protocol its client speaks.
            .protocol(Protocol::Http)
            // Untrusted proxies provide no host; that of trusted ones is checked below.
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

    /// Answers a proxy: 200, 429 or its `deny_status`, 400 for an ambiguous request, 503 if it cannot be decided.
    pub(crate) async fn answer(
        &self,
        server: &Server,
        parts: Parts,
        body: Incoming,
    ) -> Result<ApiReply, HttpProblem> {
        let deny_status = deny_status(parts.uri.query().unwrap_or_default())?;
        body::check_length(&body, body::TINY)?;
        super::need_rules(server)?;
        let reply = match self.decide(server, parts).await {
            Ok(reply) => reply,
            Err(problem) => problem.reply(),
        };
        discard(body).await;
        Ok(as_asked(reply, deny_status))
    }

    async fn decide(&self, server: &Server, parts: Parts) -> Result<ApiReply, HttpProblem> {
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

/// The answer with a status that the proxy understands. If denied or refused, a header has the status for the
/// client.
fn as_asked(mut reply: ApiReply, deny_status: StatusCode) -> ApiReply {
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

/// Replaces the proxy's own request by the one that it asks about.
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
    // The proxy forwards the path unchanged.
    let slashes = server.encoded_slashes.unwrap_or_default();
    attributes.set_raw_path(of(|original| &original.path), slashes)?;
    let query = original.and_then(|original| original.query.as_deref());
    server
        .identity
        .describe(&question.headers, query, attributes)
}

/// Refuses requests that servers read differently, and those that would escape a rule.
fn check(server: &Server, original: &Original) -> Result<(), HttpProblem> {
    let path = original.path.as_deref().unwrap_or_default();
    if server.encoded_slashes.is_none() && has_hidden_slash(path) {
        return Err(HttpProblem::hidden_slash());
    }
    if original.host.is_none() && server.gate.rules().reads_host() {
        return Err(HttpProblem::bad_request(
            "the request has no host, and a rule matches on it; the proxy must send `X-Forwarded-Host`",
        ));
    }
    Ok(())
}

fn peer(request: &Parts) -> Option<IpAddr> {
    let Peer(peer) = request.extensions.get()?;
    Some(peer.ip())
}

/// The status that a proxy wants for a denied request.
fn deny_status(query: &str) -> Result<StatusCode, HttpProblem> {
    let given = identity::parameter(query, "deny_status");
    match given
        .map(|status| status.map(AttributeValue::into_form))
        .as_ref()
        .map(Option::as_deref)
    {
        Ok(None | Some("429")) => Ok(StatusCode::TOO_MANY_REQUESTS),
        Ok(Some("401")) => Ok(StatusCode::UNAUTHORIZED),
        Ok(Some("403")) => Ok(StatusCode::FORBIDDEN),
        _ => Err(HttpProblem::bad_request(
            "`deny_status` must be 401, 403 or 429, once",
        )),
    }
}

/// Reads an unused body off the connection, so that the connection can be kept. A long one is left, which ends the
/// connection.
async fn discard(mut body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    let mut left = body::TINY;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = tokio::time::timeout(DISCARDING, reading).await;
}
