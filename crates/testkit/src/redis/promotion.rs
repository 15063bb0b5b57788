//! What a failover ended in.

use std::net::SocketAddr;
use std::time::Instant;

/// A replica that has become master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promotion {
    /// The new master.
    pub address: SocketAddr,
    /// When all that watch it were seen to agree, on the clock of [`now`](crate::now).
    pub at: Instant,
}
