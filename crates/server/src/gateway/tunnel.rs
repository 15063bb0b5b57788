//! Connections that have changed their protocol, such as WebSocket: bytes both ways, until one end closes.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::sleep;

use super::End;

/// How long nothing may come from either side.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Patience(pub(super) Duration);

/// Copies bytes both ways. What `held` stands for is held until then.
pub(super) async fn relay<H>(
    client: OnUpgrade,
    server: OnUpgrade,
    patience: Patience,
    end: End,
    held: H,
) {
    let ended = copy(client, server, patience, end).await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection with another protocol ended early");
    }
    drop(held);
}

async fn copy(
    client: OnUpgrade,
    server: OnUpgrade,
    patience: Patience,
    end: End,
) -> io::Result<()> {
    let changed = async { tokio::try_join!(client, server) };
    let both = tokio::time::timeout(patience.0, changed).await?;
    let (client, server) = both.map_err(io::Error::other)?;
    let reads = AtomicU64::new(0);
    let mut client = Counted {
        io: TokioIo::new(client),
        reads: &reads,
    };
    let mut server = Counted {
        io: TokioIo::new(server),
        reads: &reads,
    };
    tokio::select! {
        copied = copy_bidirectional(&mut client, &mut server) => copied.map(drop),
        () = silence(&reads, patience.0) => Err(io::ErrorKind::TimedOut.into()),
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
