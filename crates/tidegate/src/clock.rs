//! Time as tokio sees it, so that tests can pause it.

use tidegate_core::{Clock, Micros, SystemClock, Timestamp};
use tokio::time::Instant;

/// A clock that goes with tokio's: it stands still when a test pauses that, and jumps when it does.
///
/// Waiting is done with tokio's timers, so a test that pauses them needs a limiter that goes by the
/// same time.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    started: Instant,
    at: Timestamp,
}

#[expect(clippy::disallowed_methods, reason = "this clock is tokio's")]
impl TokioClock {
    /// A clock that shows the system's time now.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            at: SystemClock.now(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this clock is tokio's")]
impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.at + Micros::from(Instant::now().saturating_duration_since(self.started))
    }
}
