//! The body of an answer, read on the side. Its end passes on once its cost is settled.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tidegate_usage::{AnswerEnd, AnswerReader, PassedBytes};
use tokio::task::JoinHandle;

use super::call::Settling;

/// The body of an answer: as it comes, or read for the usage that it reports.
pub struct UsageBody<B: Body> {
    inner: B,
    reading: Option<Box<BodyReading<B::Error>>>,
}

/// What is known of a body that is read.
struct BodyReading<E> {
    reader: AnswerReader,
    settling: Settling,
    /// While the cost is being settled: nothing passes on.
    waits: Option<JoinHandle<()>>,
    /// Bytes that pass on next.
    passing: <PassedBytes as IntoIterator>::IntoIter,
    /// Bytes that were held back, at the end.
    held_back: Option<Bytes>,
    /// What passes on after them.
    last: Option<Result<Frame<Bytes>, E>>,
    has_ended: bool,
}

impl<B: Body> UsageBody<B> {
    /// A body that is not read.
    pub fn plain(inner: B) -> Self {
        Self {
            inner,
            reading: None,
        }
    }

    pub(super) fn read(inner: B, reader: AnswerReader, settling: Settling) -> Self {
        let reading = Box::new(BodyReading {
            reader,
            settling,
            waits: None,
            passing: PassedBytes::new().into_iter(),
            held_back: None,
            last: None,
            has_ended: false,
        });
        Self {
            inner,
            reading: Some(reading),
        }
    }
}

impl<E> BodyReading<E> {
    /// Begins to settle what was read, if that was not done before.
    fn settle(&mut self, end: AnswerEnd) {
        if self.settling.is_open() {
            let (result, counts) = self.reader.charge(end, &self.settling.estimate);
            self.waits = self.settling.settle(result, &counts);
        }
    }

    /// Ends the answer: what was held back passes on, once the cost is settled.
    fn end(&mut self, end: AnswerEnd) {
        if !self.has_ended {
            self.has_ended = true;
            self.held_back = self.reader.end();
            self.settle(end);
        }
    }

    fn take(&mut self, frame: Result<Frame<Bytes>, E>, is_last: bool) {
        let data = match frame {
            Ok(frame) => frame.into_data(),
            Err(error) => {
                self.last = Some(Err(error));
                return self.end(AnswerEnd::Cut);
            }
        };
        match data {
            Ok(data) => self.passing = self.reader.pass(data).into_iter(),
            Err(trailers) => {
                self.last = Some(Ok(trailers));
                return self.end(AnswerEnd::Complete);
            }
        }
        if is_last {
            self.end(AnswerEnd::Complete);
        } else if self.reader.is_final() {
            self.settle(AnswerEnd::Complete);
        }
    }
}

impl<B: Body> Drop for UsageBody<B> {
    fn drop(&mut self) {
        if let Some(reading) = &mut self.reading {
            reading.settle(AnswerEnd::Cut);
        }
    }
}

impl<B> Body for UsageBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let Some(reading) = &mut this.reading else {
            return Pin::new(&mut this.inner).poll_frame(cx);
        };
        loop {
            if let Some(waits) = &mut reading.waits {
                // A task that panicked has settled nothing: the estimate stays.
                let _ = ready!(Pin::new(waits).poll(cx));
                reading.waits = None;
            }
            let next = reading.passing.next();
            if let Some(bytes) = next.or_else(|| reading.held_back.take()) {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if let Some(last) = reading.last.take() {
                return Poll::Ready(Some(last));
            }
            if reading.has_ended {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(frame) => reading.take(frame, this.inner.is_end_stream()),
                None => reading.end(AnswerEnd::Complete),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.reading {
            None => self.inner.is_end_stream(),
            Some(reading) => {
                reading.has_ended
                    && reading.waits.is_none()
                    && reading.passing.len() == 0
                    && reading.held_back.is_none()
                    && reading.last.is_none()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.reading {
            None => self.inner.size_hint(),
            Some(reading) if reading.passing.len() == 0 => match self.inner.size_hint().exact() {
                Some(length) if !reading.reader.leaves_out() => SizeHint::with_exact(length),
                _ => SizeHint::default(),
            },
            Some(_) => SizeHint::default(),
        }
    }
}
