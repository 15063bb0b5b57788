//! An answer whose client may stop taking it without a word: over HTTP/2, by giving no more window. Nobody
//! then asks for the next frame, so that nothing here would notice. After a while it is let go, with the
//! connection to the server and the places that it holds.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Why the rest of an answer does not come.
#[derive(Debug, thiserror::Error)]
#[error("the client took nothing of the answer for too long")]
struct Forsaken;

/// A body that is watched while nobody asks for it.
pub(crate) struct WatchedBody<B> {
    shared: Arc<Mutex<Shared<B>>>,
    watching: AbortHandle,
}

struct Shared<B> {
    /// Until it is let go.
    body: Option<Pin<Box<B>>>,
    /// How often it was asked for more.
    asked: u64,
    /// Whether it is the server that has to say more, and not the client that has to ask.
    is_awaited: bool,
}

impl<B: Body + Send + 'static> WatchedBody<B> {
    /// Lets a body go of which nothing is asked for so long.
    pub(crate) fn new(body: B, patience: Duration) -> Self {
        let shared = Arc::new(Mutex::new(Shared {
            body: Some(Box::pin(body)),
            asked: 0,
            is_awaited: false,
        }));
        let watched = Arc::downgrade(&shared);
        let watching = tokio::spawn(async move {
            let mut before = 0;
            loop {
                sleep(patience).await;
                let Some(shared) = watched.upgrade() else {
                    return;
                };
                let mut shared = shared.lock();
                if shared.asked == before && !shared.is_awaited {
                    tracing::debug!("{Forsaken}");
                    shared.body = None;
                    return;
                }
                before = shared.asked;
            }
        });
        Self {
            shared,
            watching: watching.abort_handle(),
        }
    }
}

impl<B> Drop for WatchedBody<B> {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl<B: Body> Body for WatchedBody<B>
where
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = B::Data;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let mut shared = self.shared.lock();
        let Some(body) = &mut shared.body else {
            return Poll::Ready(Some(Err(Forsaken.into())));
        };
        let frame = body.as_mut().poll_frame(cx);
        shared.asked = shared.asked.wrapping_add(1);
        shared.is_awaited = frame.is_pending();
        frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        let shared = self.shared.lock();
        shared.body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let shared = self.shared.lock();
        shared
            .body
            .as_ref()
            .map(Body::size_hint)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A body that says when it is let go. Without bytes, more of it never comes.
    struct Held {
        body: Option<Full<Bytes>>,
        _place: Arc<()>,
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

    fn held(body: Option<&'static str>) -> (WatchedBody<Held>, Arc<()>) {
        let place = Arc::new(());
        let body = Held {
            body: body.map(Full::from),
            _place: Arc::clone(&place),
        };
        (WatchedBody::new(body, PATIENCE), place)
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_is_let_go() {
        let (mut body, place) = held(Some("bytes"));
        sleep(PATIENCE / 2).await;
        assert_eq!(Arc::strong_count(&place), 2);
        sleep(PATIENCE).await;
        assert_eq!(Arc::strong_count(&place), 1);
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_the_server_may_wait() {
        let (mut body, place) = held(None);
        let asked = tokio::time::timeout(PATIENCE * 5, body.frame()).await;
        assert!(asked.is_err(), "nothing comes");
        assert_eq!(Arc::strong_count(&place), 2);
        drop(body);
        sleep(PATIENCE).await;
        assert_eq!(Arc::strong_count(&place), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_is_whole() {
        let (body, place) = held(Some("bytes"));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "bytes");
        assert_eq!(Arc::strong_count(&place), 1);
    }
}
