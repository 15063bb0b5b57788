//! A clock that stands still until a test moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Clock;
use crate::time::{Micros, Timestamp};

/// A clock for tests. It returns the time that it was last set to. Clones share the time.
///
/// Unlike other clocks it may be set back, to test how a limiter reacts.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate_core::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::new(Timestamp::from_seconds(1_000));
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.now(), Timestamp::from_seconds(1_001));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: impl Into<Timestamp>) -> Self {
        Self(Arc::new(AtomicU64::new(now.into().as_micros())))
    }

    /// Moves the clock on by `span`.
    pub fn advance(&self, span: impl Into<Micros>) {
        self.set(self.now() + span.into());
    }

    /// Shows `now` from here on, earlier or later than before.
    pub fn set(&self, now: impl Into<Timestamp>) {
        self.0.store(now.into().as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}
