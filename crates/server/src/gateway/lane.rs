//! What one worker of the gateway has to itself.

use std::sync::Arc;

use super::http1::Http1;
use super::pool::Pool;
use super::{Gateway, Upstream};

/// What one worker forwards with.
pub(super) struct Lane {
    pub(super) gateway: Arc<Gateway>,
    pub(super) pool: Arc<Pool>,
}

/// A request that a server has, until the end of its answer. Holds on to its worker, and not to the server:
/// that is shared by all workers, and counting who holds it would have them meet at every request.
pub(super) struct InFlight {
    lane: Arc<Lane>,
    /// Which server.
    place: usize,
}

impl InFlight {
    pub(super) fn begin(lane: &Arc<Lane>, upstream: &Upstream) -> Self {
        upstream.begin();
        Self {
            lane: Arc::clone(lane),
            place: upstream.place,
        }
    }

    /// Keeps the connection of the answer for another, if it has come to its end.
    pub(super) fn keep(&self, connection: Box<Http1>) {
        self.lane.pool.keep_http1(self.place, connection);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(upstream) = self.lane.gateway.upstreams().get(self.place) {
            upstream.end();
        }
    }
}
