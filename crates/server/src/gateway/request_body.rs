//! The body of a request on its way to a server.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// The body of a request: none, or what the client sends, as it comes.
pub(super) enum RequestBody {
    None,
    Client(Incoming, Arc<Progress>),
}

/// The client's body broke off, or was malformed.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request cannot be read: {0}")]
pub(super) struct BrokenBody(#[source] hyper::Error);

/// How far a body has come, for who waits for the answer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    frames: AtomicU64,
    has_ended: AtomicBool,
}

impl Progress {
    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

impl RequestBody {
    /// What a client sends, and how far it has come if there is anything to send.
    pub(super) fn of(body: Incoming) -> (Self, Option<Arc<Progress>>) {
        if body.is_end_stream() {
            return (Self::None, None);
        }
        let progress = Arc::new(Progress::default());
        (Self::Client(body, Arc::clone(&progress)), Some(progress))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let Self::Client(body, progress) = self.get_mut() else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        progress.frames.fetch_add(1, Ordering::Relaxed);
        if frame.is_none() || body.is_end_stream() {
            progress.has_ended.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BrokenBody)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Client(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::Client(body, _) => body.size_hint(),
        }
    }
}
