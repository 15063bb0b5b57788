//! The clocks of a simulation: the true time, the monotonic clock of each instance, and the wall clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::Timestamp;

/// When a simulation begins by the wall clock of the server: Monday, 2 November 2026, 00:00 UTC.
pub const BEGIN: Timestamp = Timestamp::from_seconds(1_793_577_600);

/// The true time since the begin of the simulation, in microseconds. Tasks of instances may read it to
/// record when something happened; the programs under test have only their own clocks.
#[derive(Debug, Clone, Default)]
pub struct TrueTime(Arc<AtomicU64>);

impl TrueTime {
    /// The current microsecond.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }
}

/// A clock that runs at nearly the right speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drift {
    /// How many microseconds it gains in a second; negative if it is slow.
    pub ppm: i64,
}

impl Drift {
    /// The right speed.
    pub const NONE: Self = Self { ppm: 0 };

    /// What this clock shows after a true time.
    pub fn shown(self, passed: u64) -> u64 {
        scaled(passed, 1_000_000 + self.ppm, 1_000_000)
    }

    /// The true time after which it shows this.
    pub fn passed(self, shown: u64) -> u64 {
        scaled(shown, 1_000_000, 1_000_000 + self.ppm)
    }
}

fn scaled(micros: u64, by: i64, over: i64) -> u64 {
    let scaled = i128::from(micros) * i128::from(by) / i128::from(over);
    u64::try_from(scaled).unwrap_or(0)
}

/// A wall clock: drifts, and may be set.
#[derive(Debug, Clone)]
pub(crate) struct WallClock {
    pub(crate) drift: Drift,
    /// What it was set forward by in all, in microseconds; negative if it was set back.
    pub(crate) ahead: i64,
}

impl WallClock {
    /// What it shows at this true time.
    pub(crate) fn at(&self, now: u64) -> Timestamp {
        let shown = BEGIN.as_micros() + self.drift.shown(now);
        Timestamp::from_micros(shown.saturating_add_signed(self.ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_drift_by_parts_of_a_million() {
        let slow = Drift { ppm: -500 };
        assert_eq!(slow.shown(2_000_000), 1_999_000);
        assert_eq!(slow.passed(1_999_000), 2_000_000);
        assert_eq!(Drift { ppm: 500 }.shown(1_000_000), 1_000_500);
        let clock = WallClock {
            drift: slow,
            ahead: -3,
        };
        let shown = clock.at(2_000_000).as_micros() - BEGIN.as_micros();
        assert_eq!(shown, 1_998_997);
    }
}
