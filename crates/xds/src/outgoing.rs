//! The body of the call: requests as they are made, without an end.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

/// How many requests may wait for the server: each answers one of its responses.
const WAITING: usize = 16;

/// The requests of a stream, as bytes.
pub(crate) struct Outgoing(mpsc::Receiver<Bytes>);

impl Outgoing {
    pub(crate) fn new() -> (mpsc::Sender<Bytes>, Self) {
        let (sender, requests) = mpsc::channel(WAITING);
        (sender, Self(requests))
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(cx);
        next.map(|request| request.map(|request| Ok(Frame::data(request))))
    }
}
