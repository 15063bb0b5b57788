//! The start of a request body, read before the request is decided: a request that takes a permit that clients share
//! would otherwise hold it while its client sends slowly.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body as _, Frame, Incoming};
use tidegate_listen::stall::{BodyPace, BodyRate};
use tidegate_tower::{ModelBody, UnreadBody};
use tokio::time::timeout;

use crate::failure::GatewayFailure;

/// How much of a body is read.
const START: usize = 64 * 1024;

/// How much is held for all requests.
const ROOM: usize = 64 * 1024 * 1024;

/// The least memory that is taken.
const FIRST: usize = 4 * 1024;

/// The first bytes of a body.
#[derive(Debug, Clone)]
pub(crate) struct BodyStart {
    pub(crate) bytes: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// Whether this is the whole body.
    pub(crate) is_whole: bool,
}

impl BodyStart {
    /// A whole body.
    pub(crate) fn whole(held: ModelBody) -> Self {
        let (bytes, trailers) = held.into_parts();
        Self {
            bytes,
            trailers,
            is_whole: true,
        }
    }

    /// Bytes of a body, of which more may come.
    pub(crate) fn part(bytes: Bytes) -> Self {
        Self {
            bytes,
            trailers: None,
            is_whole: false,
        }
    }
}

/// How much of a body is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The whole body, or as much as may be held.
    Start,
    /// Its first byte: the rest may wait for the answer.
    First,
}

/// How slowly a body may arrive.
pub(crate) struct StartPace {
    pub(crate) awaited: Awaited,
    pub(crate) rate: Option<BodyRate>,
    /// How long nothing may arrive.
    pub(crate) timeout: Duration,
}

/// The memory for the starts of all bodies.
#[derive(Debug)]
pub(crate) struct StartRoom {
    held: Arc<AtomicUsize>,
    most: usize,
}

impl Default for StartRoom {
    fn default() -> Self {
        Self {
            held: Arc::default(),
            most: ROOM,
        }
    }
}

impl StartRoom {
    /// Reads the start of a body: the whole body if it is short, and less if there is no room.
    pub(crate) async fn read(
        &self,
        body: &mut Incoming,
        pace: StartPace,
    ) -> Result<BodyStart, GatewayFailure> {
        let mut held = HeldBytes {
            bytes: Vec::new(),
            held: Arc::clone(&self.held),
        };
        let mut trailers = None;
        let mut rate = pace.rate.map(BodyPace::new);
        let enough = match pace.awaited {
            Awaited::Start => START,
            Awaited::First => 1,
        };
        let is_whole = loop {
            if held.bytes.len() >= enough || self.held.load(Ordering::Relaxed) >= self.most {
                break false;
            }
            let frame = timeout(pace.timeout, next(body, rate.as_mut())).await;
            match frame.map_err(|_| GatewayFailure::SlowClient)?? {
                Some(frame) => match frame.into_data() {
                    Ok(data) => held.push(&data),
                    Err(frame) => {
                        trailers = frame.into_trailers().ok();
                        break true;
                    }
                },
                None => break true,
            }
            if body.is_end_stream() {
                break true;
            }
        };
        Ok(BodyStart {
            bytes: Bytes::from_owner(held),
            trailers,
            is_whole,
        })
    }
}

/// Reads the rest of a body.
pub(crate) async fn read_whole(
    body: &mut Incoming,
    pace: StartPace,
    held: &mut ModelBody,
) -> Result<(), GatewayFailure> {
    let mut rate = pace.rate.map(BodyPace::new);
    while !held.is_whole() {
        let part = paced(rate.as_mut(), |cx| held.poll_part(body, cx));
        let part = timeout(pace.timeout, part).await;
        let length = part.map_err(|_| GatewayFailure::SlowClient)??;
        let length = length.map_err(|error| match error {
            UnreadBody::Broken => GatewayFailure::BrokenBody,
            error => error.into(),
        })?;
        if let Some(rate) = &mut rate {
            rate.came(length);
        }
    }
    Ok(())
}

/// The next frame of a body, `None` at its end.
async fn next(
    body: &mut Incoming,
    mut pace: Option<&mut BodyPace>,
) -> Result<Option<Frame<Bytes>>, GatewayFailure> {
    let frame = paced(pace.as_deref_mut(), |cx| {
        Pin::new(&mut *body).poll_frame(cx)
    });
    let frame = frame.await?.transpose();
    let frame = frame.map_err(|_| GatewayFailure::BrokenBody)?;
    if let (Some(frame), Some(pace)) = (&frame, pace) {
        pace.came(frame.data_ref().map_or(0, Bytes::len));
    }
    Ok(frame)
}

/// Waits for a part of a body, but not longer than its client may take.
async fn paced<T>(
    mut pace: Option<&mut BodyPace>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Result<T, GatewayFailure> {
    let part = poll_fn(|cx| {
        let part = poll(cx);
        match (&part, &mut pace) {
            (Poll::Pending, Some(pace)) => {
                pace.poll_wait(cx).map(|()| Err(GatewayFailure::SlowClient))
            }
            _ => part.map(Ok),
        }
    });
    part.await
}

/// Bytes in the memory for all, until the last reference to them is dropped.
struct HeldBytes {
    bytes: Vec<u8>,
    held: Arc<AtomicUsize>,
}

impl HeldBytes {
    fn push(&mut self, data: &[u8]) {
        let before = self.bytes.capacity();
        if before - self.bytes.len() < data.len() {
            // Few steps, because a client may send a byte at a time.
            let next = if before < START {
                (before * 4).clamp(FIRST, START)
            } else {
                before * 2
            };
            let size = next.max(self.bytes.len() + data.len());
            self.bytes.reserve_exact(size - self.bytes.len());
            let more = self.bytes.capacity() - before;
            self.held.fetch_add(more, Ordering::Relaxed);
        }
        self.bytes.extend_from_slice(data);
    }
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.held
            .fetch_sub(self.bytes.capacity(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_starts_is_counted_until_they_are_dropped() {
        let held = Arc::new(AtomicUsize::new(0));
        let mut start = HeldBytes {
            bytes: Vec::new(),
            held: Arc::clone(&held),
        };
        for (pushed, counted) in [(1, FIRST), (FIRST, 4 * FIRST), (START, START + FIRST + 1)] {
            start.push(&vec![b'x'; pushed]);
            assert_eq!(held.load(Ordering::Relaxed), counted);
        }
        let bytes = Bytes::from_owner(start);
        let slice = bytes.slice(1..2);
        drop(bytes);
        assert_ne!(held.load(Ordering::Relaxed), 0);
        drop(slice);
        assert_eq!(held.load(Ordering::Relaxed), 0);
    }
}
