//! The connections and random numbers of a store, for simulations that provide them instead of the operating system.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

/// Connects a store to a single server in place of the operating system: for simulations. Everything else works as over
/// TCP, except subscriptions to published messages.
pub trait RedisNetwork: Send + Sync + 'static {
    /// A new connection to the server.
    fn connect(&self) -> ConnectingToRedis;

    /// A number from 0 to 1, by which the waits between attempts to connect vary.
    fn chance(&self) -> f64;
}

/// A connection that is being made.
pub type ConnectingToRedis =
    Pin<Box<dyn Future<Output = std::io::Result<NetworkConnection>> + Send>>;

/// The bytes of a connection.
pub trait NetworkStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> NetworkStream for S {}

/// A connection that a [`RedisNetwork`] has made.
pub struct NetworkConnection {
    /// Its bytes.
    pub stream: Box<dyn NetworkStream>,
    /// Whether bytes have arrived that were not read yet.
    pub has_unread: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for NetworkConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkConnection").finish_non_exhaustive()
    }
}
