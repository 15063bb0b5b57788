//! Sends a request: its head, and its body as it arrives.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::header::{CONTENT_LENGTH, TRAILER};
use http::{HeaderMap, HeaderName};
use hyper::body::Body as _;
use tokio::io::AsyncWrite;

use super::Broken;
use super::head::{read_length, write_header};
use crate::request_body::{BrokenBody, RequestBody};

/// The framing of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// Content length: this many bytes are left.
    Length(u64),
    /// Chunked.
    Chunks,
}

impl BodyFraming {
    /// The framing of a body with these headers.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let length = headers.get(CONTENT_LENGTH).and_then(read_length);
        length.map_or(Self::Chunks, Self::Length)
    }
}

/// A body that is being sent.
pub(super) struct Upload {
    body: RequestBody,
    framing: BodyFraming,
    /// The trailers that the head announced.
    announced: Vec<HeaderName>,
    /// The bytes taken from the body while nothing was sent yet.
    untold: Option<Bytes>,
}

impl Upload {
    pub(super) fn new(body: RequestBody, framing: BodyFraming, headers: &HeaderMap) -> Self {
        let values = headers.get_all(TRAILER).iter();
        let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let names = names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
        Self {
            body,
            framing,
            announced: names.collect(),
            untold: None,
        }
    }

    /// Moves the next part into `out`. Returns whether that was the last.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Out,
    ) -> Poll<Result<bool, Broken>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Err(Broken::Body(error))),
            None => return Poll::Ready(self.end(out, None)),
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                let trailers = frame.into_trailers().ok();
                return Poll::Ready(self.end(out, trailers.as_ref()));
            }
        };
        self.untold = (!out.has_sent).then(|| data.clone());
        Poll::Ready(self.put(out, data).map(|()| false))
    }

    fn put(&mut self, out: &mut Out, data: Bytes) -> Result<(), Broken> {
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.framing {
            BodyFraming::Length(left) => {
                let rest = left.checked_sub(data.len() as u64);
                *left = rest.ok_or(Broken::Body(BrokenBody::Length))?;
                out.data = data;
            }
            BodyFraming::Chunks => {
                out.text
                    .extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                out.data = data;
                out.after_data = b"\r\n";
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out, trailers: Option<&HeaderMap>) -> Result<bool, Broken> {
        match self.framing {
            BodyFraming::Length(0) => Ok(true),
            BodyFraming::Length(_) => Err(Broken::Body(BrokenBody::Length)),
            BodyFraming::Chunks => {
                out.text.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    if self.announced.contains(name) {
                        write_header(&mut out.text, name, value.as_bytes());
                    }
                }
                out.text.extend_from_slice(b"\r\n");
                Ok(true)
            }
        }
    }

    /// The original body, if nothing of it was sent.
    pub(super) fn into_body(mut self) -> RequestBody {
        if let Some(untold) = self.untold {
            self.body.put_back(untold);
        }
        self.body
    }
}

/// The write buffer: text, then data.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) text: Vec<u8>,
    data: Bytes,
    /// The text after the data.
    after_data: &'static [u8],
    /// How much of the text was sent.
    written: usize,
    /// Whether anything of this request was sent.
    pub(super) has_sent: bool,
    /// Whether bytes were written and not yet flushed.
    is_unflushed: bool,
}

impl Out {
    /// Whether everything was sent.
    pub(super) fn is_done(&self) -> bool {
        self.is_empty() && !self.is_unflushed
    }

    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.written == self.text.len()
    }

    /// Whether there is room for more data.
    pub(super) fn takes_data(&self) -> bool {
        self.data.is_empty()
    }

    /// Starts another request.
    pub(super) fn begin(&mut self) {
        self.text.clear();
        self.data = Bytes::new();
        self.after_data = b"";
        self.written = 0;
        self.has_sent = false;
        self.is_unflushed = true;
    }

    /// Writes the whole body.
    pub(super) fn poll_write<W>(&mut self, cx: &mut Context<'_>, io: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        let mut io = Pin::new(io);
        loop {
            if self.is_empty() {
                break;
            }
            let text = &self.text[self.written..];
            let count = if self.data.is_empty() {
                ready!(io.as_mut().poll_write(cx, text))?
            } else {
                let slices = [text, &self.data, self.after_data].map(IoSlice::new);
                ready!(io.as_mut().poll_write_vectored(cx, &slices))?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.has_sent = true;
            self.is_unflushed = true;
            self.advance(count);
        }
        if self.is_unflushed {
            ready!(io.poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, count: usize) {
        let of_text = count.min(self.text.len() - self.written);
        self.written += of_text;
        if self.written == self.text.len() {
            self.text.clear();
            self.written = 0;
        }
        let of_data = (count - of_text).min(self.data.len());
        self.data.advance(of_data);
        if self.data.is_empty() {
            let of_end = count - of_text - of_data;
            self.text.extend_from_slice(&self.after_data[of_end..]);
            self.after_data = b"";
        }
    }
}
