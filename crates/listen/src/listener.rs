//! A socket that connections are accepted from: a TCP port, or a Unix socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::net::{TcpListener, TcpStream, UnixListener};

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket. The address of its peers is the loopback address with a number of its own.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

impl Listener {
    /// The next connection, and the address of its peer.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                set_nodelay(&stream);
                Ok((stream, address))
            }
            Self::Unix(listener) => local(listener.accept().await?.0.into_std()?),
        }
    }

    /// For the connections that wait in the kernel's queue.
    pub(crate) fn into_waiting(self) -> io::Result<WaitingConnections> {
        Ok(match self {
            Self::Tcp(listener) => WaitingConnections::Tcp(listener.into_std()?),
            Self::Unix(listener) => WaitingConnections::Unix(listener.into_std()?),
        })
    }
}

/// The connections that wait to be accepted. None that comes later is waited for.
pub(crate) enum WaitingConnections {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl WaitingConnections {
    /// The next one; the error is `WouldBlock` if there is none.
    pub(crate) fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(true)?;
                let stream = TcpStream::from_std(stream)?;
                set_nodelay(&stream);
                Ok((stream, address))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                local(stream)
            }
        }
    }
}

/// A connection over a Unix socket as the type that connections have. It is read and written by the same calls of the
/// system; it has no addresses.
fn local(stream: std::os::unix::net::UnixStream) -> io::Result<(TcpStream, SocketAddr)> {
    static NUMBER: AtomicU16 = AtomicU16::new(1);
    let stream = TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(stream)))?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Ok((stream, SocketAddr::from((Ipv4Addr::LOCALHOST, number))))
}

/// Disables Nagle's algorithm: small answers are sent without delay.
fn set_nodelay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}
