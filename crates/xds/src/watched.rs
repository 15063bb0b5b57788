//! A connection that remembers how it failed. HTTP/2 reports only that the connection was closed, and a server refuses the
//! certificate of a client after the handshake: with an alert that ends the connection.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How a connection failed, once it has.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionFailure(Arc<OnceLock<FailureText>>);

/// The error of a connection.
#[derive(Debug)]
pub(crate) struct FailureText {
    pub(crate) text: String,
    /// Whether the server sent an alert of TLS.
    pub(crate) is_alert: bool,
}

impl ConnectionFailure {
    pub(crate) fn get(&self) -> Option<&FailureText> {
        self.0.get()
    }

    fn note(&self, error: &io::Error) {
        let cause = error.get_ref();
        let cause = cause.and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let failure = FailureText {
            text: error.to_string(),
            is_alert: matches!(cause, Some(rustls::Error::AlertReceived(_))),
        };
        // The first is the cause of those after it.
        let _ = self.0.set(failure);
    }
}

/// A connection that notes its failure.
pub(crate) struct Watched<T> {
    pub(crate) io: T,
    pub(crate) failure: ConnectionFailure,
}

impl<T: AsyncRead + Unpin> Watched<T> {
    /// The result of writing. If nothing can be written, notes why: perhaps the server has said it. What it said last can
    /// be read, but the runtime may not know yet that it has arrived.
    fn noted<R>(
        &mut self,
        written: Poll<io::Result<R>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        let Poll::Ready(Err(error)) = &written else {
            return written;
        };
        let mut byte = [0];
        let read = Pin::new(&mut self.io).poll_read(cx, &mut ReadBuf::new(&mut byte));
        match read {
            Poll::Pending if is_closed(error) => return Poll::Pending,
            Poll::Ready(Err(said)) => self.failure.note(&said),
            Poll::Pending | Poll::Ready(Ok(())) => {}
        }
        self.failure.note(error);
        written
    }
}

/// Whether the server closed the connection. Its end can then be read, so that waiting for it ends.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, into);
        if let Poll::Ready(Err(error)) = &read {
            self.failure.note(error);
        }
        read
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.noted(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.noted(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
