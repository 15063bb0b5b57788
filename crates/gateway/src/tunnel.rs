//! Connections that have changed their protocol, such as WebSocket: bytes both ways, until one end closes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::sleep;

use crate::End;
use crate::http1::Tunnel;

/// The server's end of a connection that has changed its protocol, as an extension of the answer that says
/// so.
#[derive(Clone)]
pub(crate) struct ServerEnd {
    tunnel: Arc<Mutex<Option<Tunnel>>>,
    /// How long nothing may come from either side.
    patience: Duration,
}

impl ServerEnd {
    pub(crate) fn new(tunnel: Tunnel, patience: Duration) -> Self {
        Self {
            tunnel: Arc::new(Mutex::new(Some(tunnel))),
            patience,
        }
    }
}

/// Copies bytes both ways. What `held` stands for is held until then.
pub(crate) async fn relay<H>(client: OnUpgrade, server: ServerEnd, end: End, held: H) {
    let ended = copy(client, server, end).await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection with another protocol ended early");
    }
    drop(held);
}

async fn copy(client: OnUpgrade, server: ServerEnd, end: End) -> io::Result<()> {
    let ServerEnd { tunnel, patience } = server;
    let Some(server) = tunnel.lock().take() else {
        return Ok(());
    };
    let changed = tokio::time::timeout(patience, client).await?;
    let client = changed.map_err(io::Error::other)?;
    let reads = AtomicU64::new(0);
    let mut client = Counted {
        io: TokioIo::new(client),
        reads: &reads,
    };
    let mut server = Counted {
        io: server,
        reads: &reads,
    };
    tokio::select! {
        copied = copy_bidirectional(&mut client, &mut server) => copied.map(drop),
        () = silence(&reads, patience) => Err(io::ErrorKind::TimedOut.into()),
        () = last_moment(&end) => Err(io::Error::other("the server shuts down")),
    }
}

/// Ends when nothing was read for long enough.
async fn silence(reads: &AtomicU64, patience: Duration) {
    loop {
        let before = reads.load(Ordering::Relaxed);
        sleep(patience).await;
        if reads.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

async fn last_moment(end: &End) {
    end.drain.begun().await;
    sleep(end.patience).await;
}

/// Counts how often something was read.
struct Counted<'a, T> {
    io: T,
    reads: &'a AtomicU64,
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
