//! Requests that hold a permit and whose client has left: what they caused at the server is not over, so the answer
//! is read to its end and thrown away, and the permit is held until then.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use hyper::body::Body as _;
use tidegate_tower::{BackgroundRequests, RequestPermit};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::body::{BodySource, UpstreamBody};
use crate::hop;

/// How much is read of an answer without a client. A server that sends more notices when the connection closes.
const MOST_READ: u64 = 16 * 1024 * 1024;

/// How long a server may take to close a connection that the gateway has closed.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// A request that holds a permit, until the end of its answer.
pub(crate) struct HeldRequest {
    permit: RequestPermit,
    /// How long the rest of the answer may take without its client.
    timeout: Duration,
    /// Whether the answer is a stream that only its client ends.
    is_stream: bool,
    /// Ends a request body that broke off: see `request_body.rs`.
    _over: oneshot::Sender<()>,
}

impl HeldRequest {
    /// A request, and what is notified when it is over.
    pub(crate) fn new(
        permit: RequestPermit,
        timeout: Duration,
    ) -> (Box<Self>, oneshot::Receiver<()>) {
        let (over, is_over) = oneshot::channel();
        let held = Self {
            permit,
            timeout,
            is_stream: false,
            _over: over,
        };
        (Box::new(held), is_over)
    }

    pub(crate) fn permit(&self) -> &RequestPermit {
        &self.permit
    }

    /// The head of the answer has arrived.
    pub(crate) fn answered(&mut self, headers: &HeaderMap) {
        let kind = headers.get(CONTENT_TYPE);
        self.is_stream = hop::is_grpc(headers)
            || kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    }

    /// Continues in the background with the rest of the answer.
    pub(crate) fn carry(self: Box<Self>, background: &Arc<BackgroundRequests>, rest: UpstreamBody) {
        let permit = self.permit.clone();
        background.carry(permit, self.finish(rest));
    }

    async fn finish(self: Box<Self>, mut rest: UpstreamBody) {
        if self.is_stream {
            return close(&mut rest).await;
        }
        // Beyond the timeout the connection is closed, as for a client that waits for the head.
        let read = timeout(self.timeout, read_out(&mut rest)).await;
        if read == Ok(Rest::Long) {
            close(&mut rest).await;
        }
    }
}

/// What was left of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    /// It has ended, or broke off.
    Ended,
    /// More than is read.
    Long,
}

/// Reads the rest of an answer, and throws it away.
async fn read_out(rest: &mut UpstreamBody) -> Rest {
    let mut read: u64 = 0;
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut *rest).poll_frame(cx)).await {
        read = read.saturating_add(frame.data_ref().map_or(0, Bytes::len) as u64);
        if read > MOST_READ {
            return Rest::Long;
        }
    }
    Rest::Ended
}

/// Closes the connection, or the stream of an HTTP/2 connection, and gives the server time to notice.
async fn close(rest: &mut UpstreamBody) {
    match std::mem::replace(&mut rest.source, BodySource::Ended) {
        BodySource::Http1(mut connection) => drop(timeout(CLOSING, connection.close()).await),
        // Whether the server has noticed is not reported.
        BodySource::Http2(incoming) => {
            drop(incoming);
            sleep(CLOSING).await;
        }
        BodySource::Ended => {}
    }
}
