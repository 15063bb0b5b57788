//! A timer that is kept: setting it for a later time, as each request on a connection does, costs nothing.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Rings when it is polled after its time.
#[derive(Default)]
pub(crate) struct Alarm {
    /// Rings at the time that it was set for, or before: then it is wound again.
    sleep: Option<Pin<Box<Sleep>>>,
    time: Option<Instant>,
}

impl Alarm {
    /// Sets it for so long from now.
    #[expect(clippy::disallowed_methods, reason = "as tokio's timers see the time")]
    pub(crate) fn set(&mut self, after: Duration) {
        let time = Instant::now().checked_add(after);
        let is_late = |sleep: &Pin<Box<Sleep>>| time.is_some_and(|time| sleep.deadline() > time);
        if self.sleep.as_ref().is_some_and(is_late) {
            self.sleep = None;
        }
        self.time = time;
    }

    /// Whether it rings.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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

    #[expect(clippy::disallowed_methods, reason = "the paused time of the test")]
    async fn rings_after(alarm: &mut Alarm) -> Duration {
        let start = Instant::now();
        poll_fn(|cx| alarm.poll(cx)).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_when_it_was_last_set_for() {
        let seconds = Duration::from_secs;
        let mut alarm = Alarm::default();
        alarm.set(seconds(10));
        assert_eq!(rings_after(&mut alarm).await, seconds(10));
        for (first, then) in [(10, 20), (20, 10), (5, 5)] {
            alarm.set(seconds(first));
            let early = tokio::time::timeout(seconds(3), rings_after(&mut alarm)).await;
            assert!(early.is_err());
            alarm.set(seconds(then));
            assert_eq!(rings_after(&mut alarm).await, seconds(then));
        }
        alarm.set(Duration::MAX);
        let never = tokio::time::timeout(seconds(1_000_000), rings_after(&mut alarm)).await;
        assert!(never.is_err());
    }
}
