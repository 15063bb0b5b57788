//! The service of one connection: adds the peer to each request, and records requests in progress. Allocates
//! nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use pin_project_lite::pin_project;
use tower::ServiceExt;
use tower::util::Oneshot;

use crate::Peer;
use crate::activity::{Activity, RequestGuard};

/// A front end's service, for one connection.
#[derive(Debug)]
pub(crate) struct ConnectionService<S> {
    pub(crate) service: S,
    pub(crate) peer: Peer,
    pub(crate) activity: Arc<Activity>,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for ConnectionService<S>
where
    S: tower::Service<Request<Incoming>, Response = Response<B>> + Clone,
{
    type Response = Response<TrackedBody<B>>;
    type Error = S::Error;
    type Future = TrackedResponse<Oneshot<S, Request<Incoming>>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        TrackedResponse {
            in_flight: Some(RequestGuard::begin(&self.activity)),
            answer: self.service.clone().oneshot(request),
        }
    }
}

pin_project! {
    /// The future of an answer.
    pub(crate) struct TrackedResponse<F> {
        in_flight: Option<RequestGuard>,
        #[pin]
        answer: F,
    }
}

impl<F, B, E> Future for TrackedResponse<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<TrackedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.answer.poll(cx))?;
        let in_flight = this.in_flight.take();
        if in_flight
            .as_ref()
            .is_some_and(|request| request.activity().says_close())
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        if let Some(request) = &in_flight
            && response.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            request.activity().becomes_tunnel();
        }
        Poll::Ready(Ok(response.map(|body| TrackedBody { in_flight, body })))
    }
}

pin_project! {
    /// The body of an answer; the request is in progress until it is dropped.
    pub(crate) struct TrackedBody<B> {
        in_flight: Option<RequestGuard>,
        #[pin]
        body: B,
    }
}

impl<B: Body> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
