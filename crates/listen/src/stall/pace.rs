//! The minimum rate of a request body, so that a slow client cannot hold a connection to a server for ever. Only time
//! spent waiting for the client counts, not time in which the server reads nothing.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::clock::{Instant, now};

/// The minimum rate of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyRate {
    /// The least bytes per second.
    pub bytes_per_second: u64,
    /// The window over which it is measured. A body that arrives within it is never too slow.
    pub window: Duration,
}

/// Measures one body. Time counts only while nothing arrives.
#[derive(Debug)]
pub struct BodyPace {
    /// The least bytes per window.
    least: u64,
    window: Duration,
    bytes: u64,
    /// The time spent waiting for the client in this window.
    waited: Duration,
    /// When the current wait began.
    since: Option<Instant>,
    /// Ends with the window, or earlier: time of the server does not count.
    timer: Option<Pin<Box<Sleep>>>,
}

impl BodyPace {
    /// A measurement with this rate.
    pub fn new(rate: BodyRate) -> Self {
        Self {
            least: rate.bytes_per_second.saturating_mul(rate.window.as_secs()),
            window: rate.window,
            bytes: 0,
            waited: Duration::ZERO,
            since: None,
            timer: None,
        }
    }

    /// Bytes have arrived.
    pub fn came(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if let Some(since) = self.since.take() {
            self.waited += now() - since;
        }
    }

    /// Nothing has arrived. Ready when the client is too slow.
    pub fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = now();
        let since = *self.since.get_or_insert(now);
        let mut left = self.window.saturating_sub(self.waited + (now - since));
        if left.is_zero() {
            if self.bytes < self.least {
                return Poll::Ready(());
            }
            (self.bytes, self.waited, self.since) = (0, Duration::ZERO, Some(now));
            left = self.window;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(left)));
        while timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(now + left);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::timeout;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);

    fn pace() -> BodyPace {
        BodyPace::new(BodyRate {
            bytes_per_second: 256,
            window: WINDOW,
        })
    }

    async fn slow_after(pace: &mut BodyPace) -> Duration {
        let start = now();
        poll_fn(|cx| pace.poll_wait(cx)).await;
        start.elapsed()
    }

    /// Waits for `seconds`. Returns whether the client is too slow by then.
    async fn is_slow(pace: &mut BodyPace, seconds: u64) -> bool {
        timeout(Duration::from_secs(seconds), slow_after(pace))
            .await
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_a_second_is_too_slow_after_a_window_and_270_are_not() {
        for (bytes, lasts) in [(1, false), (240, false), (270, true), (10_000, true)] {
            let mut pace = pace();
            let mut seconds = 0;
            while seconds < 300 && !is_slow(&mut pace, 1).await {
                pace.came(bytes);
                seconds += 1;
            }
            assert_eq!(seconds == 300, lasts, "{bytes}: {seconds}");
            assert!(lasts || (29..=31).contains(&seconds), "{bytes}: {seconds}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_is_too_slow_at_the_end_of_the_next_window() {
        let mut pace = pace();
        pace.came(1_000_000);
        assert_eq!(slow_after(&mut pace).await, WINDOW * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_a_server_takes_does_not_count() {
        let mut pace = pace();
        assert!(!is_slow(&mut pace, 29).await);
        for _ in 0..10 {
            pace.came(1);
            sleep(WINDOW).await;
        }
        assert_eq!(slow_after(&mut pace).await, Duration::from_secs(1));
    }
}
