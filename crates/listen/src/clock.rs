//! The clock of connections, and the one place that reads it. It is that of tokio's timers, so that a test that
//! pauses the time of its runtime controls timeouts, pools and health alike. A [`Stopwatch`] only measures.

use std::time::{Duration, SystemTime};

use httpdate::HttpDate;
pub use tokio::time::Instant;

/// The current time, to measure how long something takes.
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub fn now() -> Instant {
    Instant::now()
}

/// The current date, as HTTP writes it.
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub(crate) fn http_date() -> HttpDate {
    SystemTime::now().into()
}

/// Measures how long something takes, at the cost of reading a counter of the processor.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(quanta::Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
    pub fn start() -> Self {
        Self(quanta::Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
