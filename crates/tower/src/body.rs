//! The body of an answer: the service's own, or one made here.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::hold::RequestPermit;

pin_project! {
    /// The body of an answer. Permits of the request are released when it ends, fails or is
    /// dropped.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
        tail: Tail,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Bytes { bytes: Bytes },
    }
}

/// The work that is left when a body is done.
#[derive(Default)]
pub(crate) struct Tail {
    hold: Option<RequestPermit>,
    at_the_end: Option<AtTheEnd>,
    bytes: u64,
}

/// Hears how many bytes were sent.
type AtTheEnd = Box<dyn FnOnce(u64) + Send + Sync>;

impl Tail {
    pub(crate) fn new(hold: Option<RequestPermit>, at_the_end: Option<AtTheEnd>) -> Self {
        Self {
            hold,
            at_the_end,
            bytes: 0,
        }
    }

    fn end(&mut self) {
        self.hold = None;
        if let Some(at_the_end) = self.at_the_end.take() {
            at_the_end(self.bytes);
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail")
            .field("hold", &self.hold)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn new(body: B, tail: Tail) -> Self {
        let kind = Kind::Inner { body };
        Self { kind, tail }
    }

    pub(crate) fn of_bytes(bytes: Bytes) -> Self {
        let kind = Kind::Bytes { bytes };
        Self {
            kind,
            tail: Tail::default(),
        }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let body = match this.kind.project() {
            KindProjection::Inner { body } => body,
            KindProjection::Bytes { bytes } if bytes.is_empty() => return Poll::Ready(None),
            KindProjection::Bytes { bytes } => {
                let data = B::Data::from(std::mem::take(bytes));
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        };
        let frame = ready!(body.poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                let sent = frame.data_ref().map_or(0, Buf::remaining);
                this.tail.bytes = this.tail.bytes.saturating_add(sent as u64);
            }
            Some(Err(_)) | None => this.tail.end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Bytes { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Bytes { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
