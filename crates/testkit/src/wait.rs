//! Waiting for what other processes do: the one place of the testkit that reads the clock.

#![expect(
    clippy::missing_panics_doc,
    reason = "what does not happen in time has failed the test"
)]

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// The machine's monotonic clock.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes do not take an injected clock"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Asks every few milliseconds until there is an answer, which it returns; panics with `what` if there
/// is none `within` that time.
pub fn wait_until<T>(what: &str, within: Duration, mut ready: impl FnMut() -> Option<T>) -> T {
    let end = now() + within;
    loop {
        if let Some(answer) = ready() {
            return answer;
        }
        assert!(now() < end, "not within {within:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}
