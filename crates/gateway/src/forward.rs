//! Forwards an admitted request: finds the route, picks a server, and another one if that fails.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use http::header::TRAILER;
use http::{HeaderValue, Request, Response, Version, request};
use http_body_util::Either;
use hyper::body::Incoming;
use tidegate_tower::{RequestPermit, Unanswered, Unmeasured};

use crate::abandoned::HeldRequest;
use crate::attempt::Tried;
use crate::body::AnswerBody;
use crate::capacity::ClientCounter;
use crate::failure::GatewayFailure;
use crate::forwarded::{ForwardedHeaders, Forwarding};
use crate::hop;
use crate::request_body::{Progress, RequestBody};
use crate::rewrite::without_prefix;
use crate::route::Route;
use crate::screen::Screened;
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
        let mut reply = failure.reply().map(Either::Right);
        reply.extensions_mut().insert(Unmeasured);
        reply.extensions_mut().insert(Unanswered {
            may_be_sent: failure.may_be_sent(),
        });
        reply
    }))
}

/// A request that is ready to be sent.
pub(crate) struct OutgoingRequest<'l> {
    pub(crate) head: request::Parts,
    /// The headers that describe the client.
    pub(crate) forwarded: ForwardedHeaders,
    pub(crate) body: RequestBody,
    pub(crate) route: &'l Route,
    /// The progress of its body, if it has one.
    pub(crate) progress: Option<Arc<Progress>>,
    /// The protocol that it asks to upgrade to.
    pub(crate) upgrade: Option<HeaderValue>,
    /// Where connections of its client are counted.
    pub(crate) client: ClientCounter,
    /// If it holds a permit.
    pub(crate) holding: Option<Box<HeldRequest>>,
}

impl Worker {
    fn prepare(&self, request: Request<Incoming>) -> Result<OutgoingRequest<'_>, GatewayFailure> {
        let (mut head, body) = request.into_parts();
        let screened = head.extensions.remove::<Screened>();
        let mut screened = screened.ok_or(GatewayFailure::NoRoute)?;
        let permit = head.extensions.remove::<RequestPermit>();
        head.extensions.clear();
        let route = screened
            .route
            .and_then(|index| self.gateway.routes.get(index));
        let route = route.ok_or(GatewayFailure::NoRoute)?;
        let start = screened.start.take();
        let Screened {
            peer, client, path, ..
        } = screened;
        // A request whose client is not known was refused before.
        let client = self.gateway.capacity.counter(client.unwrap_or(peer));
        let (mut body, progress) = RequestBody::new(body, start);
        let holding = permit.map(|permit| {
            let (holding, is_over) = HeldRequest::new(permit, route.config.timeout);
            body.wait_if_broken(is_over);
            holding
        });
        let headers = &mut head.headers;
        let leg = hop::strip(headers);
        for (name, value) in &route.config.set_headers {
            headers.insert(name.clone(), value.clone());
        }
        let forwarding = Forwarding {
            trusted_proxies: self.gateway.screen.identity.trusted_proxies(),
            header: self.gateway.screen.identity.forwarded_header(),
            is_tls: self.gateway.is_tls,
        };
        let forwarded = ForwardedHeaders::new(headers, peer, &forwarding);
        let upgrade = leg
            .upgrade
            .filter(|protocol| head.version == Version::HTTP_11 && hop::is_websocket(protocol));
        if let Some(protocol) = &upgrade {
            hop::put_upgrade(headers, protocol.clone());
        }
        let mut body = match progress {
            // gRPC needs HTTP/2; over HTTP/1 the content type would bypass the minimum rate.
            Some(_)
                if upgrade.is_none()
                    && !(head.version == Version::HTTP_2 && hop::is_grpc(headers)) =>
            {
                body.at_least(self.gateway.body_rate)
            }
            _ => body,
        };
        if headers.contains_key(TRAILER) {
            let refuses = |name: &_| self.layer.refuses_trailer(name);
            body.forward_trailers(hop::announce_trailers(headers, refuses));
        }
        head.version = Version::HTTP_11;
        if route.config.strips_prefix {
            let slashes = self.gateway.screen.slashes();
            head.uri = without_prefix(&head.uri, &route.config.prefix, (&path, slashes))?;
        }
        Ok(OutgoingRequest {
            head,
            forwarded,
            body,
            route,
            progress,
            upgrade,
            client,
            holding,
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
                    tried.push(upstream.index);
                }
            }
            upstream.count_retry();
        }
    }
}
