//! One attempt to forward a request: gets a connection, sends the request, reads the answer, and decides whether
//! a failed attempt may be retried.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response, StatusCode, Version, response};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use tidegate_listen::clock::now;
use tidegate_listen::stall::Deadline;
use tidegate_tower::MeasuredFrom;
use tokio::time::timeout;

use crate::body::{AnswerBody, BodySource, UpstreamBody};
use crate::capacity::Shortage;
use crate::connect::{Connected, send_http2};
use crate::failure::GatewayFailure;
use crate::forward::OutgoingRequest;
use crate::hop;
use crate::http1::Http1;
use crate::request_body::{Progress, RequestBody};
use crate::rewrite::{for_http2, other_host};
use crate::tunnel::ServerEnd;
use crate::upstream::{ForwardResult, Upstream};
use crate::upstream_url::UpstreamScheme;
use crate::worker::{InFlight, Worker};

/// The result of one attempt.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all attempts are answered, and a box would cost each of them an allocation"
)]
pub(crate) enum Tried {
    Answered(Response<AnswerBody>),
    /// It failed and may be retried, on another server if there is one.
    Again(GatewayFailure),
    /// Nothing was sent, because the pooled connection was stale.
    Stale(GatewayFailure),
    Failed(GatewayFailure),
    /// No connection is available, which is not the server's fault.
    Refused(GatewayFailure),
}

impl Worker {
    fn refuse(&self, shortage: Shortage) -> Tried {
        self.gateway.capacity.refuse(shortage);
        Tried::Refused(GatewayFailure::NoConnection(shortage))
    }
}

impl OutgoingRequest<'_> {
    /// Whether it may be sent twice: its method is idempotent and it has no body.
    fn is_repeatable(&self) -> bool {
        self.head.method.is_idempotent() && self.progress.is_none() && self.upgrade.is_none()
    }

    /// Sends the request to a server, and waits for the head of the answer.
    pub(crate) async fn attempt(
        &mut self,
        worker: &Arc<Worker>,
        upstream: &Upstream,
        must_be_new: bool,
    ) -> Tried {
        let mut in_flight = InFlight::begin(worker, upstream);
        let connection = self.connection(worker, upstream, must_be_new, &mut in_flight);
        let (connection, is_new) = match connection.await {
            Ok(connection) => connection,
            Err(tried) => return tried,
        };
        let start = now();
        let (head, source) = match connection {
            Connected::Http1(mut connection) => {
                match self.ask_http1(&mut connection, upstream, is_new).await {
                    Ok(head) => (head, BodySource::Http1(connection)),
                    Err(tried) => return tried,
                }
            }
            // Boxed, because most requests do not take this path.
            Connected::Http2(sender) => {
                match Box::pin(self.ask_http2(sender, upstream, is_new)).await {
                    Ok(answer) => {
                        let (head, incoming) = answer.into_parts();
                        (head, BodySource::Http2(incoming))
                    }
                    Err(tried) => return tried,
                }
            }
        };
        upstream.health.succeeded();
        upstream.answered_after(start.elapsed());
        upstream.count(ForwardResult::from_status(head.status));
        self.answer(head, source, in_flight)
    }

    async fn ask_http1(
        &mut self,
        connection: &mut Http1,
        upstream: &Upstream,
        is_new: bool,
    ) -> Result<response::Parts, Tried> {
        let host = other_host(&self.head.headers, upstream, self.route);
        let body = std::mem::take(&mut self.body);
        connection.begin(&self.head, host, Some(&self.forwarded), body);
        let mut deadline = std::mem::take(&mut connection.deadline);
        let answer = self
            .in_time(&mut deadline, |cx| connection.poll_answer(cx))
            .await;
        connection.deadline = deadline;
        let failure = match answer {
            Ok(Ok(head)) => return Ok(head),
            Ok(Err(broken)) => GatewayFailure::of_http1(broken),
            Err(failure) => return Err(Tried::Failed(failure)),
        };
        if matches!(
            failure,
            GatewayFailure::BrokenBody | GatewayFailure::SlowClient
        ) {
            return Err(Tried::Failed(failure));
        }
        if let Some(body) = connection.take_back() {
            self.body = body;
            return Err(if is_new {
                Tried::Again(failure)
            } else {
                Tried::Stale(failure)
            });
        }
        // A server that sent any bytes may have acted on the request.
        if self.is_repeatable() && !connection.has_received {
            return Err(Tried::Again(failure));
        }
        Err(Tried::Failed(failure))
    }

    async fn ask_http2(
        &mut self,
        mut sender: http2::SendRequest<RequestBody>,
        upstream: &Upstream,
        is_new: bool,
    ) -> Result<Response<Incoming>, Tried> {
        let mut head = self.head.clone();
        self.forwarded.put_into(&mut head.headers);
        let request = Request::from_parts(head, std::mem::take(&mut self.body));
        let request = for_http2(request, upstream, self.route).map_err(Tried::Failed)?;
        let mut sending = std::pin::pin!(send_http2(&mut sender, request));
        let answer = self
            .in_time(&mut Deadline::default(), |cx| sending.as_mut().poll(cx))
            .await;
        let mut error = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(failure) => return Err(Tried::Failed(failure)),
        };
        let unsent = error.take_message();
        let error = error.into_error();
        // Part of an answer has arrived.
        let is_answered = error.is_parse();
        let failure = GatewayFailure::of_http2(error);
        if self.progress.as_ref().is_some_and(|sent| sent.is_slow()) {
            return Err(Tried::Failed(GatewayFailure::SlowClient));
        }
        Err(match unsent {
            Some(unsent) => {
                self.body = unsent.into_body();
                if is_new {
                    Tried::Again(failure)
                } else {
                    Tried::Stale(failure)
                }
            }
            None if self.is_repeatable() && !is_answered => Tried::Again(failure),
            None => Tried::Failed(failure),
        })
    }

    /// Gets a connection to a server, and whether it is new.
    async fn connection(
        &self,
        worker: &Worker,
        upstream: &Upstream,
        must_be_new: bool,
        in_flight: &mut InFlight,
    ) -> Result<(Connected, bool), Tried> {
        if !must_be_new && let Some(connection) = self.shared_connection(worker, upstream) {
            return Ok((connection, false));
        }
        if !in_flight.take_connection(self.client) {
            return Err(worker.refuse(Shortage::Client));
        }
        if !must_be_new && let Some(connection) = worker.pool.take_http1(upstream) {
            return Ok((Connected::Http1(connection), false));
        }
        // Boxed, because the state of a handshake is large, and few requests need one.
        let connection = Box::pin(self.new_connection(worker, upstream)).await?;
        if matches!(connection, Connected::Http2(_)) {
            in_flight.give_connection_back();
        }
        Ok((connection, true))
    }

    fn shared_connection(&self, worker: &Worker, upstream: &Upstream) -> Option<Connected> {
        if self.upgrade.is_some() || upstream.url.scheme == UpstreamScheme::Http {
            return None;
        }
        worker.pool.http2(upstream).map(Connected::Http2)
    }

    async fn new_connection(
        &self,
        worker: &Worker,
        upstream: &Upstream,
    ) -> Result<Connected, Tried> {
        let needs_http1 = self.upgrade.is_some();
        let given_up = GivenUp(Some(upstream));
        let Some(counted) = worker.gateway.open_connection() else {
            return Err(worker.refuse(Shortage::All));
        };
        let connector = &worker.gateway.connector;
        let connecting = connector.connect(upstream, needs_http1, Some(counted));
        let connected = timeout(self.route.config.connect_timeout, connecting).await;
        if let Ok(Err(error)) = &connected
            && let Some(shortage) = Shortage::from_error(error)
        {
            return Err(worker.refuse(shortage));
        }
        given_up.has_ended();
        let failure = match connected {
            Ok(Ok(connected)) => {
                upstream.health.succeeded();
                if let Connected::Http2(sender) = &connected {
                    worker.pool.keep_http2(upstream.index, sender.clone());
                }
                return Ok(connected);
            }
            Ok(Err(error)) => GatewayFailure::Unreachable(error),
            Err(_) => GatewayFailure::SlowConnection,
        };
        upstream.health.failed();
        // Nothing was sent yet.
        Err(Tried::Again(failure))
    }

    /// Waits for an answer within the route's timeout, counted from the last bytes that the client sent.
    async fn in_time<T>(
        &self,
        deadline: &mut Deadline,
        mut answer: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, GatewayFailure> {
        let timeout = self.route.config.timeout;
        let progress = self.progress.as_deref();
        let mut before = progress.map_or(0, Progress::frames);
        deadline.set(timeout);
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer(cx) {
                return Poll::Ready(Ok(answer));
            }
            loop {
                ready!(deadline.poll(cx));
                let frames = progress.map_or(0, Progress::frames);
                if frames == before {
                    break;
                }
                before = frames;
                deadline.set(timeout);
            }
            let is_client_slow = progress.is_some_and(Progress::is_awaited);
            Poll::Ready(Err(if progress.is_some_and(Progress::is_broken) {
                GatewayFailure::BrokenBody
            } else if is_client_slow {
                GatewayFailure::SlowClient
            } else {
                GatewayFailure::SlowAnswer
            }))
        })
        .await
    }

    fn answer(
        &mut self,
        mut head: response::Parts,
        source: BodySource,
        in_flight: InFlight,
    ) -> Tried {
        // The HTTP version of the server does not concern the client.
        head.version = Version::HTTP_11;
        let patience: Duration = self.route.config.idle_timeout;
        if !hop::has_one_length(&head.headers) {
            return Tried::Failed(GatewayFailure::TwoLengths);
        }
        let leg = hop::strip(&mut head.headers);
        head.extensions.clear();
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            let ended = self.progress.as_ref().and_then(|sent| sent.ended());
            if let Some(ended) = ended {
                head.extensions.insert(MeasuredFrom(ended));
            }
            let holding = self.holding.take();
            let body = UpstreamBody::new(source, in_flight, patience, holding);
            return Tried::Answered(Response::from_parts(head, Either::Left(body)));
        }
        let (Some(_), BodySource::Http1(connection)) = (&self.upgrade, source) else {
            return Tried::Failed(GatewayFailure::UnwantedUpgrade);
        };
        // The rest of the request would be read as the other protocol.
        if !connection.has_sent_all() {
            return Tried::Failed(GatewayFailure::UnwantedUpgrade);
        }
        if let Some(protocol) = leg.upgrade {
            hop::put_upgrade(&mut head.headers, protocol);
        }
        let tunnel = connection.into_tunnel();
        let holding = self.holding.as_ref();
        let permit = holding.map(|holding| holding.permit.clone());
        head.extensions
            .insert(ServerEnd::new(tunnel, patience, permit));
        let body = UpstreamBody::of_tunnel(in_flight);
        Tried::Answered(Response::from_parts(head, Either::Left(body)))
    }
}

/// Reports a dropped connection attempt to a server's health.
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
