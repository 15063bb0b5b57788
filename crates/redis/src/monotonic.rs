//! The time of deadlines and pauses: the monotonic clock of this process, never the time of a decision.
//!
//! A deadline that passes while this process does not run, because it was stopped or got no processor, says
//! nothing about the server. A timer that fires late shows such a stall.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::Instant;

/// How late a timer may fire before this process counts as stalled. Timers are exact to a millisecond.
pub(crate) const PUNCTUAL: Duration = Duration::from_millis(3);

/// The most turns of the runtime that reading and passing on arrived bytes takes.
const TURNS: usize = 16;

/// The current instant. Tests control it with the runtime's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the runtime's clock is the one that tests inject here"
)]
pub(crate) fn now() -> Instant {
    let now = Instant::now();
    #[cfg(test)]
    stalls::count_reading();
    now
}

/// Stalls of this process in tests: the clock jumps between two readings of it.
#[cfg(test)]
pub(crate) mod stalls {
    use std::cell::Cell;
    use std::time::Duration;

    use futures_util::FutureExt as _;

    thread_local! {
        /// After how many more readings the clock jumps, and how far.
        static NEXT: Cell<Option<(u32, Duration)>> = const { Cell::new(None) };
    }

    /// Lets the paused clock jump right after this many more readings on this thread.
    pub(crate) fn after_readings(count: u32, stall: Duration) {
        NEXT.set(Some((count, stall)));
    }

    /// Whether the clock has yet to jump. Cancels the jump.
    pub(crate) fn cancel() -> bool {
        NEXT.take().is_some()
    }

    pub(super) fn count_reading() {
        match NEXT.get() {
            Some((0, stall)) => {
                NEXT.set(None);
                // The clock advances when this is first polled; what is left of it only yields.
                let _ = tokio::time::advance(stall).now_or_never();
            }
            Some((count, stall)) => NEXT.set(Some((count - 1, stall))),
            None => {}
        }
    }
}

/// The future's output, unless the deadline passes first. What has arrived by then is still read, and after a stall
/// of this process there is `again` more time.
pub(crate) async fn until<F: Future>(
    deadline: Instant,
    again: Duration,
    future: F,
) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    if let Ok(output) = tokio::time::timeout_at(deadline, future.as_mut()).await {
        return Some(output);
    }
    if now() > deadline + PUNCTUAL {
        return tokio::time::timeout(again, future).await.ok();
    }
    // Turns, not time: a timer would fire one to two milliseconds later.
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
        if let Some(output) = future.as_mut().now_or_never() {
            return Some(output);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    const FIFTEEN: Duration = Duration::from_millis(15);

    #[tokio::test(start_paused = true)]
    async fn what_arrives_during_a_stall_is_in_time() {
        let (answer, answered) = oneshot::channel();
        let waiting = tokio::spawn(until(now() + FIFTEEN, FIFTEEN, answered));
        tokio::task::yield_now().await;
        // The clock goes on and nothing runs.
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
        answer.send(7).unwrap();
        assert_eq!(waiting.await.unwrap().unwrap().unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_arrives_is_given_up() {
        let (start, never) = (now(), std::future::pending::<()>());
        assert_eq!(until(start + FIFTEEN, FIFTEEN, never).await, None);
        let waited = start.elapsed();
        assert!(waited <= FIFTEEN + Duration::from_millis(1), "{waited:?}");
    }

    /// What is asked for passes through several tasks before it comes here.
    #[tokio::test(start_paused = true)]
    async fn what_has_arrived_at_the_deadline_is_in_time() {
        let (arrives, hands_on) = (now() + FIFTEEN, |mut answer: oneshot::Receiver<u32>| {
            for _ in 0..3 {
                let (next, answered) = oneshot::channel();
                tokio::spawn(async move { next.send(answer.await.unwrap()) });
                answer = answered;
            }
            answer
        });
        let (answer, answered) = oneshot::channel();
        let answered = hands_on(answered);
        let waiting = tokio::spawn(until(arrives, FIFTEEN, answered));
        tokio::spawn(async move {
            tokio::time::sleep_until(arrives).await;
            answer.send(7)
        });
        assert_eq!(waiting.await.unwrap().unwrap().unwrap(), 7);
    }
}
