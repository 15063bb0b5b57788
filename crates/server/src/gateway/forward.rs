//! The road of a request that was let through: a route, a server, a connection, the answer. And which
//! requests are sent again when that fails.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::header::HOST;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use quanta::Instant;
use tidegate::path::normalise;
use tidegate_tower::{MeasuredFrom, Unmeasured};
use tokio::time::timeout;

use super::body::{AnswerBody, UpstreamBody};
use super::connect::{Connected, send_http2};
use super::failure::Failure;
use super::pool::{Pool, Return};
use super::request_body::{Progress, RequestBody};
use super::rewrite::{copy, for_http1, for_http2, without_prefix};
use super::route::Route;
use super::upstream::{InFlight, Outcome, Upstream, pick};
use super::{Gateway, forwarded, hop};
use crate::config::UpstreamScheme;
use crate::listen::Peer;

/// What one worker forwards with.
#[derive(Clone)]
pub(super) struct Lane {
    pub(super) gateway: Arc<Gateway>,
    pub(super) pool: Arc<Pool>,
}

/// Whose turn it is among servers that have the same to do.
static TURN: AtomicUsize = AtomicUsize::new(0);

/// Sends a request on, and answers with what comes back.
pub(super) async fn forward(
    lane: Lane,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    let answered = match lane.prepare(request) {
        Ok(errand) => errand.run(&lane).await,
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
struct Errand {
    request: Request<RequestBody>,
    route: Arc<Route>,
    progress: Option<Arc<Progress>>,
    upgrade: Option<HeaderValue>,
    /// Whether it may be sent twice: its method does the same twice as once, and it has no body.
    is_repeatable: bool,
}

/// How one try ended.
enum Tried {
    Answered(Response<AnswerBody>),
    /// It may be sent again, to another server if there is one.
    Again(Failure, Request<RequestBody>),
    /// Nothing of it has left, because the connection was old.
    Stale(Failure, Request<RequestBody>),
    Failed(Failure),
}

impl Lane {
    fn prepare(&self, request: Request<Incoming>) -> Result<Errand, Failure> {
        let (mut parts, body) = request.into_parts();
        let routes = &self.gateway.routes;
        let route = if let Some(route) = routes.only() {
            route
        } else {
            let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
            let slashes = self.gateway.encoded_slashes.unwrap_or_default();
            let path = normalise(parts.uri.path(), slashes).unwrap_or_default();
            let found = routes.find(host.unwrap_or_default(), &path);
            found.ok_or(Failure::NoRoute)?
        };
        let peer = parts.extensions.get::<Peer>().copied();
        parts.extensions.clear();
        let (body, progress) = RequestBody::of(body);
        let headers = &mut parts.headers;
        let leg = hop::strip(headers);
        if let Some(Peer(peer)) = peer {
            let gateway = &self.gateway;
            forwarded::write(headers, peer.ip(), &gateway.trusted_proxies, gateway.is_tls);
        }
        let upgrade = leg
            .upgrade
            .filter(|protocol| parts.version == Version::HTTP_11 && !hop::names_http2(protocol));
        if let Some(protocol) = &upgrade {
            hop::put_upgrade(headers, protocol.clone());
        }
        parts.version = Version::HTTP_11;
        if route.config.strips_prefix {
            let slashes = self.gateway.encoded_slashes.unwrap_or_default();
            parts.uri = without_prefix(&parts.uri, &route.config.prefix, slashes)?;
        }
        Ok(Errand {
            is_repeatable: parts.method.is_idempotent() && progress.is_none() && upgrade.is_none(),
            request: Request::from_parts(parts, body),
            route: Arc::clone(route),
            progress,
            upgrade,
        })
    }
}

impl Errand {
    async fn run(mut self, lane: &Lane) -> Result<Response<AnswerBody>, Failure> {
        let mut retries = self.route.config.retries;
        let mut tried: Vec<usize> = Vec::new();
        let mut must_be_new = false;
        let mut last = Failure::NoneUp;
        let mut request = std::mem::replace(&mut self.request, Request::new(RequestBody::None));
        loop {
            let route = Arc::clone(&self.route);
            let upstreams = &route.upstreams;
            // All were tried: again from the beginning.
            if !tried.is_empty() && tried.len() >= upstreams.len() {
                tried.clear();
            }
            let Some(upstream) = pick(upstreams, &tried, &TURN) else {
                return Err(last);
            };
            let again = match self.attempt(lane, upstream, request, must_be_new).await {
                Tried::Answered(answer) => return Ok(answer),
                Tried::Failed(failure) => {
                    upstream.count(Outcome::Failed);
                    return Err(failure);
                }
                Tried::Stale(failure, again) if !must_be_new => {
                    last = failure;
                    must_be_new = true;
                    again
                }
                Tried::Again(failure, again) | Tried::Stale(failure, again) => {
                    upstream.count(Outcome::Failed);
                    if retries == 0 {
                        return Err(failure);
                    }
                    retries -= 1;
                    last = failure;
                    must_be_new = true;
                    tried.push(upstream.place);
                    again
                }
            };
            upstream.count_retry();
            request = again;
        }
    }

    async fn attempt(
        &self,
        lane: &Lane,
        upstream: &Arc<Upstream>,
        request: Request<RequestBody>,
        must_be_new: bool,
    ) -> Tried {
        let in_flight = InFlight::begin(upstream);
        let (connection, is_new) = match self.connection(lane, upstream, must_be_new).await {
            Ok(connection) => connection,
            // Nothing has left yet.
            Err(failure) => return Tried::Again(failure, request),
        };
        let copy = self.is_repeatable.then(|| copy(&request));
        let start = Instant::now();
        let (sent, link) = match connection {
            Connected::Http1(mut connection) => {
                let request = for_http1(request, upstream, &self.route);
                let sent = self.in_time(connection.send(request)).await;
                (sent, Some(connection))
            }
            Connected::Http2(mut sender) => {
                let request = match for_http2(request, upstream, &self.route) {
                    Ok(request) => request,
                    Err(failure) => return Tried::Failed(failure),
                };
                (self.in_time(send_http2(&mut sender, request)).await, None)
            }
        };
        let answer = match sent {
            Ok(Ok(answer)) => answer,
            Ok(Err(mut error)) => {
                let unsent = error.take_message();
                let error = error.into_error();
                // Something of an answer has come.
                let is_answered = error.is_parse();
                let failure = Failure::of(error);
                return match (unsent, copy) {
                    (Some(unsent), _) if is_new => Tried::Again(failure, unsent),
                    (Some(unsent), _) => Tried::Stale(failure, unsent),
                    (None, Some(copy)) if !is_answered => Tried::Again(failure, copy),
                    (None, _) => Tried::Failed(failure),
                };
            }
            Err(failure) => return Tried::Failed(failure),
        };
        upstream.health.succeeded();
        upstream.answered_after(start.elapsed());
        upstream.count(Outcome::of(answer.status()));
        let link = link.map(|connection| Return {
            pool: Arc::clone(&lane.pool),
            place: upstream.place,
            connection,
        });
        self.answer(answer, link, in_flight)
    }

    /// A connection to a server, and whether it is new.
    async fn connection(
        &self,
        lane: &Lane,
        upstream: &Upstream,
        must_be_new: bool,
    ) -> Result<(Connected, bool), Failure> {
        let needs_http1 = self.upgrade.is_some();
        if !must_be_new {
            if !needs_http1
                && upstream.url.scheme != UpstreamScheme::Http
                && let Some(sender) = lane.pool.http2(upstream)
            {
                return Ok((Connected::Http2(sender), false));
            }
            if let Some(connection) = lane.pool.take_http1(upstream) {
                return Ok((Connected::Http1(connection), false));
            }
        }
        let given_up = GivenUp(Some(upstream));
        let connecting = lane.gateway.connector.connect(upstream, needs_http1);
        let connected = timeout(self.route.config.connect_timeout, connecting).await;
        given_up.has_ended();
        let failure = match connected {
            Ok(Ok(connected)) => {
                upstream.health.succeeded();
                if let Connected::Http2(sender) = &connected {
                    lane.pool.keep_http2(upstream.place, sender.clone());
                }
                return Ok((connected, true));
            }
            Ok(Err(error)) => Failure::Unreachable(error),
            Err(_) => Failure::SlowConnection,
        };
        upstream.health.failed();
        Err(failure)
    }

    /// Waits for an answer for as long as the route says, counted from the last that the client sent.
    async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, Failure> {
        let mut answer = std::pin::pin!(answer);
        let frames = || {
            self.progress
                .as_ref()
                .map_or(0, |progress| progress.frames())
        };
        let mut before = frames();
        loop {
            if let Ok(answer) = timeout(self.route.config.timeout, &mut answer).await {
                return Ok(answer);
            }
            let is_waiting_for_client = self
                .progress
                .as_ref()
                .is_some_and(|progress| progress.is_awaited());
            if before != frames() {
                before = frames();
            } else if is_waiting_for_client {
                return Err(Failure::SlowClient);
            } else {
                return Err(Failure::SlowAnswer);
            }
        }
    }

    fn answer(
        &self,
        answer: Response<Incoming>,
        link: Option<Return>,
        in_flight: InFlight,
    ) -> Tried {
        let (mut head, incoming) = answer.into_parts();
        // Which version the server speaks is between it and this gateway.
        head.version = Version::HTTP_11;
        let patience: Duration = self.route.config.idle_timeout;
        if !hop::has_one_length(&head.headers) {
            return Tried::Failed(Failure::TwoLengths);
        }
        let leg = hop::strip(&mut head.headers);
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            head.extensions.clear();
            let ended = self.progress.as_ref().and_then(|sent| sent.ended());
            if let Some(ended) = ended {
                head.extensions.insert(MeasuredFrom(ended));
            }
            let body = UpstreamBody::new(incoming, link, in_flight, patience);
            return Tried::Answered(Response::from_parts(head, AnswerBody::Upstream(body)));
        }
        let (Some(_), Some(link)) = (&self.upgrade, link) else {
            return Tried::Failed(Failure::UnwantedUpgrade);
        };
        if let Some(protocol) = leg.upgrade {
            hop::put_upgrade(&mut head.headers, protocol);
        }
        head.extensions.insert(super::tunnel::Patience(patience));
        link.connection.let_go();
        let body = UpstreamBody::of_tunnel(incoming, in_flight);
        Tried::Answered(Response::from_parts(head, AnswerBody::Upstream(body)))
    }
}

/// Tells a server's health when a try to reach it is dropped.
struct GivenUp<'u>(Option<&'u Upstream>);

impl GivenUp<'_> {
    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if let Some(upstream) = self.0 {
            upstream.health.given_up();
        }
    }
}
