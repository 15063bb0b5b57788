//! The body of a request: what was read before the request was decided, and the rest as it comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::ModelBody;

pin_project! {
    /// The body of a request that a [`UsageLayer`](crate::UsageLayer) passes on.
    #[derive(Debug)]
    pub struct ModelRequestBody<B> {
        held: Bytes,
        #[pin]
        rest: Option<B>,
        // Those that were read with the whole body.
        trailers: Option<HeaderMap>,
    }
}

impl<B> ModelRequestBody<B> {
    pub(super) fn held(body: ModelBody) -> Self {
        let (held, trailers) = body.into_parts();
        Self {
            held,
            rest: None,
            trailers,
        }
    }

    pub(super) fn arriving(held: Bytes, rest: B) -> Self {
        Self {
            held,
            rest: Some(rest),
            trailers: None,
        }
    }
}

impl<B: Body<Data = Bytes>> Body for ModelRequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if !this.held.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(this.held)))));
        }
        match this.rest.as_pin_mut() {
            Some(rest) => rest.poll_frame(context),
            None => Poll::Ready(
                this.trailers
                    .take()
                    .map(|trailers| Ok(Frame::trailers(trailers))),
            ),
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_end = self.rest.as_ref().is_none_or(Body::is_end_stream);
        self.held.is_empty() && self.trailers.is_none() && is_end
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.len() as u64;
        let rest = self.rest.as_ref().map(Body::size_hint);
        let Some(rest) = rest else {
            return SizeHint::with_exact(held);
        };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(held));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}
