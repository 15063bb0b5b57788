//! `/v1/authorize`: forward-auth, for proxies that ask before they forward a request. The middleware decides and
//! answers; this file has what is special about proxies. `original.rs` reads what the proxy says about
//! the request.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::IpAddr;
use std::sync::{Arc, Once};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use tidegate::address::canonical;
use tidegate::path::has_hidden_slash;
use tidegate::rules::{FrontEnd, RuleSet};
use tidegate::{AttributeError, AttributeValue, Attributes};
use tidegate_gateway::PROXY_TOKEN;
use tidegate_identity as identity;
use tidegate_listen::Peer;
use tidegate_tower::{DenialReason, Protocol, RateLimit, UnderscoreHeaders, Unmeasured};
use tower::{Layer as _, Service, ServiceExt as _};

use super::body::{self, ArrivingBody};
use super::original::{Original, describes_another};
use crate::access::{AccessRefusal, PresentedToken, UNKNOWN_TOKEN};
use crate::decider::Decider;
use crate::problem::{ApiReply, HttpProblem};
use crate::untrusted_proxies;

const X_RATELIMIT_STATUS: HeaderName = HeaderName::from_static("x-ratelimit-status");
const X_RATELIMIT_REASON: HeaderName = HeaderName::from_static("x-ratelimit-reason");

/// For how long an unused body is read.
const DISCARDING: Duration = Duration::from_secs(1);

/// Whether a caller is believed what it says about its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// It is one of `trusted_proxies`.
    ByAddress,
    /// It has a token.
    ByToken,
    /// It is not, and says nothing about a client.
    Untrusted,
}

/// Decides requests on behalf of proxies.
#[derive(Clone)]
pub(crate) struct Authorize {
    limited: RateLimit<Allowed>,
    /// Logs once that a proxy does not say which path it is about.
    without_path: Arc<Once>,
}

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
    pub(crate) fn new(decider: &Arc<Decider>) -> Self {
        let [finding, describing, waiting] = [(); 3].map(|()| Arc::clone(decider));
        let limits = decider
            .limits()
            .forwarded_header(decider.identity.forwarded_header())
            .reads_headers(decider.identity.headers())
            // Dropping the header here would not drop it at the proxy.
            .underscore_headers(UnderscoreHeaders::Refuse)
            .challenges(decider.identity.challenges())
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
                let client = match request.extensions.get() {
                    Some(Trust::ByToken) => finding.identity.client_behind(peer, &request.headers),
                    _ => finding.identity.client_address(peer, &request.headers),
                };
                client.map(Some)
            })
            .attributes(move |request, attributes| describe(&describing, request, attributes))
            .next_keys(move || {
                let identity = Arc::clone(&waiting.identity);
                async move { identity.next_keys().await }
            });
        Self {
            limited: limits.layer(Allowed),
            without_path: Arc::new(Once::new()),
        }
    }

    /// Answers a proxy: 200, or the status of the denial, or the `deny_status` that it asks for instead.
    pub(super) async fn answer(
        &self,
        decider: &Decider,
        parts: Parts,
        body: ArrivingBody,
    ) -> Result<ApiReply, HttpProblem> {
        let deny_status = deny_status(parts.uri.query().unwrap_or_default())?;
        let reply = match body.check_length() {
            Ok(()) => self.decide(decider, parts).await,
            Err(problem) => Err(problem),
        };
        let reply = reply.unwrap_or_else(HttpProblem::reply);
        discard(body.into_incoming()).await;
        Ok(as_asked(reply, deny_status))
    }

    async fn decide(&self, decider: &Decider, mut parts: Parts) -> Result<ApiReply, HttpProblem> {
        let trust = trust(decider, &mut parts)?;
        super::need_rules(decider)?;
        let rules = decider.gate.rules();
        let mut original = Original::default();
        if trust != Trust::Untrusted {
            original = Original::of(&parts.headers, decider.identity.forwarded_header())?;
            check(decider, &original, &rules)?;
            if original.path.is_none() {
                self.without_path.call_once(|| {
                    tracing::warn!(
                        "a trusted proxy asked /v1/authorize without X-Forwarded-Uri or X-Original-URI: rules with a `path` do not apply to such requests"
                    );
                });
            }
        }
        let mut request = Request::from_parts(parts, ());
        request.extensions_mut().insert(rules);
        request.extensions_mut().insert(original);
        if trust == Trust::ByToken {
            request.extensions_mut().insert(trust);
        }
        let Ok(reply) = self.limited.clone().oneshot(request).await;
        let (head, body) = reply.into_parts();
        let Ok(body) = body.collect().await;
        Ok(Response::from_parts(head, Full::from(body.to_bytes())))
    }
}

/// Whether the caller is trusted. One that is not and describes a client's request is refused: without what it says,
/// most rules would apply to none of its requests. Removes its token.
fn trust(decider: &Decider, parts: &mut Parts) -> Result<Trust, HttpProblem> {
    let token = parts.headers.remove(PROXY_TOKEN);
    let Some(peer) = peer(parts) else {
        return Err(HttpProblem::forbidden(
            "the address of the caller is not known",
        ));
    };
    if decider.identity.trusts(peer) {
        return Ok(Trust::ByAddress);
    }
    let mut about_token = String::new();
    if let Some(token) = token {
        let presented = PresentedToken::of_proxy(peer, &token);
        match decider.access.check_token(&presented) {
            Ok(()) => return Ok(Trust::ByToken),
            Err(AccessRefusal::OutOfScope(problem)) => about_token = format!("; {problem}"),
            Err(_) => about_token = format!("; {UNKNOWN_TOKEN}"),
        }
    }
    if describes_another(&parts.headers) {
        decider.untrusted_proxies.note(peer);
        let detail = untrusted_proxies::refusal(peer) + &about_token;
        return Err(HttpProblem::forbidden_for("untrusted_proxy", detail));
    }
    if decider.access.wants_tokens() && !decider.open_authorize {
        let peer = canonical(peer);
        let detail = format!(
            "`{peer}` is not a trusted proxy: add this address to `trusted_proxies`, send `X-Tidegate-Token`, or set `open_authorize`{about_token}"
        );
        return Err(HttpProblem::forbidden_for("not_a_proxy", detail));
    }
    Ok(Trust::Untrusted)
}

/// The answer with the status that the proxy asks for, if it does and the request is not allowed. Headers then have the
/// status for the client and the reason.
fn as_asked(mut reply: ApiReply, deny_status: Option<StatusCode>) -> ApiReply {
    let meant = reply.status();
    let Some(asked) = deny_status.filter(|_| meant != StatusCode::OK) else {
        return reply;
    };
    *reply.status_mut() = asked;
    let reason = reply.extensions().get().copied();
    let headers = reply.headers_mut();
    headers.insert(X_RATELIMIT_STATUS, HeaderValue::from(meant.as_u16()));
    if let Some(DenialReason(reason)) = reason {
        headers.insert(X_RATELIMIT_REASON, HeaderValue::from_static(reason));
    }
    reply
}

/// Replaces the proxy's own request by the one that it asks about.
fn describe<'r>(
    decider: &Decider,
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
    let slashes = decider.encoded_slashes.unwrap_or_default();
    attributes.set_raw_path(of(|original| &original.path), slashes)?;
    let query = original.and_then(|original| original.query.as_deref());
    decider
        .identity
        .describe(&question.headers, query, attributes)
}

/// Refuses requests that servers read differently, and those that would escape a rule.
fn check(decider: &Decider, original: &Original, rules: &RuleSet) -> Result<(), HttpProblem> {
    let path = original.path.as_deref().unwrap_or_default();
    if decider.encoded_slashes.is_none() && has_hidden_slash(path) {
        return Err(HttpProblem::hidden_slash());
    }
    if original.host.is_none() && rules.reads_host() {
        return Err(HttpProblem::bad_request(
            "the request has no host, and a rule matches on it; the proxy must send `X-Forwarded-Host`",
        ));
    }
    Ok(())
}

fn peer(request: &Parts) -> Option<IpAddr> {
    let Peer { address: peer, .. } = request.extensions.get()?;
    Some(peer.ip())
}

/// The status that a proxy wants in place of every other than 200.
fn deny_status(query: &str) -> Result<Option<StatusCode>, HttpProblem> {
    let given = identity::parameter(query, "deny_status");
    match given
        .map(|status| status.map(AttributeValue::into_form))
        .as_ref()
        .map(Option::as_deref)
    {
        Ok(None) => Ok(None),
        Ok(Some("429")) => Ok(Some(StatusCode::TOO_MANY_REQUESTS)),
        Ok(Some("401")) => Ok(Some(StatusCode::UNAUTHORIZED)),
        Ok(Some("403")) => Ok(Some(StatusCode::FORBIDDEN)),
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
