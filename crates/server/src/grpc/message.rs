//! The messages of a call as they arrive, and the reply with one.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use hyper::body::{Body, Incoming};
use prost::Message;
use tidegate_codec::grpc::{MessageBuffer, framed};

use super::body::GrpcBody;
use super::status::{Code, MEDIA_TYPE, Status};

/// How long a client may take to send a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// The messages of a call, as they arrive.
pub(super) struct Messages {
    body: Incoming,
    arrived: MessageBuffer,
}

impl Messages {
    pub(super) fn of(body: Incoming) -> Self {
        Self {
            body,
            arrived: MessageBuffer::default(),
        }
    }

    /// The next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.arrived.take()? {
                return Ok(Some(message));
            }
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
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

/// The single message of a unary call.
pub(super) async fn only(body: Incoming) -> Result<Bytes, Status> {
    let mut messages = Messages::of(body);
    let mut reading = pin!(messages.next());
    // It has nearly always arrived, and then no timer is needed.
    let first = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
    let read = match first {
        Poll::Ready(read) => read?,
        Poll::Pending => {
            let waited = Box::pin(tokio::time::timeout(PATIENCE, reading)).await;
            waited.map_err(|_| too_slow())??
        }
    };
    read.ok_or_else(|| Status::invalid("the call has no message"))
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
