//! What one worker of the gateway has to itself.

use std::sync::Arc;

use super::capacity::ClientCounter;
use super::http1::Http1;
use super::pool::Pool;
use super::{Gateway, Upstream};
use crate::server::Server;

/// What one worker forwards with.
pub(super) struct Lane {
    pub(super) gateway: Arc<Gateway>,
    pub(super) pool: Arc<Pool>,
    pub(super) server: Arc<Server>,
}

/// A request that a server has, until the end of its answer. Holds on to its worker, and not to the server:
/// that is shared by all workers, and counting who holds it would have them meet at every request.
pub(super) struct InFlight {
    lane: Arc<Lane>,
    /// Which server.
    place: usize,
    /// Whose connection to the server it is counted for.
    client: Option<ClientCounter>,
}

impl InFlight {
    pub(super) fn begin(lane: &Arc<Lane>, upstream: &Upstream) -> Self {
        upstream.begin();
        Self {
            lane: Arc::clone(lane),
            place: upstream.place,
            client: None,
        }
    }

    /// Counts a connection for the client, if it may have one more.
    pub(super) fn take_connection(&mut self, client: ClientCounter) -> bool {
        let is_taken = self.client.is_some() || self.lane.gateway.capacity.take(client);
        if is_taken {
            self.client = Some(client);
        }
        is_taken
    }

    /// The connection is shared by others, and not the client's.
    pub(super) fn give_connection_back(&mut self) {
        if let Some(client) = self.client.take() {
            self.lane.gateway.capacity.give_back(client);
        }
    }

    /// Keeps the connection of the answer for another, if it has come to its end.
    pub(super) fn keep(&self, connection: Box<Http1>) {
        self.lane.pool.keep_http1(self.place, connection);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.give_connection_back();
        if let Some(upstream) = self.lane.gateway.upstreams().get(self.place) {
            upstream.end();
        }
    }
}
