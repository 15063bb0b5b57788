//! The body of a request on its way to a server.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::Instant;

use super::{forwarded, hop};

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
    /// Since when all of it is there.
    ended: OnceLock<Instant>,
    /// Whether somebody waits for the client to send more.
    is_awaited: AtomicBool,
}

impl Progress {
    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    pub(super) fn ended(&self) -> Option<Instant> {
        self.ended.get().copied()
    }

    /// Whether it is the client who is slow, and not the server that takes nothing.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "when the client has sent the last of it, as the middleware sees the time"
    )]
    fn end(&self) {
        let _ = self.ended.set(Instant::now());
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
        let frame = Pin::new(&mut *body).poll_frame(cx);
        progress
            .is_awaited
            .store(frame.is_pending(), Ordering::Relaxed);
        let mut frame = ready!(frame);
        progress.frames.fetch_add(1, Ordering::Relaxed);
        if frame.is_none() || body.is_end_stream() {
            progress.end();
        }
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            hop::strip(trailers);
            forwarded::strip(trailers);
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
