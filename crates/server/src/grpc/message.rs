//! The messages of a call as they arrive, and the reply with one.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use hyper::body::{Body, Incoming};
use prost::Message;
use tidegate_codec::grpc::{MessageBuffer, framed};
use tidegate_tower::{BodyMemoryUsedUp, BodyPool, BodyShare};

use super::body::GrpcBody;
use super::status::{Code, MEDIA_TYPE, Status};
use crate::body_memory::{HeldBody, UNCOUNTED};

/// The largest message of a call that never needs a token.
pub(super) const TINY: usize = 16 << 10;

/// How long a client may take to send a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// The messages of a call, as they arrive.
pub(super) struct Messages<'p> {
    body: Incoming,
    arrived: MessageBuffer,
    largest: usize,
    pool: &'p Arc<BodyPool>,
    /// What the part of a message that has arrived takes, if it is counted.
    share: Option<BodyShare>,
}

impl<'p> Messages<'p> {
    /// Those of at most `largest` bytes, within the memory of a pool.
    pub(super) fn of(body: Incoming, largest: usize, pool: &'p Arc<BodyPool>) -> Self {
        Self {
            body,
            arrived: MessageBuffer::with_largest(largest),
            largest,
            pool,
            share: None,
        }
    }

    /// Counts what is held with this many more bytes.
    fn count(&mut self, more: usize) -> Result<(), Status> {
        let bytes = self.arrived.len() + more;
        let share = self.share.get_or_insert_with(|| self.pool.share());
        // Buffers grow to twice their size.
        let capacity = bytes.max((2 * bytes).min(self.largest));
        let counted = share.grow_to(capacity);
        counted.map_err(|BodyMemoryUsedUp| Status::new(Code::Unavailable, BodyMemoryUsedUp::DETAIL))
    }

    /// The next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.arrived.is_empty() {
            self.share = None;
        }
        loop {
            if let Some(message) = self.arrived.take()? {
                return Ok(Some(message));
            }
            if !self.arrived.is_empty() {
                self.count(0)?;
            }
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        if self.arrived.len() + data.len() > UNCOUNTED {
                            self.count(data.len())?;
                        }
                        self.arrived.put(data);
                    }
                }
                Some(Err(error)) => {
                    let message = format!("the call could not be read: {error}");
                    return Err(Status::new(Code::Cancelled, message));
                }
                None if self.arrived.is_empty() => return Ok(None),
                None => {
                    return Err(Status::invalid("the call ended in the middle of a message"));
                }
            }
        }
    }
}

/// The single message of a unary call, of at most `largest` bytes.
pub(super) async fn only(
    body: Incoming,
    largest: usize,
    pool: &Arc<BodyPool>,
) -> Result<HeldBody, Status> {
    let mut messages = Messages::of(body, largest, pool);
    let read = {
        let mut reading = pin!(messages.next());
        // It has nearly always arrived, and then no timer is needed.
        let first = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
        match first {
            Poll::Ready(read) => read?,
            Poll::Pending => {
                let waited = Box::pin(tokio::time::timeout(PATIENCE, reading)).await;
                waited.map_err(|_| too_slow())??
            }
        }
    };
    let message = read.ok_or_else(|| Status::invalid("the call has no message"))?;
    Ok(HeldBody::new(message, messages.share.take()))
}

fn too_slow() -> Status {
    let seconds = PATIENCE.as_secs();
    let message = format!("the message did not arrive within {seconds} seconds");
    Status::new(Code::DeadlineExceeded, message)
}

/// A reply with one message.
pub(super) fn reply(message: &impl Message) -> Response<GrpcBody> {
    with_body(GrpcBody::message(framed(message)))
}

/// A reply with this body.
pub(super) fn with_body(body: GrpcBody) -> Response<GrpcBody> {
    let mut reply = Response::new(body);
    reply.headers_mut().insert(CONTENT_TYPE, MEDIA_TYPE);
    reply
}
