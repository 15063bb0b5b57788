//! The body of an answer, forwarded to the client. If the client has left: `abandoned.rs`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tidegate_listen::stall::{Stall, Stalled};

use crate::abandoned::HeldRequest;
use crate::http1::{Broken, Http1};
use crate::worker::InFlight;

/// The body of an answer: of a server, or of this gateway.
pub(crate) type AnswerBody = Either<UpstreamBody, Full<Bytes>>;

/// Why an answer ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the server behind the gateway broke off: {0}")]
    Http1(#[from] Broken),
    #[error("the server behind the gateway broke off: {0}")]
    Http2(#[from] hyper::Error),
    #[error("the server behind the gateway was silent for too long")]
    Silent,
}

/// A server's body as it arrives. At its end the connection returns to the pool; if the body is dropped
/// before, the connection is closed, or the rest is read in the background if the request holds a permit.
pub(crate) struct UpstreamBody {
    pub(crate) source: BodySource,
    /// Until the end of the answer.
    in_flight: Option<InFlight>,
    silence: Stall,
    /// The error to report after the client got everything before it.
    broken: Option<Box<BodyError>>,
    /// Until the end of the answer, if its request holds a permit.
    held: Option<Box<HeldRequest>>,
}

/// Where a body comes from.
pub(crate) enum BodySource {
    Http1(Box<Http1>),
    Http2(Incoming),
    Ended,
}

impl BodySource {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Http1(connection) => connection.poll_body(cx).map_err(BodyError::Http1),
            Self::Http2(incoming) => Pin::new(incoming).poll_frame(cx).map_err(BodyError::Http2),
            Self::Ended => Poll::Ready(None),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_end(),
            Self::Http2(incoming) => incoming.is_end_stream(),
            Self::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(connection) => connection.size_hint(),
            Self::Http2(incoming) => incoming.size_hint(),
            Self::Ended => SizeHint::with_exact(0),
        }
    }
}

impl UpstreamBody {
    pub(crate) fn new(
        source: BodySource,
        in_flight: InFlight,
        timeout: Duration,
        held: Option<Box<HeldRequest>>,
    ) -> Self {
        let mut body = Self::of(source, Some(in_flight), Stall::new(timeout));
        body.held = held;
        if body.source.is_end() {
            body.end();
        }
        body
    }

    /// Moves the rest of the body out, to be read without the client.
    fn abandon(&mut self) -> Self {
        let source = std::mem::replace(&mut self.source, BodySource::Ended);
        let silence = std::mem::replace(&mut self.silence, Stall::new(Duration::MAX));
        Self::of(source, self.in_flight.take(), silence)
    }

    /// The empty body of an answer that changes the protocol; the server counts as busy while it lives.
    pub(crate) fn of_tunnel(in_flight: InFlight) -> Self {
        let silence = Stall::new(Duration::MAX);
        Self::of(BodySource::Ended, Some(in_flight), silence)
    }

    fn of(source: BodySource, in_flight: Option<InFlight>, silence: Stall) -> Self {
        Self {
            source,
            in_flight,
            silence,
            broken: None,
            held: None,
        }
    }

    fn end(&mut self) {
        let source = std::mem::replace(&mut self.source, BodySource::Ended);
        if let (BodySource::Http1(connection), Some(in_flight)) = (source, self.in_flight.take()) {
            in_flight.keep(connection);
        }
        self.held = None;
    }

    /// Ends the body after the bytes that arrived so far were sent: on an error, hyper drops the connection with
    /// everything unsent, including the head of the answer.
    fn breaks(&mut self, cx: &Context<'_>, error: BodyError) {
        self.source = BodySource::Ended;
        self.broken = Some(Box::new(error));
        cx.waker().wake_by_ref();
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        if let Some(held) = self.held.take()
            && !self.source.is_end()
            && let Some(in_flight) = &self.in_flight
        {
            let background = Arc::clone(in_flight.background());
            held.carry(&background, self.abandon());
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(error) = this.broken.take() {
            return Poll::Ready(Some(Err(*error)));
        }
        let polled = this.source.poll_frame(cx);
        let frame = match ready!(this.silence.watch(cx, polled)) {
            Ok(frame) => frame,
            Err(Stalled) => Some(Err(BodyError::Silent)),
        };
        match frame {
            Some(Ok(frame)) => {
                // With a known length hyper does not poll past the last frame.
                if this.source.is_end() {
                    this.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                this.breaks(cx, error);
                Poll::Pending
            }
            None => {
                this.end();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end() && self.broken.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}
