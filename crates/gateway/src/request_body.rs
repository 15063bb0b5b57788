//! The body of a request, forwarded to a server.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tidegate_listen::clock::{Instant, now};
use tidegate_listen::stall::{BodyPace, BodyRate};
use tokio::sync::oneshot;

use crate::body_start::BodyStart;
use crate::hop;

/// The body of a request: none, or the client's as it arrives.
#[derive(Default)]
pub(crate) enum RequestBody {
    #[default]
    None,
    Client {
        incoming: Incoming,
        progress: Arc<Progress>,
        /// Bytes read earlier.
        again: Option<Bytes>,
        /// Trailers read earlier.
        trailers: Option<Box<HeaderMap>>,
        /// The trailers that may be forwarded.
        announced: Vec<HeaderName>,
        /// If the request holds a permit.
        broken: Option<Box<BrokenOff>>,
        /// The minimum rate, if bounded.
        rate: Option<BodyRate>,
        /// Measures the rate, from the first wait on.
        pace: Option<Box<BodyPace>>,
    },
}

/// A body that breaks off although its request holds a permit. The server may have begun to work, so the request is
/// neither ended nor aborted before the server has answered, or not in time.
#[derive(Debug)]
pub(crate) struct BrokenOff {
    error: Option<hyper::Error>,
    is_over: oneshot::Receiver<()>,
}

impl BrokenOff {
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokenBody>> {
        let _ = ready!(Pin::new(&mut self.is_over).poll(cx));
        Poll::Ready(self.error.take().map(BrokenBody::Unreadable))
    }
}

/// Why a client's body cannot be forwarded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenBody {
    /// It ended early or is malformed.
    #[error("the body of the request cannot be read: {0}")]
    Unreadable(#[source] hyper::Error),
    #[error("the length of the request body differs from its head")]
    Length,
    #[error("the body of the request arrives too slowly")]
    Slow,
}

/// The progress of a body, for the task that waits for the answer.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    frames: AtomicU64,
    /// When the last bytes arrived.
    ended: OnceLock<Instant>,
    /// Whether the gateway waits for the client to send more.
    is_awaited: AtomicBool,
    /// Whether the client was too slow.
    is_slow: AtomicBool,
    /// Whether it broke off.
    is_broken: AtomicBool,
}

impl Progress {
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    pub(crate) fn ended(&self) -> Option<Instant> {
        self.ended.get().copied()
    }

    /// Whether the client is slow, and not the server.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    fn end(&self) {
        let _ = self.ended.set(now());
    }
}

impl RequestBody {
    /// The body of a client, of which the start may have been read, and its progress if it is not empty.
    pub(crate) fn new(
        incoming: Incoming,
        start: Option<Box<BodyStart>>,
    ) -> (Self, Option<Arc<Progress>>) {
        if incoming.is_end_stream() && start.is_none() {
            return (Self::None, None);
        }
        let progress = Arc::new(Progress::default());
        let (mut again, mut trailers) = (None, None);
        if let Some(start) = start {
            (again, trailers) = (Some(start.bytes), start.trailers.map(Box::new));
            if start.is_whole {
                progress.end();
            }
        }
        let body = Self::Client {
            incoming,
            progress: Arc::clone(&progress),
            again,
            trailers,
            announced: Vec::new(),
            broken: None,
            rate: None,
            pace: None,
        };
        (body, Some(progress))
    }

    /// Sets a minimum rate.
    #[must_use]
    pub(crate) fn at_least(mut self, least: Option<BodyRate>) -> Self {
        if let Self::Client { rate, .. } = &mut self {
            *rate = least;
        }
        self
    }

    /// Forwards these trailers, if the body has them. By default none.
    pub(crate) fn forward_trailers(&mut self, names: Vec<HeaderName>) {
        if let Self::Client { announced, .. } = self {
            *announced = names;
        }
    }

    /// If it breaks off, it stays unfinished until the request is over.
    pub(crate) fn wait_if_broken(&mut self, is_over: oneshot::Receiver<()>) {
        if let Self::Client { broken, .. } = self {
            *broken = Some(Box::new(BrokenOff {
                error: None,
                is_over,
            }));
        }
    }

    /// Puts back bytes that were read from it.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        if let Self::Client { again, .. } = self {
            *again = Some(bytes);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let Self::Client {
            incoming,
            progress,
            again,
            trailers,
            announced,
            broken,
            rate,
            pace,
        } = self.get_mut()
        else {
            return Poll::Ready(None);
        };
        if let Some(bytes) = again.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Some(broken) = broken
            && broken.error.is_some()
        {
            return broken.poll_over(cx).map(|error| error.map(Err));
        }
        let mut frame = match trailers.take() {
            Some(trailers) => Poll::Ready(Some(Ok(Frame::trailers(*trailers)))),
            None => Pin::new(&mut *incoming).poll_frame(cx),
        };
        if let (Some(broken), Poll::Ready(Some(Err(_)))) = (&mut *broken, &frame)
            && let Poll::Ready(Some(Err(error))) = std::mem::replace(&mut frame, Poll::Pending)
        {
            progress.is_broken.store(true, Ordering::Relaxed);
            broken.error = Some(error);
            return broken.poll_over(cx).map(|error| error.map(Err));
        }
        progress
            .is_awaited
            .store(frame.is_pending(), Ordering::Relaxed);
        if frame.is_pending()
            && let Some(rate) = *rate
        {
            let pace = pace.get_or_insert_with(|| Box::new(BodyPace::new(rate)));
            ready!(pace.poll_wait(cx));
            progress.is_slow.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err(BrokenBody::Slow)));
        }
        let mut frame = ready!(frame);
        if let (Some(pace), Some(Ok(frame))) = (pace, &frame) {
            pace.came(frame.data_ref().map_or(0, Bytes::len));
        }
        progress.frames.fetch_add(1, Ordering::Relaxed);
        if frame.is_none() || incoming.is_end_stream() {
            progress.end();
        }
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            hop::strip_trailers(trailers, announced);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BrokenBody::Unreadable)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Client {
                incoming,
                again,
                trailers,
                ..
            } => again.is_none() && trailers.is_none() && incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let Self::Client {
            incoming, again, ..
        } = self
        else {
            return SizeHint::with_exact(0);
        };
        let hint = incoming.size_hint();
        let again = again.as_ref().map_or(0, Bytes::len) as u64;
        match hint.exact() {
            Some(length) => SizeHint::with_exact(length.saturating_add(again)),
            None => hint,
        }
    }
}
