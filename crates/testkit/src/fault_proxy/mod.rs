//! A TCP proxy that breaks the network in front of a server, in ways that can be switched while
//! connections are open. It runs on threads of its own, so that any test can use it.
//!
//! Bytes are never lost from the middle of a stream, as TCP never loses them: a connection that has
//! lost some stays silent in that direction until it is closed, whatever the mode is then.

#![expect(
    clippy::expect_used,
    reason = "a proxy that cannot work has failed the test"
)]

mod acceptor;
mod connection;
mod mode;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use acceptor::Acceptor;
use connection::ProxyShared;
pub use mode::FaultMode;

use crate::port::ReservedPort;

/// What has gone through a proxy so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Connections accepted.
    pub connections: u64,
    /// Bytes that clients sent, delivered or not.
    pub requests: u64,
    /// Bytes that the server sent, delivered or not.
    pub replies: u64,
}

/// A proxy before one address. Dropping it closes everything.
///
/// ```
/// use std::net::{TcpListener, TcpStream};
/// use tidegate_testkit::fault_proxy::{FaultProxy, FaultMode};
///
/// let server = TcpListener::bind("127.0.0.1:0")?;
/// let proxy = FaultProxy::before(server.local_addr()?);
/// assert!(TcpStream::connect(proxy.address()).is_ok());
/// proxy.set(FaultMode::Cut);
/// assert!(TcpStream::connect(proxy.address()).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    port: ReservedPort,
    shared: Arc<ProxyShared>,
    acceptor: Mutex<Option<Acceptor>>,
}

impl FaultProxy {
    /// A proxy on a free port that passes everything on to `server`.
    pub fn before(server: SocketAddr) -> Self {
        let proxy = Self {
            port: ReservedPort::new(),
            shared: Arc::new(ProxyShared::new(server)),
            acceptor: Mutex::new(None),
        };
        proxy.set(FaultMode::Pass);
        proxy
    }

    /// A proxy before each of the servers, in their order.
    pub fn many(servers: impl IntoIterator<Item = SocketAddr>) -> Vec<Self> {
        servers.into_iter().map(Self::before).collect()
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        (std::net::Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    /// The mode that is in force.
    pub fn mode(&self) -> FaultMode {
        self.shared.mode()
    }

    /// Changes the mode for new connections and for open ones; in force when this returns.
    pub fn set(&self, mode: FaultMode) {
        let mut acceptor = self.acceptor();
        self.shared.set_mode(mode);
        if mode.refuses() {
            if let Some(open) = acceptor.take() {
                open.close();
            }
        } else if acceptor.is_none() {
            *acceptor = Some(Acceptor::open(self.address(), Arc::clone(&self.shared)));
        }
        if mode == FaultMode::Cut {
            self.shared.close_all();
        }
    }

    /// Closes every open connection, in whatever mode, and goes on accepting new ones.
    pub fn close_connections(&self) {
        self.shared.close_all();
    }

    /// What has gone through so far.
    pub fn traffic(&self) -> Traffic {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::SeqCst);
        Traffic {
            connections: read(&self.shared.connections),
            requests: read(&self.shared.requests),
            replies: read(&self.shared.replies),
        }
    }

    fn acceptor(&self) -> MutexGuard<'_, Option<Acceptor>> {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.set(FaultMode::Cut);
    }
}
