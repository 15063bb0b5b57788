//! What one worker of the gateway has to itself.

use std::sync::Arc;

use crate::Gateway;
use crate::capacity::ClientCounter;
use crate::http1::Http1;
use crate::pool::Pool;
use crate::upstream::Upstream;

/// What one worker forwards with.
pub(crate) struct Worker {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) pool: Arc<Pool>,
}

/// A request that a server has, until the end of its answer. Holds on to its worker, and not to the server:
/// that is shared by all workers, and counting who holds it would have them meet at every request.
pub(crate) struct InFlight {
    worker: Arc<Worker>,
    /// Which server.
    place: usize,
    /// Whose connection to the server it is counted for.
    client: Option<ClientCounter>,
}

impl InFlight {
    pub(crate) fn begin(worker: &Arc<Worker>, upstream: &Upstream) -> Self {
        upstream.begin();
        Self {
            worker: Arc::clone(worker),
            place: upstream.place,
            client: None,
        }
    }

    /// Counts a connection for the client, if it may have one more.
    pub(crate) fn take_connection(&mut self, client: ClientCounter) -> bool {
        let is_taken = self.client.is_some() || self.worker.gateway.capacity.take(client);
        if is_taken {
            self.client = Some(client);
        }
        is_taken
    }

    /// The connection is shared by others, and not the client's.
    pub(crate) fn give_connection_back(&mut self) {
        if let Some(client) = self.client.take() {
            self.worker.gateway.capacity.give_back(client);
        }
    }

    /// Keeps the connection of the answer for another, if it has come to its end.
    pub(crate) fn keep(&self, connection: Box<Http1>) {
        self.worker.pool.keep_http1(self.place, connection);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.give_connection_back();
        if let Some(upstream) = self.worker.gateway.upstreams().get(self.place) {
            upstream.end();
        }
    }
}
