//! Length-prefixed messages: five bytes with a flag and the length, then the message.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::Response;
use http::header::CONTENT_TYPE;
use hyper::body::{Body, Incoming};
use prost::Message;

use super::body::GrpcBody;
use super::status::{Code, MEDIA_TYPE, Status};

/// The length of the prefix: flag and message length.
const PREFIX: usize = 5;
/// The largest message, in bytes.
pub(super) const LARGEST: usize = 4 << 20;
/// How long a client may take to send a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// The messages of a call, as they arrive.
pub(super) struct Messages {
    body: Incoming,
    bytes: BytesMut,
    /// A message that arrived in one piece and need not be copied.
    whole: Option<Bytes>,
}

impl Messages {
    pub(super) fn of(body: Incoming) -> Self {
        Self {
            body,
            bytes: BytesMut::new(),
            whole: None,
        }
    }

    /// The next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.put(data);
                    }
                }
                Some(Err(error)) => {
                    let message = format!("the call could not be read: {error}");
                    return Err(Status::new(Code::Cancelled, message));
                }
                None if self.bytes.is_empty() && self.whole.is_none() => return Ok(None),
                None => {
                    return Err(Status::invalid("the call ended in the middle of a message"));
                }
            }
        }
    }

    fn put(&mut self, data: Bytes) {
        // Some clients end their call with an empty frame.
        if data.is_empty() {
            return;
        }
        if self.bytes.is_empty() && self.whole.is_none() {
            self.whole = Some(data);
            return;
        }
        if let Some(whole) = self.whole.take() {
            self.bytes.extend_from_slice(&whole);
        }
        self.bytes.extend_from_slice(&data);
    }

    /// A message, if all of it has arrived.
    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        let there = self.whole.as_deref().unwrap_or(&self.bytes);
        let Some((prefix, rest)) = there.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let [flag, length @ ..] = *prefix;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > LARGEST {
            return Err(Status::invalid(format!(
                "a message may have at most {LARGEST} bytes, this has {length}"
            )));
        }
        match flag {
            0 => {}
            1 => {
                let message = "compressed messages are not supported; send them uncompressed";
                return Err(Status::new(Code::Unimplemented, message));
            }
            _ => return Err(Status::invalid("this is not a gRPC message")),
        }
        if rest.len() < length {
            return Ok(None);
        }
        let taken = if let Some(whole) = &mut self.whole {
            let taken = whole.split_to(PREFIX + length);
            if whole.is_empty() {
                self.whole = None;
            }
            taken
        } else {
            self.bytes.split_to(PREFIX + length).freeze()
        };
        Ok(Some(taken.slice(PREFIX..)))
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

/// Decodes a message.
pub(super) fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, Status> {
    M::decode(bytes)
        .map_err(|error| Status::invalid(format!("the message cannot be read: {error}")))
}

/// Encodes a message with its prefix.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    // No message written here is near the limit of the length field.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // The capacity was reserved.
    let _ = message.encode(&mut bytes);
    debug_assert_eq!(bytes.remaining(), PREFIX + length, "the length is true");
    bytes.freeze()
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
