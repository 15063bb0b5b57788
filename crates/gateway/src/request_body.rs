//! The body of a request on its way to a server.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tidegate_listen::clock::{Instant, now};
use tidegate_listen::stall::{BodyPace, BodyRate};

use crate::{forwarded, hop};

/// The body of a request: none, or what the client sends, as it comes.
#[derive(Default)]
pub(crate) enum RequestBody {
    #[default]
    None,
    Client {
        incoming: Incoming,
        progress: Arc<Progress>,
        /// Taken off before, and to be sent once more.
        again: Option<Bytes>,
        /// How fast it must come, if that matters.
        rate: Option<BodyRate>,
        /// Since it was first waited for.
        pace: Option<Box<BodyPace>>,
    },
}

/// Why a client's body cannot be sent on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenBody {
    /// It broke off, or was malformed.
    #[error("the body of the request cannot be read: {0}")]
    Unreadable(#[source] hyper::Error),
    #[error("the body of the request is not as long as its head says")]
    Length,
    #[error("the body of the request comes too slowly")]
    Slow,
}

/// How far a body has come, for who waits for the answer.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    frames: AtomicU64,
    /// Since when all of it is there.
    ended: OnceLock<Instant>,
    /// Whether somebody waits for the client to send more.
    is_awaited: AtomicBool,
    /// Whether the client was too slow.
    is_slow: AtomicBool,
}

impl Progress {
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    pub(crate) fn ended(&self) -> Option<Instant> {
        self.ended.get().copied()
    }

    /// Whether it is the client who is slow, and not the server that takes nothing.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    fn end(&self) {
        let _ = self.ended.set(now());
    }
}

impl RequestBody {
    /// What a client sends, and how far it has come if there is anything to send.
    pub(crate) fn of(incoming: Incoming) -> (Self, Option<Arc<Progress>>) {
        if incoming.is_end_stream() {
            return (Self::None, None);
        }
        let progress = Arc::new(Progress::default());
        let body = Self::Client {
            incoming,
            progress: Arc::clone(&progress),
            again: None,
            rate: None,
            pace: None,
        };
        (body, Some(progress))
    }

    /// The same, which must come so fast.
    #[must_use]
    pub(crate) fn at_least(mut self, least: Option<BodyRate>) -> Self {
        if let Self::Client { rate, .. } = &mut self {
            *rate = least;
        }
        self
    }

    /// Puts bytes back that were taken off it.
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
            rate,
            pace,
        } = self.get_mut()
        else {
            return Poll::Ready(None);
        };
        if let Some(bytes) = again.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let frame = Pin::new(&mut *incoming).poll_frame(cx);
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
            hop::strip_trailers(trailers);
            forwarded::strip(trailers);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BrokenBody::Unreadable)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Client {
                incoming, again, ..
            } => again.is_none() && incoming.is_end_stream(),
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
