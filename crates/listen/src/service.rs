//! The service of one connection: adds the id to each request, passes on the peer, and records requests in progress.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use pin_project_lite::pin_project;

use crate::Peer;
use crate::connection_state::{ConnectionState, RequestGuard};
use crate::exchange::{Exchange, Exchanges, Observing};
use crate::leaving::BoxError;
use crate::request_id::X_REQUEST_ID;

/// Answers requests. Implemented by the functions of a request and its peer that return a future of the answer.
pub trait Handler:
    Fn(Request<Incoming>, Peer) -> <Self as Handler>::Answer + Clone + Send + 'static
{
    /// The future of an answer.
    type Answer: Future<Output = Result<Response<Self::Body>, Self::Error>> + Send + 'static;
    /// The body of an answer.
    type Body: Body<Data: Send, Error: Into<BoxError>> + Send + 'static;
    /// Why there is no answer.
    type Error: Into<BoxError>;
}

impl<S, F, B, E> Handler for S
where
    S: Fn(Request<Incoming>, Peer) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    E: Into<BoxError>,
{
    type Answer = F;
    type Body = B;
    type Error = E;
}

/// A front end's service, for one connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionService<S> {
    pub(crate) service: S,
    pub(crate) peer: Peer,
    pub(crate) state: Arc<ConnectionState>,
    pub(crate) exchanges: Option<Exchanges>,
}

impl<S: Handler> hyper::service::Service<Request<Incoming>> for ConnectionService<S> {
    type Response = Response<TrackedBody<S::Body>>;
    type Error = S::Error;
    type Future = TrackedResponse<S::Answer>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let exchanges = self.exchanges.as_ref();
        let exchange = exchanges.map(|exchanges| exchanges.begin(&mut request, self.peer));
        let in_flight = Some(RequestGuard::begin(&self.state));
        TrackedResponse {
            answer: (self.service)(request, self.peer),
            exchange,
            in_flight,
        }
    }
}

pin_project! {
    /// The future of an answer.
    pub(crate) struct TrackedResponse<F> {
        // Dropped before what observes it: what it reports then still counts.
        #[pin]
        answer: F,
        exchange: Option<Exchange>,
        in_flight: Option<RequestGuard>,
    }
}

impl<F, B, E> Future for TrackedResponse<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<TrackedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let observing = this
            .exchange
            .as_ref()
            .and_then(|exchange| exchange.observing.as_ref());
        let polled = match observing {
            Some(observing) => observing.step(|| this.answer.poll(cx)),
            None => this.answer.poll(cx),
        };
        let mut response = ready!(polled)?;
        let mut observing = None;
        if let Some(exchange) = this.exchange.take() {
            if let Some(id) = exchange.id {
                response.headers_mut().insert(&X_REQUEST_ID, id);
            }
            observing = exchange.observing;
        }
        if let Some(observing) = &mut observing {
            observing.answered(response.status());
        }
        let in_flight = this.in_flight.take();
        if in_flight
            .as_ref()
            .is_some_and(|request| request.state().says_close())
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        if let Some(request) = &in_flight
            && response.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            request.state().becomes_tunnel();
        }
        Poll::Ready(Ok(response.map(|body| TrackedBody {
            body,
            observing,
            in_flight,
        })))
    }
}

pin_project! {
    /// The body of an answer; the request is in progress until it is dropped.
    pub(crate) struct TrackedBody<B> {
        // Dropped before what observes it: what it reports then still counts.
        #[pin]
        body: B,
        observing: Option<Observing>,
        in_flight: Option<RequestGuard>,
    }
}

impl<B: Body> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let polled = this.body.poll_frame(cx);
        if let Some(observing) = this.observing
            && let Poll::Ready(Some(Ok(frame))) = &polled
        {
            let bytes = frame.data_ref().map_or(0, Buf::remaining);
            observing.bytes = observing.bytes.saturating_add(bytes as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
