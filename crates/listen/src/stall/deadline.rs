//! A reusable timer: moving it to a later time, as each request on a connection does, does not touch tokio's timer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep_until};

use crate::clock::{Instant, now};

/// Ready when polled after its time.
#[derive(Debug, Default)]
pub struct Deadline {
    /// Ends at the set time, or earlier: then it is reset.
    sleep: Option<Pin<Box<Sleep>>>,
    time: Option<Instant>,
}

impl Deadline {
    /// Sets it to this long from now.
    pub fn set(&mut self, after: Duration) {
        let time = now().checked_add(after);
        let is_late = |sleep: &Pin<Box<Sleep>>| time.is_some_and(|time| sleep.deadline() > time);
        if self.sleep.as_ref().is_some_and(is_late) {
            self.sleep = None;
        }
        self.time = time;
    }

    /// Ready when its time has come. Never, if it was not set.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(time) = self.time else {
            return Poll::Pending;
        };
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(time)));
        ready!(sleep.as_mut().poll(cx));
        while sleep.deadline() < time {
            sleep.as_mut().reset(time);
            ready!(sleep.as_mut().poll(cx));
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn ready_after(deadline: &mut Deadline) -> Duration {
        let start = now();
        poll_fn(|cx| deadline.poll(cx)).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_ready_when_it_was_last_set_for() {
        let seconds = Duration::from_secs;
        let mut deadline = Deadline::default();
        deadline.set(seconds(10));
        assert_eq!(ready_after(&mut deadline).await, seconds(10));
        for (first, then) in [(10, 20), (20, 10), (5, 5)] {
            deadline.set(seconds(first));
            let early = tokio::time::timeout(seconds(3), ready_after(&mut deadline)).await;
            assert!(early.is_err());
            deadline.set(seconds(then));
            assert_eq!(ready_after(&mut deadline).await, seconds(then));
        }
        deadline.set(Duration::MAX);
        let never = tokio::time::timeout(seconds(1_000_000), ready_after(&mut deadline)).await;
        assert!(never.is_err());
    }
}
