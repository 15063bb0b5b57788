//! Whether a server has sent bytes that were not read yet: then this process is late, and not the server.

use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::network::{NetworkConnection, NetworkStream};

/// How bytes that were not read yet are noticed.
enum Unread {
    /// By asking for the number of bytes in the connection's socket.
    Socket(OwnedFd),
    /// As the network says.
    Network(Arc<dyn Fn() -> bool + Send + Sync>),
    /// The connection cannot be watched.
    Unknown,
}

/// Tracks whether bytes have arrived on a connection that are not handed out yet.
pub(crate) struct Arrivals {
    unread: Unread,
    /// Whether bytes were read and their replies are being handed out.
    is_reading: AtomicBool,
}

impl Arrivals {
    /// For a connection that cannot be watched.
    pub(crate) fn unknown() -> Arc<Self> {
        Arc::new(Self {
            unread: Unread::Unknown,
            is_reading: AtomicBool::new(false),
        })
    }

    /// Whether bytes have arrived whose replies were not handed out yet.
    pub(crate) fn are_waiting(&self) -> bool {
        // In this order: bytes that have left the socket are being handed out, or were.
        let is_unread = match &self.unread {
            Unread::Socket(socket) => {
                rustix::io::ioctl_fionread(socket).is_ok_and(|bytes| bytes > 0)
            }
            Unread::Network(has_unread) => has_unread(),
            Unread::Unknown => false,
        };
        is_unread || self.is_reading.load(Ordering::Acquire)
    }
}

/// A stream that records the bytes that arrive on it.
pub(crate) struct WatchedStream<S> {
    stream: S,
    arrivals: Arc<Arrivals>,
}

impl<S: AsFd> WatchedStream<S> {
    pub(crate) fn new(stream: S) -> std::io::Result<(Self, Arc<Arrivals>)> {
        let socket = stream.as_fd().try_clone_to_owned()?;
        Ok(Self::with(stream, Unread::Socket(socket)))
    }
}

impl WatchedStream<Box<dyn NetworkStream>> {
    pub(crate) fn from_network(connection: NetworkConnection) -> (Self, Arc<Arrivals>) {
        let unread = Unread::Network(connection.has_unread);
        Self::with(connection.stream, unread)
    }
}

impl<S> WatchedStream<S> {
    fn with(stream: S, unread: Unread) -> (Self, Arc<Arrivals>) {
        let arrivals = Arc::new(Arrivals {
            unread,
            is_reading: AtomicBool::new(false),
        });
        let watched = Self {
            stream,
            arrivals: Arc::clone(&arrivals),
        };
        (watched, arrivals)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.arrivals.is_reading.store(true, Ordering::Release);
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_pending() {
            // All replies read before have been handed out.
            self.arrivals.is_reading.store(false, Ordering::Release);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn what_was_sent_and_not_read_is_known() {
        let (mut server, client) = tokio::net::UnixStream::pair().unwrap();
        let (mut client, arrivals) = WatchedStream::new(client).unwrap();
        assert!(!arrivals.are_waiting());
        server.write_all(b"+OK\r\n").await.unwrap();
        assert!(arrivals.are_waiting(), "in the socket");
        let mut bytes = [0; 5];
        client.read_exact(&mut bytes).await.unwrap();
        assert!(arrivals.are_waiting(), "read and not handed out");
        let more = tokio::time::timeout(std::time::Duration::ZERO, client.read_u8()).await;
        assert!(more.is_err());
        assert!(!arrivals.are_waiting(), "handed out");
        assert!(!Arrivals::unknown().are_waiting());
    }
}
