//! Requests that hold a permit and whose client has left. The server is still working, so the answer is read to its end
//! and discarded, and the permit is held until then.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body as _;
use tidegate_tower::{BackgroundRequests, RequestPermit};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::body::UpstreamBody;

/// How much is read of an answer without a client.
const MOST_READ: u64 = 16 * 1024 * 1024;

/// A request that holds a permit, until the end of its answer.
pub(crate) struct HeldRequest {
    pub(crate) permit: RequestPermit,
    /// How long the rest of the answer may take without its client.
    timeout: Duration,
    /// Ends a request body that broke off: see `request_body.rs`.
    _over: oneshot::Sender<()>,
}

impl HeldRequest {
    /// A request, and the receiver of its end.
    pub(crate) fn new(
        permit: RequestPermit,
        timeout: Duration,
    ) -> (Box<Self>, oneshot::Receiver<()>) {
        let (over, is_over) = oneshot::channel();
        let held = Self {
            permit,
            timeout,
            _over: over,
        };
        (Box::new(held), is_over)
    }

    /// Continues in the background with the rest of the answer.
    pub(crate) fn carry(self: Box<Self>, background: &Arc<BackgroundRequests>, rest: UpstreamBody) {
        let permit = self.permit.clone();
        background.carry(permit, self.finish(rest));
    }

    async fn finish(self: Box<Self>, mut rest: UpstreamBody) {
        // Beyond the timeout the connection is closed, as for a client that waits for the head.
        let read = timeout(self.timeout, read_out(&mut rest)).await;
        if read == Ok(Rest::Long) {
            // The connection is closed, and the server may work on.
            self.permit.leave();
        }
    }
}

/// The rest of an answer.
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
