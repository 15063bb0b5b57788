//! A connection's bytes: what was read to tell HTTP/1 from HTTP/2 is given back, arrivals are noted,
//! and an answer is not lost to a reset when the connection closes while the client still sends.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::activity::{Activity, Phase};
use crate::frames::Frames;
use crate::framing::Framing;

/// What an HTTP/2 client sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long, and for how many bytes, a client that still sends is listened to after the answer.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024;

/// How long what is written in one piece may be.
const SMALL: usize = 1024;

/// The protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// The first bytes of a connection, as far as they had to be read to tell its version.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    bytes: [u8; PREFACE.len()],
    start: usize,
    end: usize,
}

impl Opening {
    /// Reads until the version is certain: one byte is enough for most of HTTP/1.
    pub(crate) async fn read<T: AsyncRead + Unpin>(io: &mut T) -> io::Result<(Self, Version)> {
        let mut opening = Self::default();
        while opening.end < PREFACE.len() {
            let read = io.read(&mut opening.bytes[opening.end..]).await?;
            opening.end += read;
            if read == 0 || opening.bytes[..opening.end] != PREFACE[..opening.end] {
                return Ok((opening, Version::Http1));
            }
        }
        Ok((opening, Version::Http2))
    }
}

/// A socket, or TLS on one.
#[derive(Debug)]
pub(crate) struct Wire<T> {
    io: T,
    opening: Opening,
    activity: Arc<Activity>,
    /// Reads along, where requests go on to another server.
    framing: Option<Framing>,
    /// Reads along with HTTP/2.
    frames: Option<Box<Frames>>,
    closing: Closing,
    stall: Stall,
}

/// How long a client may take nothing of what it is sent.
#[derive(Debug, Default)]
struct Stall {
    patience: Option<Duration>,
    /// Since the client last took something, while more waits to be sent.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// Sees how a write went.
    fn note<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let (Poll::Pending, Some(patience)) = (&written, self.patience) else {
            self.waiting = None;
            return written;
        };
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

#[derive(Debug, Default)]
struct Closing {
    has_said_so: bool,
    discarded: usize,
    patience: Option<Pin<Box<Sleep>>>,
}

impl<T> Wire<T> {
    pub(crate) fn new(io: T, opening: Opening, activity: Arc<Activity>) -> Self {
        Self {
            io,
            opening,
            activity,
            framing: None,
            frames: None,
            closing: Closing::default(),
            stall: Stall::default(),
        }
    }

    /// The same, refusing requests with two meanings.
    #[must_use]
    pub(crate) fn strict(mut self, is_strict: bool) -> Self {
        self.framing = is_strict.then(Framing::new);
        self
    }

    /// The same, ending a connection whose client floods it with frames of HTTP/2 that carry nothing.
    #[must_use]
    pub(crate) fn framed(mut self, is_http2: bool) -> Self {
        self.frames = is_http2.then(|| Box::new(Frames::new()));
        self
    }

    /// The same, for so long at the most while the client takes nothing of what it is sent.
    #[must_use]
    pub(crate) fn stall(mut self, patience: Duration) -> Self {
        self.stall.patience = Some(patience);
        self
    }

    fn look(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        if let Some(frames) = &mut self.frames {
            return frames.received(bytes);
        }
        match &mut self.framing {
            Some(framing) if !self.activity.is_tunnel() => framing.look(bytes),
            _ => Ok(()),
        }
    }
}

impl<T> Drop for Wire<T> {
    fn drop(&mut self) {
        self.activity.let_go();
    }
}

impl<T: AsyncRead + Unpin> Wire<T> {
    /// Reads on until the client closes too. A socket that closes with bytes unread resets the
    /// connection, and takes with it the answer that says why.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.io).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.closing.discarded += buffer.filled().len();
                    if self.closing.discarded > LINGER_BYTES {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        let still_sends = self.closing.discarded > 0;
        if !still_sends && !matches!(self.activity.phase(), Phase::Head(_)) {
            return Poll::Ready(());
        }
        let patience = self
            .closing
            .patience
            .get_or_insert_with(|| Box::pin(sleep(LINGER)));
        patience.as_mut().poll(cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let opening = &mut this.opening;
        if opening.start < opening.end {
            let count = buffer.remaining().min(opening.end - opening.start);
            buffer.put_slice(&opening.bytes[opening.start..opening.start + count]);
            opening.start += count;
            this.activity.note_read();
            let before = buffer.filled().len() - count;
            return Poll::Ready(this.look(&mut buffer.filled_mut()[before..]));
        }
        // A spoiled head is parsed only once it looks like a whole one.
        if this.framing.as_ref().is_some_and(Framing::has_refused) {
            // It came too early to be looked at as what it is, behind a request for another protocol.
            if this.activity.is_tunnel() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            let end = b"\n\n";
            buffer.put_slice(&end[..end.len().min(buffer.remaining())]);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            this.activity.note_read();
        }
        Poll::Ready(this.look(&mut buffer.filled_mut()[before..]))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if let (Some(frames), Poll::Ready(Ok(count))) = (&mut self.frames, &written) {
            frames.sent(&bytes[..*count]);
        }
        self.stall.note(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.stall.note(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closing.has_said_so {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            self.closing.has_said_so = true;
        }
        self.poll_linger(cx).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = if length <= SMALL {
            // To put a small answer together takes less than to have the kernel do it.
            let (mut whole, mut end) = ([0; SMALL], 0);
            for slice in slices {
                whole[end..end + slice.len()].copy_from_slice(slice);
                end += slice.len();
            }
            Pin::new(&mut self.io).poll_write(cx, &whole[..end])
        } else {
            Pin::new(&mut self.io).poll_write_vectored(cx, slices)
        };
        if let (Some(frames), Poll::Ready(Ok(count))) = (&mut self.frames, &written) {
            let mut left = *count;
            for slice in slices {
                let sent = left.min(slice.len());
                frames.sent(&slice[..sent]);
                left -= sent;
            }
        }
        self.stall.note(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn the_opening_tells_the_version_and_is_given_back() {
        for (sent, version) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], Version::Http1),
            (b"POST / HTTP/1.1\r\n\r\n", Version::Http1),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nand more", Version::Http2),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n", Version::Http1),
            (b"", Version::Http1),
        ] {
            let mut io = sent;
            let (opening, told) = Opening::read(&mut io).await.unwrap();
            assert_eq!(told, version);
            let activity = Arc::new(Activity::new(true));
            let mut read = Vec::new();
            let mut wire = Wire::new(io, opening, activity);
            wire.read_to_end(&mut read).await.unwrap();
            assert_eq!(read, sent);
        }
    }

    #[tokio::test]
    async fn a_client_that_still_sends_is_heard_to_its_end() {
        let (mut client, server) = tokio::io::duplex(8);
        let activity = Arc::new(Activity::new(true));
        activity.note_read();
        let mut wire = Wire::new(server, Opening::default(), activity);
        let closes = tokio::spawn(async move { wire.shutdown().await });
        client.write_all(&[b'x'; 1000]).await.unwrap();
        drop(client);
        closes.await.unwrap().unwrap();
    }
}
