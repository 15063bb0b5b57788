//! The path of a request that was let through: a route, a server, and another one if that fails.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use http::{HeaderValue, Request, Response, Version, request};
use hyper::body::Incoming;
use tidegate_tower::Unmeasured;

use crate::attempt::Tried;
use crate::body::AnswerBody;
use crate::capacity::ClientCounter;
use crate::failure::Failure;
use crate::forwarded::{ForwardedHeaders, Forwarding};
use crate::hop;
use crate::request_body::{Progress, RequestBody};
use crate::rewrite::without_prefix;
use crate::route::Route;
use crate::screen::Screened;
use crate::upstream::{Outcome, pick};
use crate::worker::Worker;

/// Whose turn it is among servers that have the same to do.
static TURN: AtomicUsize = AtomicUsize::new(0);

/// Sends a request on, and answers with what comes back.
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

/// A request that is ready to be sent, and what is known about it.
pub(crate) struct OutgoingRequest<'l> {
    pub(crate) head: request::Parts,
    /// What the server gets to know of the client.
    pub(crate) forwarded: ForwardedHeaders,
    pub(crate) body: RequestBody,
    pub(crate) route: &'l Route,
    /// How far its body has come, if it has one.
    pub(crate) progress: Option<Arc<Progress>>,
    /// The protocol that it asks to change to.
    pub(crate) upgrade: Option<HeaderValue>,
    /// Where connections of its client are counted.
    pub(crate) client: ClientCounter,
}

impl Worker {
    fn prepare(&self, request: Request<Incoming>) -> Result<OutgoingRequest<'_>, Failure> {
        let (mut head, body) = request.into_parts();
        let screened = head.extensions.remove::<Screened>();
        let screened = screened.ok_or(Failure::NoRoute)?;
        head.extensions.clear();
        let route = screened
            .route
            .and_then(|index| self.gateway.routes.get(index));
        let route = route.ok_or(Failure::NoRoute)?;
        let Screened {
            peer, client, path, ..
        } = screened;
        // A request whose client is not known was refused before.
        let client = self.gateway.capacity.counter(client.unwrap_or(peer));
        let (body, progress) = RequestBody::of(body);
        let headers = &mut head.headers;
        let leg = hop::strip(headers);
        let forwarding = Forwarding {
            trusted_proxies: self.gateway.identity.trusted_proxies(),
            header: self.gateway.identity.forwarded_header(),
            is_tls: self.gateway.is_tls,
        };
        let forwarded = ForwardedHeaders::of(headers, peer, &forwarding);
        let upgrade = leg
            .upgrade
            .filter(|protocol| head.version == Version::HTTP_11 && !hop::names_http2(protocol));
        if let Some(protocol) = &upgrade {
            hop::put_upgrade(headers, protocol.clone());
        }
        let body = match progress {
            // gRPC needs HTTP/2; over HTTP/1 the word would be a way around the rate.
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
        })
    }
}

impl OutgoingRequest<'_> {
    async fn run(&mut self, worker: &Arc<Worker>) -> Result<Response<AnswerBody>, Failure> {
        let route = self.route;
        let mut retries = route.config.retries;
        let mut tried: Vec<usize> = Vec::new();
        let mut must_be_new = false;
        let mut last = Failure::NoneUp;
        loop {
            // All were tried: again from the beginning.
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
                    upstream.count(Outcome::Failed);
                    return Err(failure);
                }
                Tried::Stale(failure) if !must_be_new => {
                    last = failure;
                    must_be_new = true;
                }
                Tried::Again(failure) | Tried::Stale(failure) => {
                    upstream.count(Outcome::Failed);
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
