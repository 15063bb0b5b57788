//! The state of one worker of the gateway.

use std::sync::Arc;

use tidegate_tower::{BackgroundRequests, RateLimitLayer};

use crate::Gateway;
use crate::capacity::ClientCounter;
use crate::http1::Http1;
use crate::pool::Pool;
use crate::upstream::Upstream;

/// The state of one worker.
pub(crate) struct Worker {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) pool: Arc<Pool>,
    /// Decides requests, and says which of their trailers must not reach a server.
    pub(crate) layer: RateLimitLayer,
}

/// A request in flight, until the end of its answer. Holds a reference to its worker, and not to the server:
/// the server is shared by all workers, and its reference count would be contended at every request.
pub(crate) struct InFlight {
    worker: Arc<Worker>,
    /// The index of the server.
    index: usize,
    /// The client that the connection counts for.
    client: Option<ClientCounter>,
}

impl InFlight {
    pub(crate) fn begin(worker: &Arc<Worker>, upstream: &Upstream) -> Self {
        upstream.begin();
        Self {
            worker: Arc::clone(worker),
            index: upstream.index,
            client: None,
        }
    }

    /// Counts a connection for the client, if allowed.
    pub(crate) fn take_connection(&mut self, client: ClientCounter) -> bool {
        let is_taken = self.client.is_some() || self.worker.gateway.capacity.take(client);
        if is_taken {
            self.client = Some(client);
        }
        is_taken
    }

    /// The connection is shared, and does not count for the client.
    pub(crate) fn give_connection_back(&mut self) {
        if let Some(client) = self.client.take() {
            self.worker.gateway.capacity.give_back(client);
        }
    }

    /// Where requests continue when their client has left.
    pub(crate) fn background(&self) -> &Arc<BackgroundRequests> {
        &self.worker.gateway.background
    }

    /// Returns the connection to the pool, if the answer has ended.
    pub(crate) fn keep(&self, connection: Box<Http1>) {
        self.worker.pool.keep_http1(self.index, connection);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.give_connection_back();
        if let Some(upstream) = self.worker.gateway.upstreams.get(self.index) {
            upstream.end();
        }
    }
}
