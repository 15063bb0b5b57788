//! The body of a reply: nothing, one message, or a stream of messages, and the trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::status::{Status, ok_trailers};

/// The body of a reply.
pub(crate) struct GrpcBody {
    state: GrpcBodyState,
}

enum GrpcBodyState {
    /// One message, framed.
    Message(Bytes),
    /// A stream of messages, and the status that ends it.
    Stream(mpsc::Receiver<Result<Bytes, Status>>),
    Trailers(HeaderMap),
    End,
}

impl GrpcBody {
    pub(super) fn empty() -> Self {
        Self {
            state: GrpcBodyState::End,
        }
    }

    pub(super) fn message(message: Bytes) -> Self {
        Self {
            state: GrpcBodyState::Message(message),
        }
    }

    pub(super) fn stream(messages: mpsc::Receiver<Result<Bytes, Status>>) -> Self {
        Self {
            state: GrpcBodyState::Stream(messages),
        }
    }
}

impl Body for GrpcBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let GrpcBodyState::Stream(messages) = &mut self.state {
            return messages.poll_recv(cx).map(|message| match message {
                Some(Ok(message)) => Some(Ok(Frame::data(message))),
                Some(Err(status)) => {
                    self.state = GrpcBodyState::End;
                    Some(Ok(Frame::trailers(status.trailers())))
                }
                None => {
                    self.state = GrpcBodyState::End;
                    Some(Ok(Frame::trailers(ok_trailers())))
                }
            });
        }
        let frame = match std::mem::replace(&mut self.state, GrpcBodyState::End) {
            GrpcBodyState::Message(message) => {
                self.state = GrpcBodyState::Trailers(ok_trailers());
                Some(Ok(Frame::data(message)))
            }
            GrpcBodyState::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            GrpcBodyState::Stream(_) | GrpcBodyState::End => None,
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, GrpcBodyState::End)
    }

    /// Unknown for messages: an exact one would become a `Content-Length`, which clients of gRPC do not use.
    fn size_hint(&self) -> SizeHint {
        match &self.state {
            GrpcBodyState::Trailers(_) | GrpcBodyState::End => SizeHint::with_exact(0),
            GrpcBodyState::Message(_) | GrpcBodyState::Stream(_) => SizeHint::default(),
        }
    }
}
