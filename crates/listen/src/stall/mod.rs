//! Timeouts for connections on which nothing moves.
//!
//! [`Deadline`] is the common timer, and [`Stall`] watches anything that is polled: reads, writes, body frames.
//! [`TakenBody`] watches a client that reads nothing, [`copy_both_ways`] a tunnel, [`BodyPace`] a client that sends
//! slowly, [`ConnectionTimeouts`] a connection between requests, and [`Linger`] closes one.

mod body;
mod connection;
mod deadline;
mod linger;
mod pace;
mod tunnel;

pub use body::TakenBody;
pub use connection::{ConnectionPhase, ConnectionTimeouts, TimeoutAction};
pub use deadline::Deadline;
pub use linger::Linger;
pub use pace::{BodyPace, BodyRate};
pub use tunnel::copy_both_ways;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::sleep;

/// Nothing has moved for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing has moved for too long")]
pub struct Stalled;

impl From<Stalled> for io::Error {
    fn from(stalled: Stalled) -> Self {
        Self::new(io::ErrorKind::TimedOut, stalled)
    }
}

/// Times out a wait in which nothing moves. Costs nothing until a poll is pending.
#[derive(Debug)]
pub struct Stall {
    timeout: Duration,
    deadline: Deadline,
    is_waiting: bool,
}

impl Stall {
    /// A stall with this timeout.
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            deadline: Deadline::default(),
            is_waiting: false,
        }
    }

    /// Records the result of a poll. Returns [`Stalled`] once polls were pending for the whole timeout.
    pub fn watch<T>(&mut self, cx: &mut Context<'_>, polled: Poll<T>) -> Poll<Result<T, Stalled>> {
        if let Poll::Ready(value) = polled {
            self.is_waiting = false;
            return Poll::Ready(Ok(value));
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.set(self.timeout);
        }
        ready!(self.deadline.poll(cx));
        Poll::Ready(Err(Stalled))
    }
}

/// Counts moves, for a watcher that checks from time to time: recording a move costs no timer.
#[derive(Debug, Default)]
struct Moves(AtomicU64);

impl Moves {
    fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until no move was recorded during a whole timeout, checked at its end.
    async fn stalled(&self, timeout: Duration) {
        loop {
            let before = self.0.load(Ordering::Relaxed);
            sleep(timeout).await;
            if self.0.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::clock::now;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// How long a wait in which nothing moves takes to end.
    async fn stalls_after(stall: &mut Stall) -> Duration {
        let start = now();
        let ended = poll_fn(|cx| stall.watch::<()>(cx, Poll::Pending)).await;
        assert_eq!(ended, Err(Stalled));
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_that_since_something_last_moved() {
        let mut stall = Stall::new(TIMEOUT);
        assert_eq!(stalls_after(&mut stall).await, TIMEOUT);
        for _ in 0..3 {
            let moved = poll_fn(|cx| stall.watch(cx, Poll::Ready(7))).await;
            assert_eq!(moved, Ok(7));
            let early = tokio::time::timeout(TIMEOUT / 2, stalls_after(&mut stall)).await;
            assert!(early.is_err());
        }
        assert_eq!(stalls_after(&mut stall).await, TIMEOUT / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn moves_are_counted_between_two_looks() {
        let (moves, start) = (Moves::default(), now());
        let moving = async {
            for _ in 0..5 {
                sleep(TIMEOUT).await;
                moves.note();
            }
        };
        tokio::join!(moving, moves.stalled(TIMEOUT + Duration::from_secs(1)));
        assert!(start.elapsed() > TIMEOUT * 5, "{:?}", start.elapsed());
    }
}
