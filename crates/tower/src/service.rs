//! The service that a layer makes of another.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tidegate::Gate;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::future::{RequestHandler, ResponseFuture};
use crate::settings::Settings;

/// A service that is called only for requests that may go on. Made by
/// [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone)]
pub struct RateLimit<Inner> {
    handler: Arc<RequestHandler>,
    inner: Inner,
}

impl<Inner> RateLimit<Inner> {
    pub(crate) fn new(gate: Arc<Gate>, settings: Arc<Settings>, inner: Inner) -> Self {
        let handler = Arc::new(RequestHandler { gate, settings });
        Self { handler, inner }
    }

    /// The service behind it.
    pub fn get_ref(&self) -> &Inner {
        &self.inner
    }
}

impl<Inner, B, R> Service<Request<B>> for RateLimit<Inner>
where
    Inner: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    Inner::Future: Send,
    B: Send + 'static,
    R: Body + Send + 'static,
    R::Data: From<Bytes>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = Inner::Error;
    type Future = ResponseFuture<R, Inner::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled is ready; its clone waits for the next call.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        ResponseFuture::new(Arc::clone(&self.handler).handle(inner, request))
    }
}

impl<Inner: fmt::Debug> fmt::Debug for RateLimit<Inner> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
