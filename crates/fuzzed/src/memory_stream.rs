//! A connection in memory: what its peer has sent is there, and what is written goes nowhere.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use hyper::rt::{Read, ReadBufCursor, Write};

/// The most polls of a connection in memory; it is never waiting for anything but itself.
const MOST_POLLS: usize = 100_000;

/// A connection whose peer closes it after these bytes.
pub(crate) struct MemoryStream<'b> {
    bytes: &'b [u8],
    /// Whether the peer sends only after something was written.
    is_answer: bool,
}

impl<'b> MemoryStream<'b> {
    /// A connection to a client that sends these bytes.
    pub(crate) fn from_client(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            is_answer: false,
        }
    }

    /// A connection to a server that answers with these bytes.
    pub(crate) fn from_server(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            is_answer: true,
        }
    }
}

impl Read for MemoryStream<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_answer {
            return Poll::Pending;
        }
        let count = self.bytes.len().min(buffer.remaining());
        let (read, rest) = self.bytes.split_at(count);
        buffer.put_slice(read);
        self.bytes = rest;
        Poll::Ready(Ok(()))
    }
}

impl Write for MemoryStream<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_answer = false;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls until `poll` is ready, without a runtime.
pub(crate) fn poll_to_end<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..MOST_POLLS {
        if let Poll::Ready(ready) = poll(&mut cx) {
            return ready;
        }
    }
    unreachable!("a connection in memory waits for something")
}
