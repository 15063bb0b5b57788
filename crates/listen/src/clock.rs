//! The clock of connections. Only this module reads it. It is the clock of tokio's timers, so that a test that pauses
//! its runtime's time controls timeouts, pools and health. A [`Stopwatch`] only measures.

use std::time::{Duration, SystemTime};

use httpdate::HttpDate;
pub use tokio::time::Instant;

/// The current time, to measure how long something takes.
#[expect(clippy::disallowed_methods, reason = "only this module reads it")]
pub fn now() -> Instant {
    Instant::now()
}

/// The current date, as HTTP writes it.
#[expect(clippy::disallowed_methods, reason = "only this module reads it")]
pub(crate) fn http_date() -> HttpDate {
    SystemTime::now().into()
}

/// A clock of ticks, for callers that keep a reading as a number.
#[derive(Debug, Clone)]
pub struct TickClock(quanta::Clock);

impl TickClock {
    /// The clock of this machine.
    #[expect(
        clippy::new_without_default,
        reason = "it calibrates the machine's clock"
    )]
    pub fn new() -> Self {
        Self(quanta::Clock::new())
    }

    /// The current reading.
    #[inline]
    pub fn read(&self) -> u64 {
        self.0.raw()
    }

    /// The time since a reading.
    #[inline]
    pub fn since(&self, began: u64) -> Duration {
        Duration::from_nanos(self.0.delta_as_nanos(began, self.0.raw()))
    }
}

/// Measures how long something takes, at the cost of reading a counter of the processor.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(quanta::Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "only this module reads it")]
    pub fn start() -> Self {
        Self(quanta::Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
