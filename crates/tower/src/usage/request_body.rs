//! The body of a request: held, because it was read before the request was decided, or as it comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a request that a [`UsageLayer`](crate::UsageLayer) passes on.
    #[derive(Debug)]
    pub struct ModelRequestBody<B> {
        #[pin]
        kind: BodyKind<B>,
    }
}

pin_project! {
    #[project = BodyKindProjection]
    #[derive(Debug)]
    enum BodyKind<B> {
        Held { bytes: Bytes, trailers: Option<HeaderMap> },
        Arriving { #[pin] body: B },
    }
}

impl<B> ModelRequestBody<B> {
    pub(super) fn held(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        let kind = BodyKind::Held { bytes, trailers };
        Self { kind }
    }

    pub(super) fn arriving(body: B) -> Self {
        let kind = BodyKind::Arriving { body };
        Self { kind }
    }
}

impl<B: Body<Data = Bytes>> Body for ModelRequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            BodyKindProjection::Arriving { body } => body.poll_frame(context),
            BodyKindProjection::Held { bytes, trailers } => {
                let data = (!bytes.is_empty()).then(|| Frame::data(std::mem::take(bytes)));
                let frame = data.or_else(|| trailers.take().map(Frame::trailers));
                Poll::Ready(frame.map(Ok))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Arriving { body } => body.is_end_stream(),
            BodyKind::Held { bytes, trailers } => bytes.is_empty() && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Arriving { body } => body.size_hint(),
            BodyKind::Held { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
