//! Forwards an admitted request: finds the route, picks a server, and another one if that fails.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use http::header::HOST;
use http::{HeaderValue, Request, Response, Version, request};
use hyper::body::Incoming;
use tidegate::path::normalise;
use tidegate_listen::Peer;
use tidegate_tower::Unmeasured;

use crate::attempt::Tried;
use crate::body::AnswerBody;
use crate::capacity::ClientCounter;
use crate::failure::GatewayFailure;
use crate::forwarded::{ForwardedHeaders, Forwarding};
use crate::hop;
use crate::request_body::{Progress, RequestBody};
use crate::rewrite::without_prefix;
use crate::route::Route;
use crate::upstream::{ForwardResult, pick};
use crate::worker::Worker;

/// Breaks ties between equally loaded servers.
static TURN: AtomicUsize = AtomicUsize::new(0);

/// Forwards a request, and returns the answer.
pub(crate) async fn forward(
    worker: Arc<Worker>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    let answered = match worker.prepare(request) {
        Ok(mut outgoing) => outgoing.run(&worker).await,
        Err(failure) => Err(failure),
    };
    Ok(answered.unwrap_or_else(|failure| {
        tracing::debug!(error = %failure, source = ?std::error::Error::source(&failure), "not forwarded");
        let mut reply = failure.reply().map(AnswerBody::Own);
        reply.extensions_mut().insert(Unmeasured);
        reply
    }))
}

/// A request that is ready to be sent.
pub(crate) struct OutgoingRequest<'l> {
    pub(crate) head: request::Parts,
    /// The headers that describe the client.
    pub(crate) forwarded: Option<ForwardedHeaders>,
    pub(crate) body: RequestBody,
    pub(crate) route: &'l Route,
    /// The progress of its body, if it has one.
    pub(crate) progress: Option<Arc<Progress>>,
    /// The protocol that it asks to upgrade to.
    pub(crate) upgrade: Option<HeaderValue>,
    /// Where connections of its client are counted.
    pub(crate) client: ClientCounter,
}

impl Worker {
    fn prepare(&self, request: Request<Incoming>) -> Result<OutgoingRequest<'_>, GatewayFailure> {
        let (mut head, body) = request.into_parts();
        let routes = &self.gateway.routes;
        let route = if let Some(route) = routes.only() {
            route
        } else {
            let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
            let slashes = self.gateway.encoded_slashes.unwrap_or_default();
            let path = normalise(head.uri.path(), slashes).unwrap_or_default();
            let found = routes.find(host.unwrap_or_default(), &path);
            found.ok_or(GatewayFailure::NoRoute)?
        };
        let peer = head.extensions.get::<Peer>().copied();
        head.extensions.clear();
        let address = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(peer)| {
            let identity = &self.gateway.identity;
            let found = identity.client_address(peer.ip(), &head.headers);
            // An unreadable path was refused before.
            found.unwrap_or_else(|_| peer.ip())
        });
        let client = self.gateway.capacity.counter(address);
        let (body, progress) = RequestBody::of(body);
        let headers = &mut head.headers;
        let leg = hop::strip(headers);
        let forwarded = peer.map(|Peer(peer)| {
            let gateway = &self.gateway;
            let forwarding = Forwarding {
                trusted_proxies: gateway.identity.trusted_proxies(),
                header: gateway.identity.forwarded_header(),
                is_tls: gateway.is_tls,
            };
            ForwardedHeaders::of(headers, peer.ip(), &forwarding)
        });
        let upgrade = leg
            .upgrade
            .filter(|protocol| head.version == Version::HTTP_11 && !hop::names_http2(protocol));
        if let Some(protocol) = &upgrade {
            hop::put_upgrade(headers, protocol.clone());
        }
        let body = match progress {
            // gRPC needs HTTP/2; over HTTP/1 the content type would bypass the minimum rate.
            Some(_)
                if upgrade.is_none()
                    && !(head.version == Version::HTTP_2 && hop::is_grpc(headers)) =>
            {
                body.at_least(self.gateway.body_rate)
            }
            _ => body,
        };
        head.version = Version::HTTP_11;
        if route.config.strips_prefix {
            let slashes = self.gateway.encoded_slashes.unwrap_or_default();
            head.uri = without_prefix(&head.uri, &route.config.prefix, slashes)?;
        }
        Ok(OutgoingRequest {
            head,
            forwarded,
            body,
            route,
            progress,
            upgrade,
            client,
        })
    }
}

impl OutgoingRequest<'_> {
    async fn run(&mut self, worker: &Arc<Worker>) -> Result<Response<AnswerBody>, GatewayFailure> {
        let route = self.route;
        let mut retries = route.config.retries;
        let mut tried: Vec<usize> = Vec::new();
        let mut must_be_new = false;
        let mut last = GatewayFailure::NoneUp;
        loop {
            // All servers were tried: start over.
            if !tried.is_empty() && tried.len() >= route.upstreams.len() {
                tried.clear();
            }
            let Some(upstream) = pick(&route.upstreams, &tried, &TURN) else {
                return Err(last);
            };
            match self.attempt(worker, upstream, must_be_new).await {
                Tried::Answered(answer) => return Ok(answer),
                Tried::Refused(failure) => return Err(failure),
                Tried::Failed(failure) => {
                    upstream.count(ForwardResult::Failed);
                    return Err(failure);
                }
                Tried::Stale(failure) if !must_be_new => {
                    last = failure;
                    must_be_new = true;
                }
                Tried::Again(failure) | Tried::Stale(failure) => {
                    upstream.count(ForwardResult::Failed);
                    if retries == 0 {
                        return Err(failure);
                    }
                    retries -= 1;
                    last = failure;
                    must_be_new = true;
                    tried.push(upstream.place);
                }
            }
            upstream.count_retry();
        }
    }
}
