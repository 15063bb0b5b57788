//! The body of an answer on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};

use super::pool::Return;
use super::upstream::InFlight;

/// The body of an answer: a server's, or one made here.
pub(super) enum AnswerBody {
    Upstream(UpstreamBody),
    Own(Full<Bytes>),
}

/// Why the rest of an answer does not come.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the server behind the gateway broke off: {0}")]
    Broken(#[source] hyper::Error),
    #[error("the server behind the gateway was silent for too long")]
    Silent,
}

/// What a server sends, as it comes. Its connection is kept for others when the body has ended, and closed
/// if it is given up before.
pub(super) struct UpstreamBody {
    incoming: Incoming,
    /// The connection, if it has to be driven from here.
    link: Option<Return>,
    /// Until the end of the answer.
    in_flight: Option<InFlight>,
    patience: Duration,
    silence: Option<Pin<Box<Sleep>>>,
}

impl UpstreamBody {
    pub(super) fn new(
        incoming: Incoming,
        link: Option<Return>,
        in_flight: InFlight,
        patience: Duration,
    ) -> Self {
        let mut body = Self {
            incoming,
            link,
            in_flight: Some(in_flight),
            patience,
            silence: None,
        };
        if body.incoming.is_end_stream() {
            body.end();
        }
        body
    }

    /// The body of an answer that changes the protocol: none, but the server is busy for as long as it is
    /// there.
    pub(super) fn of_tunnel(incoming: Incoming, in_flight: InFlight) -> Self {
        Self {
            incoming,
            link: None,
            in_flight: Some(in_flight),
            patience: Duration::MAX,
            silence: None,
        }
    }

    fn end(&mut self) {
        if let Some(link) = self.link.take() {
            link.keep();
        }
        self.in_flight = None;
        self.silence = None;
    }

    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        if frame.is_ready() {
            return frame;
        }
        let Some(link) = &mut self.link else {
            return Poll::Pending;
        };
        link.connection.drive(cx);
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    /// Whether nothing has come for too long. The clock starts when there is first something to wait for.
    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        let patience = self.patience;
        let silence = self
            .silence
            .get_or_insert_with(|| Box::pin(sleep(patience)));
        silence.as_mut().poll(cx).is_ready()
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
        match this.poll_incoming(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.silence = None;
                // Who knows the length asks no more after the last of it.
                if this.incoming.is_end_stream() {
                    this.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.link = None;
                Poll::Ready(Some(Err(BodyError::Broken(error))))
            }
            Poll::Ready(None) => {
                this.end();
                Poll::Ready(None)
            }
            Poll::Pending if this.is_silent(cx) => {
                this.link = None;
                Poll::Ready(Some(Err(BodyError::Silent)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Upstream(body) => Pin::new(body).poll_frame(cx),
            Self::Own(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|impossible| match impossible {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Upstream(body) => body.is_end_stream(),
            Self::Own(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Upstream(body) => body.size_hint(),
            Self::Own(body) => body.size_hint(),
        }
    }
}
