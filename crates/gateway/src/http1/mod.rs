//! The HTTP/1.1 client of the gateway: one request at a time on a connection, sent and answered in the task that
//! waits for it.
//!
//! hyper's client passes requests and bodies through channels to a connection task. Heads are parsed by
//! `httparse`, as in hyper. `head.rs` has heads, `upload.rs` requests, `download.rs` bodies of answers, `stream.rs`
//! the socket. Why it exists: `docs/decisions/002-http1-client-of-the-gateway.md`.

mod download;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod head;
mod stream;
mod upload;

pub(super) use stream::Stream;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderValue, Method, request, response};
use hyper::body::{Frame, SizeHint};
use tidegate_listen::stall::Deadline;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::task::unconstrained;

use super::capacity::OpenConnection;
use super::forwarded::ForwardedHeaders;
use super::request_body::{BrokenBody, RequestBody};
use download::{Download, DownloadStep};
use upload::{BodyFraming, Out, Upload};

/// The sizes of a read: it grows for servers that send much. The largest, plus hyper's buffer, is the memory cost of a
/// client that does not read its answer.
const READ: usize = 8 * 1024;
const MOST_READ: usize = 32 * 1024;
const LEAST_READ: usize = 1024;

/// Why an answer is missing or incomplete.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("the connection was closed in the middle of an answer")]
    Closed,
    #[error("the answer is malformed: {0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Body(BrokenBody),
}

impl Broken {
    /// Whether the server has closed the connection.
    fn is_hang_up(&self) -> bool {
        let Self::Io(error) = self else {
            return false;
        };
        matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
        )
    }
}

/// A connection to a server.
pub(super) struct Http1 {
    stream: Stream,
    bytes: BytesMut,
    read_size: usize,
    out: Out,
    upload: Option<Upload>,
    /// Whether the request has a body.
    has_body: bool,
    /// Why no more can be sent. There may still be an answer.
    unsent: Option<Broken>,
    method: Method,
    /// The head of the answer, until it is known how its body begins.
    answer: Option<response::Parts>,
    download: Download,
    /// Whether the server has sent any bytes for this request.
    pub(crate) has_received: bool,
    /// How many heads it has sent, interim ones included.
    heads: u32,
    /// Whether the server keeps the connection for another request.
    is_kept: bool,
    /// The timer of the caller that waits for the answer.
    pub(super) deadline: Deadline,
    /// Held while the connection is open.
    counted: Option<OpenConnection>,
}

impl Http1 {
    pub(super) fn new(stream: Stream) -> Box<Self> {
        Box::new(Self {
            stream,
            bytes: BytesMut::new(),
            read_size: READ,
            out: Out::default(),
            upload: None,
            has_body: false,
            unsent: None,
            method: Method::GET,
            answer: None,
            download: Download::Ended,
            has_received: false,
            heads: 0,
            is_kept: true,
            deadline: Deadline::default(),
            counted: None,
        })
    }

    /// Counts the connection while it is open.
    #[must_use]
    pub(super) fn counted(mut self: Box<Self>, counted: Option<OpenConnection>) -> Box<Self> {
        self.counted = counted;
        self
    }

    /// Begins to send a request, with `host` in place of its own if given, and with the `forwarded` headers.
    pub(super) fn begin(
        &mut self,
        head: &request::Parts,
        host: Option<&HeaderValue>,
        forwarded: Option<&ForwardedHeaders>,
        body: RequestBody,
    ) {
        let framing = match &body {
            RequestBody::None => None,
            RequestBody::Client { .. } => Some(BodyFraming::from_headers(&head.headers)),
        };
        self.out.begin();
        head::write(&mut self.out.text, head, host, forwarded, framing);
        self.has_body = framing.is_some();
        self.upload = framing.map(|framing| Upload::new(body, framing, &head.headers));
        self.method.clone_from(&head.method);
        self.answer = None;
        self.has_received = false;
        self.heads = 0;
        self.is_kept = false;
    }

    /// Polls for the head of the answer, and sends the request meanwhile.
    pub(super) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<response::Parts, Broken>> {
        self.send_more(cx)?;
        loop {
            if self.answer.is_none() {
                self.read_heads()?;
            }
            // A malformed first chunk can still be answered, if it is found before the head is forwarded.
            if self.answer.is_some()
                && self.download.begins_well(&self.bytes)?.is_some()
                && let Some(head) = self.answer.take()
            {
                return Poll::Ready(Ok(head));
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(self.gone(Broken::Closed))),
                Poll::Ready(Ok(_)) => self.has_received = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.gone(error.into()))),
                // The body arrives later.
                Poll::Pending
                    if self.bytes.is_empty()
                        && let Some(head) = self.answer.take() =>
                {
                    return Poll::Ready(Ok(head));
                }
                // Bytes that the server sent before it closed may still be in the kernel; if not, the next
                // poll reports the end.
                Poll::Pending if self.unsent.as_ref().is_none_or(Broken::is_hang_up) => {
                    return Poll::Pending;
                }
                Poll::Pending => return Poll::Ready(Err(self.gone(Broken::Closed))),
            }
        }
    }

    /// Parses the received heads up to the final one; interim heads are skipped.
    fn read_heads(&mut self) -> Result<(), Broken> {
        if let Some(head) = head::read_final(&mut self.bytes, &mut self.heads)? {
            self.download = head::download(&self.method, &head)?;
            self.is_kept = head::keeps_alive(&head) && self.download != Download::UntilClose;
            self.answer = Some(head);
        }
        Ok(())
    }

    /// Polls for the next frame of the answer's body, and sends the rest of the request meanwhile.
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let is_sending = self.upload.is_some() || !self.out.is_done();
        if is_sending && self.send_more(cx).is_err() {
            // The server has answered; that the client stopped sending does not matter.
            self.upload = None;
            self.is_kept = false;
        }
        loop {
            match self.download.next(&mut self.bytes)? {
                DownloadStep::Frame(frame) => return Poll::Ready(Some(Ok(frame))),
                DownloadStep::Ended => return Poll::Ready(None),
                DownloadStep::More => {}
            }
            if ready!(self.poll_read(cx))? == 0 {
                let is_end = self.download == Download::UntilClose;
                self.download = Download::Ended;
                return Poll::Ready((!is_end).then_some(Err(Broken::Closed)));
            }
        }
    }

    /// Whether all of the answer has been read.
    pub(super) fn is_end(&self) -> bool {
        self.download == Download::Ended
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.download.size_hint()
    }

    /// The body of a request of which nothing was sent.
    pub(super) fn take_back(&mut self) -> Option<RequestBody> {
        match self.upload.take() {
            _ if self.out.has_sent => None,
            Some(upload) => Some(upload.into_body()),
            None if self.has_body => None,
            None => Some(RequestBody::None),
        }
    }

    /// Whether the connection can be kept for another request.
    pub(super) fn can_be_kept(&self) -> bool {
        self.is_kept && self.is_end() && self.bytes.is_empty() && self.has_sent_all()
    }

    /// Whether all of the request has been sent.
    pub(super) fn has_sent_all(&self) -> bool {
        self.upload.is_none() && self.unsent.is_none() && self.out.is_done()
    }

    /// Frees memory that the next request may not need.
    pub(super) fn rest(&mut self) {
        if self.bytes.capacity() > READ {
            self.bytes = BytesMut::new();
        }
        self.read_size = READ;
    }

    /// Whether a pooled connection is still usable: silent, and not closed.
    pub(super) fn is_free(&mut self) -> bool {
        if !self.can_be_kept() {
            return false;
        }
        // Overrides tokio's coop budget: after many checks the poll would return pending without looking.
        let reading = pin!(unconstrained(poll_fn(|cx| self.poll_read(cx))));
        let read = reading.poll(&mut Context::from_waker(Waker::noop()));
        read.is_pending()
    }

    /// The upgraded connection, with the bytes that the server has already sent.
    pub(super) fn into_tunnel(self: Box<Self>) -> Tunnel {
        Tunnel {
            stream: self.stream,
            bytes: self.bytes,
            _counted: self.counted,
        }
    }

    /// Sends as much as possible. Only errors of the client are returned here.
    fn send_more(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        if self.unsent.is_some() {
            return Ok(());
        }
        match self.poll_send(cx) {
            Poll::Ready(Err(error @ Broken::Body(_))) => return Err(error),
            Poll::Ready(Err(error)) => {
                // TLS does not report how much of its input was sent.
                self.out.has_sent |= matches!(self.stream, Stream::Tls(_));
                self.unsent = Some(error);
            }
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        Ok(())
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        loop {
            let mut is_awaited = false;
            if self.out.takes_data()
                && let Some(upload) = &mut self.upload
            {
                match upload.poll_next(cx, &mut self.out)? {
                    Poll::Ready(true) => self.upload = None,
                    Poll::Ready(false) => {}
                    Poll::Pending => is_awaited = true,
                }
            }
            ready!(self.out.poll_write(cx, &mut self.stream))?;
            if is_awaited {
                return Poll::Pending;
            }
            if self.upload.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.bytes.capacity() - self.bytes.len() < LEAST_READ {
            self.bytes.reserve(self.read_size);
        }
        let room = self.bytes.capacity() - self.bytes.len();
        let count = ready!(pin!(self.stream.read_buf(&mut self.bytes)).poll(cx))?;
        if count == room {
            self.read_size = MOST_READ.min(self.read_size * 2);
        }
        Poll::Ready(Ok(count))
    }

    /// The first error.
    fn gone(&mut self, error: Broken) -> Broken {
        self.unsent.take().unwrap_or(error)
    }
}

/// Stops sending on a connection, and waits until the other end closes it. Bytes that still arrive are discarded.
pub(super) async fn close(io: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    // If this fails the connection is closed already, and so is reading.
    let _ = io.shutdown().await;
    let mut bytes = [0; LEAST_READ];
    while io.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

/// An upgraded connection.
pub(super) struct Tunnel {
    stream: Stream,
    bytes: BytesMut,
    _counted: Option<OpenConnection>,
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let count = self.bytes.len().min(buffer.remaining());
        buffer.put_slice(&self.bytes[..count]);
        self.bytes.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
