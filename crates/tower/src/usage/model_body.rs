//! The body of a request, read into memory before the request is decided.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use tidegate_usage::BodyEdit;

use super::UnreadBody;
use crate::body_memory::PooledBytes;

/// The body of a request, as far as it was read.
#[derive(Debug)]
pub struct ModelBody {
    bytes: PooledBytes,
    /// The most that is read.
    limit: usize,
    trailers: Option<HeaderMap>,
    is_whole: bool,
}

impl ModelBody {
    pub(super) fn new(bytes: PooledBytes, limit: usize) -> Self {
        Self {
            bytes,
            limit,
            trailers: None,
            is_whole: false,
        }
    }

    /// Whether all of it was read.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Reads its next part. Returns how many bytes that has.
    pub fn poll_part<B>(
        &mut self,
        body: &mut B,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, UnreadBody>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(context)) else {
            self.is_whole = true;
            return Poll::Ready(Ok(0));
        };
        let length = match frame.map_err(|_| UnreadBody::Broken)?.into_data() {
            Ok(data) => {
                if self.bytes.len() + data.len() > self.limit {
                    return Poll::Ready(Err(UnreadBody::TooLong(self.limit)));
                }
                self.bytes.push(&data)?;
                self.is_whole = body.is_end_stream();
                data.len()
            }
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                self.is_whole = true;
                0
            }
        };
        Poll::Ready(Ok(length))
    }

    /// Reads what has arrived, and waits for nothing.
    pub(super) async fn read_arrived<B>(&mut self, body: &mut B) -> Result<(), UnreadBody>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        self.is_whole |= body.is_end_stream();
        poll_fn(|context| {
            while !self.is_whole {
                match self.poll_part(body, context) {
                    Poll::Ready(read) => read?,
                    Poll::Pending => break,
                };
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// What was read of it.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    pub(super) fn edit(&mut self, edit: &BodyEdit) {
        self.bytes.replace(edit.range.clone(), edit.text);
    }

    /// Its bytes, and its trailers.
    pub fn into_parts(self) -> (Bytes, Option<HeaderMap>) {
        (self.bytes.into(), self.trailers)
    }
}
