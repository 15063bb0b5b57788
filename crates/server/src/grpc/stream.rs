//! Streaming replies: a task that sends until the client disconnects or the server drains.

use bytes::Bytes;
use http::Response;
use prost::Message;
use tidegate_codec::grpc::framed;
use tokio::sync::mpsc;

use super::body::GrpcBody;
use super::message;
use super::status::Status;

/// How many messages wait for a slow client.
const WAITING: usize = 4;

/// The sending side of a streaming reply.
pub(super) struct Sender(mpsc::Sender<Result<Bytes, Status>>);

/// The client has disconnected.
pub(super) struct Gone;

impl Sender {
    pub(super) async fn send(&self, message: &impl Message) -> Result<(), Gone> {
        let sent = self.0.send(Ok(framed(message))).await;
        sent.map_err(|_| Gone)
    }

    /// Ends the reply with an error.
    pub(super) async fn fail(self, status: Status) {
        let _ = self.0.send(Err(status)).await;
    }

    /// Waits until the client disconnects.
    pub(super) async fn gone(&self) {
        self.0.closed().await;
    }
}

/// A reply whose messages come from its own task.
pub(super) fn reply<F>(sending: impl FnOnce(Sender) -> F) -> Response<GrpcBody>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, messages) = mpsc::channel(WAITING);
    tokio::spawn(sending(Sender(sender)));
    message::with_body(GrpcBody::stream(messages))
}
