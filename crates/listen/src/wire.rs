//! The byte stream of a connection: replays the bytes read to detect the HTTP version, records the state of the
//! connection, times out writes, answers an ambiguous head with 400, and lingers at the end so that a reset does not
//! lose the last answer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::clock::http_date;
use crate::connection_state::ConnectionState;
use crate::frames::Frames;
use crate::framing::FramingReader;
use crate::resting::{RestingPlace, SocketState};
use crate::stall::{ConnectionPhase, Linger, Stall};

/// The preface of an HTTP/2 client.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest answer that is copied into one write.
const SMALL: usize = 1024;

/// The HTTP version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
}

/// The bytes that were read to detect the version of a connection.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    bytes: [u8; PREFACE.len()],
    start: usize,
    end: usize,
}

impl Opening {
    /// Reads until the version is certain: one byte is enough for most HTTP/1 requests.
    pub(crate) async fn read<T: AsyncRead + Unpin>(io: &mut T) -> io::Result<(Self, HttpVersion)> {
        let mut opening = Self::default();
        while opening.end < PREFACE.len() {
            let read = io.read(&mut opening.bytes[opening.end..]).await?;
            opening.end += read;
            if read == 0 || opening.bytes[..opening.end] != PREFACE[..opening.end] {
                return Ok((opening, HttpVersion::Http1));
            }
        }
        Ok((opening, HttpVersion::Http2))
    }

    /// Room for bytes that are read later.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    /// Records `read` more bytes.
    pub(crate) fn add(&mut self, read: usize) {
        self.end += read;
    }
}

/// A socket, or TLS on one.
#[derive(Debug)]
pub(crate) struct Wire<T> {
    /// None after it was left for the next wire.
    io: Option<T>,
    /// Where it is left, if the connection may rest.
    resting_place: Option<RestingPlace<T>>,
    opening: Opening,
    state: Arc<ConnectionState>,
    /// Inspects HTTP/1 framing, if requests are forwarded to another server.
    framing: Option<FramingReader>,
    /// Inspects HTTP/2 frames.
    frames: Option<Box<Frames>>,
    refusal: BadRequestAnswer,
    /// Whether the last operation was a completed flush: then no earlier answer is pending.
    is_flushed: bool,
    has_shut_down: bool,
    linger: Linger,
    writes: Stall,
}

/// The settings of a wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireSettings {
    /// Whether ambiguous requests are refused.
    pub(crate) is_strict: bool,
    /// Whether clients that flood the connection with HTTP/2 control frames are disconnected.
    pub(crate) is_http2: bool,
    /// How long a client may read nothing.
    pub(crate) write_timeout: Duration,
}

/// The 400 answer to an ambiguous head.
#[derive(Debug, Default)]
struct BadRequestAnswer {
    /// The text, once it is to be written.
    answer: Option<Vec<u8>>,
    written: usize,
    /// Whether it waits for the answers to earlier requests.
    is_waiting: bool,
}

impl<T> Wire<T> {
    pub(crate) fn new(
        io: T,
        opening: Opening,
        state: Arc<ConnectionState>,
        settings: WireSettings,
    ) -> Self {
        Self {
            io: Some(io),
            resting_place: None,
            opening,
            state,
            framing: settings.is_strict.then(FramingReader::new),
            frames: settings.is_http2.then(|| Box::new(Frames::new())),
            refusal: BadRequestAnswer::default(),
            is_flushed: true,
            has_shut_down: false,
            linger: Linger::default(),
            writes: Stall::new(settings.write_timeout),
        }
    }

    /// Lets the connection rest: its socket is moved to `resting_place` instead of being shut down.
    pub(crate) fn leaving_socket_in(mut self, resting_place: RestingPlace<T>) -> Self {
        self.resting_place = Some(resting_place);
        self
    }

    fn io(&mut self) -> io::Result<&mut T> {
        self.io
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Leaves the socket for the next wire, if the connection is to rest.
    fn leave_socket(&mut self) -> bool {
        let Some(resting_place) = &self.resting_place else {
            return false;
        };
        let mut socket = resting_place.lock();
        if !matches!(*socket, SocketState::Expected) {
            return false;
        }
        let Some(io) = self.io.take() else {
            return false;
        };
        *socket = SocketState::Here(io);
        true
    }

    /// How many of these bytes may be parsed.
    fn look(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(frames) = &mut self.frames {
            frames.received(bytes)?;
        }
        match &mut self.framing {
            Some(framing) if !self.state.is_tunnel() => framing.look(bytes),
            _ => Ok(bytes.len()),
        }
    }

    fn has_refused(&self) -> bool {
        self.framing
            .as_ref()
            .is_some_and(FramingReader::has_refused)
    }

    fn is_busy(&self) -> bool {
        matches!(self.state.phase(), ConnectionPhase::Busy(_))
    }

    /// Records the result of a write or a flush.
    fn wrote<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
        is_flush: bool,
    ) -> Poll<io::Result<R>> {
        self.is_flushed = is_flush && matches!(written, Poll::Ready(Ok(_)));
        if self.is_flushed && self.refusal.is_waiting && !self.is_busy() {
            // Reads and writes happen in the same task.
            self.refusal.is_waiting = false;
            cx.waker().wake_by_ref();
        }
        match ready!(self.writes.watch(cx, written)) {
            Ok(written) => Poll::Ready(written),
            Err(stalled) => Poll::Ready(Err(stalled.into())),
        }
    }
}

impl<T> Drop for Wire<T> {
    fn drop(&mut self) {
        if self.io.is_some() {
            self.state.let_go();
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Wire<T> {
    /// Answers 400 after the answers to earlier requests, and closes. Ends with an error, because hyper has nothing
    /// more to read.
    fn poll_refuse(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The bytes arrived before the upgrade was known, and were dropped.
        if self.state.is_tunnel() {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        if self.refusal.answer.is_none() {
            if self.is_busy() || !self.is_flushed {
                self.refusal.is_waiting = true;
                return Poll::Pending;
            }
            let date = http_date();
            self.refusal.answer = Some(format!(
                "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: {date}\r\n\r\n"
            ).into_bytes());
        }
        while let Some(rest) = self.refusal.rest() {
            let Some(io) = &mut self.io else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            let written = Pin::new(io).poll_write(cx, rest);
            match ready!(self.wrote(cx, written, false))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.refusal.written += count,
            }
        }
        ready!(Pin::new(&mut *self).poll_flush(cx))?;
        ready!(Pin::new(&mut *self).poll_shutdown(cx))?;
        Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
    }
}

impl BadRequestAnswer {
    /// The unwritten rest.
    fn rest(&self) -> Option<&[u8]> {
        let rest = &self.answer.as_ref()?[self.written..];
        (!rest.is_empty()).then_some(rest)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.has_refused() {
            return this.poll_refuse(cx);
        }
        let before = buffer.filled().len();
        let opening = &mut this.opening;
        if opening.start < opening.end {
            let count = buffer.remaining().min(opening.end - opening.start);
            buffer.put_slice(&opening.bytes[opening.start..opening.start + count]);
            opening.start += count;
        } else {
            ready!(Pin::new(this.io()?).poll_read(cx, buffer))?;
        }
        let read = &buffer.filled()[before..];
        if read.is_empty() {
            return Poll::Ready(Ok(()));
        }
        this.state.note_read();
        let passed = this.look(read)?;
        buffer.set_filled(before + passed);
        // An empty read would mean the end of the connection.
        if passed == 0 {
            return this.poll_refuse(cx);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.io()?).poll_write(cx, bytes);
        if let (Some(frames), Poll::Ready(Ok(count))) = (&mut self.frames, &written) {
            frames.sent(&bytes[..*count]);
        }
        self.wrote(cx, written, false)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(self.io()?).poll_flush(cx);
        self.wrote(cx, flushed, true)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.leave_socket() {
            return Poll::Ready(Ok(()));
        }
        if !this.has_shut_down {
            ready!(Pin::new(this.io()?).poll_shutdown(cx))?;
            this.has_shut_down = true;
        }
        let is_expected = matches!(this.state.phase(), ConnectionPhase::Head(_));
        let Some(io) = &mut this.io else {
            return Poll::Ready(Ok(()));
        };
        this.linger.poll(io, cx, is_expected).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = if length <= SMALL {
            // Copying a small answer is cheaper than a vectored write.
            let (mut whole, mut end) = ([0; SMALL], 0);
            for slice in slices {
                whole[end..end + slice.len()].copy_from_slice(slice);
                end += slice.len();
            }
            Pin::new(self.io()?).poll_write(cx, &whole[..end])
        } else {
            Pin::new(self.io()?).poll_write_vectored(cx, slices)
        };
        if let (Some(frames), Poll::Ready(Ok(count))) = (&mut self.frames, &written) {
            let mut left = *count;
            for slice in slices {
                let sent = left.min(slice.len());
                frames.sent(&slice[..sent]);
                left -= sent;
            }
        }
        self.wrote(cx, written, false)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    const SETTINGS: WireSettings = WireSettings {
        is_strict: false,
        is_http2: false,
        write_timeout: Duration::from_secs(10),
    };

    #[tokio::test]
    async fn the_opening_reveals_the_version_and_is_replayed() {
        for (sent, version) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], HttpVersion::Http1),
            (b"POST / HTTP/1.1\r\n\r\n", HttpVersion::Http1),
            (
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nand more",
                HttpVersion::Http2,
            ),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n", HttpVersion::Http1),
            (b"", HttpVersion::Http1),
        ] {
            let mut io = sent;
            let (opening, found) = Opening::read(&mut io).await.unwrap();
            assert_eq!(found, version);
            let state = Arc::new(ConnectionState::new(true));
            let mut read = Vec::new();
            let io = tokio::io::join(io, tokio::io::sink());
            let mut wire = Wire::new(io, opening, state, SETTINGS);
            wire.read_to_end(&mut read).await.unwrap();
            assert_eq!(read, sent);
        }
    }

    #[tokio::test]
    async fn a_client_that_still_sends_is_read_to_its_end() {
        let (mut client, server) = tokio::io::duplex(8);
        let state = Arc::new(ConnectionState::new(true));
        state.note_read();
        let mut wire = Wire::new(server, Opening::default(), state, SETTINGS);
        let closes = tokio::spawn(async move { wire.shutdown().await });
        client.write_all(&[b'x'; 1000]).await.unwrap();
        drop(client);
        closes.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_cut() {
        let (client, server) = tokio::io::duplex(8);
        let state = Arc::new(ConnectionState::new(true));
        let mut wire = Wire::new(server, Opening::default(), state, SETTINGS);
        let written = wire.write_all(&[b'x'; 1000]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(client);
    }

    #[tokio::test]
    async fn a_head_with_two_meanings_is_answered_after_what_came_before_it() {
        let (mut client, server) = tokio::io::duplex(1024);
        let state = Arc::new(ConnectionState::new(true));
        let settings = WireSettings {
            is_strict: true,
            ..SETTINGS
        };
        let mut wire = Wire::new(server, Opening::default(), Arc::clone(&state), settings);
        let good = "GET / HTTP/1.1\r\n\r\n";
        let bad = "GET / HTTP/1.1\nhost: a\r\n\r\n";
        client
            .write_all(format!("{good}{bad}").as_bytes())
            .await
            .unwrap();
        let mut read = [0; 100];
        let length = wire.read(&mut read).await.unwrap();
        assert_eq!(&read[..length], good.as_bytes());
        let request = crate::connection_state::RequestGuard::begin(&state);
        let reading = tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(wire);
            let answering = async {
                writer.write_all(b"first").await.unwrap();
                drop(request);
                writer.flush().await.unwrap();
            };
            let mut bytes = [0; 100];
            tokio::join!(reader.read(&mut bytes), answering).0
        });
        let mut answers = String::new();
        client.read_to_string(&mut answers).await.unwrap();
        assert!(
            answers.starts_with("firstHTTP/1.1 400 Bad Request\r\n"),
            "{answers}"
        );
        drop(client);
        assert!(reading.await.unwrap().is_err());
    }
}
