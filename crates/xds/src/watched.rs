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
    /// Notes why nothing can be written: perhaps the server has said it.
    fn note_write(&mut self, error: &io::Error, cx: &mut Context<'_>) {
        let mut byte = [0];
        let read = Pin::new(&mut self.io).poll_read(cx, &mut ReadBuf::new(&mut byte));
        if let Poll::Ready(Err(said)) = read {
            self.failure.note(&said);
        }
        self.failure.note(error);
    }
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
        if let Poll::Ready(Err(error)) = &written {
            self.note_write(error, cx);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if let Poll::Ready(Err(error)) = &flushed {
            self.note_write(error, cx);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
