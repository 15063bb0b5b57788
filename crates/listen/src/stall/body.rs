//! Times out a response whose client does not read it. Over HTTP/2 a client can stop granting window: the body is then
//! not polled, so a task watches it, and drops the body with everything that it holds.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::Moves;

/// Why a response ends early.
#[derive(Debug, thiserror::Error)]
#[error("the client read nothing of the response for too long")]
struct NotTaken;

/// A body that is dropped if it is not polled for too long.
pub struct TakenBody<B> {
    shared: Arc<BodyState<B>>,
    watching: AbortHandle,
}

struct BodyState<B> {
    /// `None` once it is dropped.
    body: Mutex<Option<Pin<Box<B>>>>,
    polls: Moves,
    /// Whether the last poll was pending: then the body is slow, and not the client.
    is_pending: AtomicBool,
}

impl<B: Body + Send + 'static> TakenBody<B> {
    /// Drops a body that is not polled for this long.
    pub fn new(body: B, timeout: Duration) -> Self {
        let shared = Arc::new(BodyState {
            body: Mutex::new(Some(Box::pin(body))),
            polls: Moves::default(),
            is_pending: AtomicBool::new(false),
        });
        let watched = Arc::clone(&shared);
        let watching = tokio::spawn(async move {
            loop {
                watched.polls.stalled(timeout).await;
                let mut body = watched.body.lock();
                if !watched.is_pending.load(Ordering::Relaxed) {
                    tracing::debug!("{NotTaken}");
                    *body = None;
                    return;
                }
            }
        });
        Self {
            shared,
            watching: watching.abort_handle(),
        }
    }
}

impl<B> Drop for TakenBody<B> {
    fn drop(&mut self) {
        self.watching.abort();
        // The task may end later.
        drop(self.shared.body.lock().take());
    }
}

impl<B: Body> Body for TakenBody<B>
where
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = B::Data;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let mut body = self.shared.body.lock();
        let Some(body) = &mut *body else {
            return Poll::Ready(Some(Err(NotTaken.into())));
        };
        let frame = body.as_mut().poll_frame(cx);
        self.shared.polls.note();
        let is_pending = frame.is_pending();
        self.shared.is_pending.store(is_pending, Ordering::Relaxed);
        frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        let body = self.shared.body.lock();
        body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.shared.body.lock();
        body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};
    use tokio::time::sleep;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// A body that reports when it is dropped. Without bytes it is pending for ever.
    struct Held {
        body: Option<Full<Bytes>>,
        _held: Arc<()>,
    }

    impl Body for Held {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            match &mut self.body {
                Some(body) => Pin::new(body).poll_frame(cx),
                None => Poll::Pending,
            }
        }
    }

    fn held(body: Option<&'static str>) -> (TakenBody<Held>, Arc<()>) {
        let held_by_body = Arc::new(());
        let body = Held {
            body: body.map(Full::from),
            _held: Arc::clone(&held_by_body),
        };
        (TakenBody::new(body, TIMEOUT), held_by_body)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_is_let_go() {
        let (mut body, held_by_body) = held(Some("bytes"));
        sleep(TIMEOUT / 2).await;
        assert_eq!(Arc::strong_count(&held_by_body), 2);
        sleep(TIMEOUT).await;
        assert_eq!(Arc::strong_count(&held_by_body), 1);
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_the_server_may_wait() {
        let (mut body, held_by_body) = held(None);
        let asked = tokio::time::timeout(TIMEOUT * 5, body.frame()).await;
        assert!(asked.is_err(), "nothing comes");
        assert_eq!(Arc::strong_count(&held_by_body), 2);
        drop(body);
        sleep(TIMEOUT).await;
        assert_eq!(Arc::strong_count(&held_by_body), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_is_whole() {
        let (body, held_by_body) = held(Some("bytes"));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "bytes");
        assert_eq!(Arc::strong_count(&held_by_body), 1);
    }
}
