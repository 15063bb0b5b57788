//! The system's clock, made monotonic, and cheap enough to read for every decision.
//!
//! Two layers. [`Truth`] follows the wall clock but never goes back. Each thread asks it at most once in
//! [`TRUSTED_FOR`] and counts the processor's ticks in between, which costs a fraction of a system call. So threads
//! agree to about a microsecond: the drift of the tick rate in that time, plus the time to read both clocks. The
//! alternatives: `docs/decisions/008-clock.md`.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::Clock;
use crate::time::Timestamp;

/// How long a thread counts ticks before it asks the truth again, in nanoseconds. Short enough that
/// a tick rate that is wrong by a hundredth of a percent stays invisible among microseconds.
const TRUSTED_FOR: u64 = 1_000_000;

/// A tick counter and the truth are read together if no more than this lies between: else the thread
/// was interrupted, and they say nothing about each other.
const TOGETHER: u64 = 5_000;

/// The wall clock in UTC, never going back.
///
/// When the wall clock is set forward, this clock follows immediately. When it is set back, this clock
/// goes on at nine tenths of its speed until the wall clock has caught up, which takes ten times as
/// long as the step was: limits refill a little slower for that while, and no key is frozen or given
/// a window twice.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let ticks = tick_counter().raw();
        READING.with(|reading| {
            let counted = ticks.wrapping_sub(reading.ticks.get());
            let nanos = if counted < reading.trusted_ticks.get() {
                // There are only millions of ticks within `TRUSTED_FOR`, so the product does not overflow.
                reading.nanos.get() + ((counted * reading.rate.get()) >> 32)
            } else {
                reading.renew()
            };
            // The thread's latest answer is the floor, whatever the truth says.
            let latest = nanos.max(reading.latest.get());
            reading.latest.set(latest);
            Timestamp::from_micros(latest / 1_000)
        })
    }

    #[inline]
    fn is_system(&self) -> bool {
        true
    }
}

/// A thread's last reading of the system clock, and the tick counter at that time. One cell for each number: a decision
/// writes only the latest answer.
struct ClockReading {
    ticks: Cell<u64>,
    nanos: Cell<u64>,
    /// Nanoseconds for each tick from then on, in parts of 2^32.
    rate: Cell<u64>,
    /// How many ticks may be counted from then on: none before the truth was asked for once.
    trusted_ticks: Cell<u64>,
    /// The latest answer given on this thread.
    latest: Cell<u64>,
}

thread_local! {
    static READING: ClockReading = const {
        ClockReading {
            ticks: Cell::new(0),
            nanos: Cell::new(0),
            rate: Cell::new(0),
            trusted_ticks: Cell::new(0),
            latest: Cell::new(0),
        }
    };
}

impl ClockReading {
    /// Reads the truth. Returns it in nanoseconds.
    #[cold]
    #[inline(never)]
    fn renew(&self) -> u64 {
        let counter = tick_counter();
        let nanos_per_2_to_20 = counter.delta_as_nanos(0, 1 << 20).max(1);
        let mut trusted_ticks = 0;
        let (mut ticks, mut truth) = (0, (0, ClockPace::Full));
        for _ in 0..4 {
            let before = counter.raw();
            truth = Truth::ask();
            ticks = counter.raw();
            if counter.delta_as_nanos(before, ticks) < TOGETHER {
                trusted_ticks = (TRUSTED_FOR << 20) / nanos_per_2_to_20;
                break;
            }
        }
        let (nanos, pace) = truth;
        self.ticks.set(ticks);
        self.nanos.set(nanos);
        self.rate.set(pace.after(0, nanos_per_2_to_20 << 12));
        self.trusted_ticks.set(trusted_ticks);
        nanos
    }
}

#[inline]
fn tick_counter() -> &'static quanta::Clock {
    static TICKS: OnceLock<quanta::Clock> = OnceLock::new();
    TICKS.get_or_init(quanta::Clock::new)
}

/// The monotonic time that all threads read.
struct Truth {
    asked_at: Instant,
    nanos: u64,
}

#[expect(
    clippy::disallowed_methods,
    reason = "only this module reads the system's clocks"
)]
impl Truth {
    /// The time in nanoseconds, and how fast it goes.
    fn ask() -> (u64, ClockPace) {
        static TRUTH: OnceLock<Mutex<Truth>> = OnceLock::new();
        TRUTH
            .get_or_init(|| Mutex::new(Self::start()))
            .lock()
            .read()
    }

    fn start() -> Self {
        Self {
            asked_at: Instant::now(),
            nanos: wall_nanos(SystemTime::now()),
        }
    }

    fn read(&mut self) -> (u64, ClockPace) {
        let asked_at = Instant::now();
        let elapsed = asked_at.saturating_duration_since(self.asked_at);
        let (nanos, pace) = follow(self.nanos, elapsed, wall_nanos(SystemTime::now()));
        (self.nanos, self.asked_at) = (nanos, asked_at);
        (nanos, pace)
    }
}

/// How fast the clock goes: slowed down while the wall clock is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockPace {
    Full,
    NineTenths,
}

impl ClockPace {
    fn after(self, nanos: u64, elapsed: u64) -> u64 {
        let passed = match self {
            Self::Full => elapsed,
            Self::NineTenths => elapsed - elapsed / 10,
        };
        nanos.saturating_add(passed)
    }
}

/// The reading that comes `elapsed` after `last` when the wall clock shows `wall`.
fn follow(last: u64, elapsed: Duration, wall: u64) -> (u64, ClockPace) {
    if wall >= last {
        return (wall, ClockPace::Full);
    }
    let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    (
        ClockPace::NineTenths.after(last, elapsed),
        ClockPace::NineTenths,
    )
}

/// Nanoseconds since the epoch; zero before it.
fn wall_nanos(wall: SystemTime) -> u64 {
    let since_epoch = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_wall_clock_is_followed_by_hand() {
        #[rustfmt::skip]
        let table = [
            // name                                 last         elapsed  wall          reading
            ("in step",                             10 * SECOND, 1,       11 * SECOND,  (11 * SECOND, ClockPace::Full)),
            ("a step forward is taken immediately", 10 * SECOND, 1,       90 * SECOND,  (90 * SECOND, ClockPace::Full)),
            ("a step back slows down, never back",  10 * SECOND, 1,       5 * SECOND,   (10 * SECOND + 900_000_000, ClockPace::NineTenths)),
            ("no time, no change",                  10 * SECOND, 0,       5 * SECOND,   (10 * SECOND, ClockPace::NineTenths)),
            ("caught up after ten times the step",  10 * SECOND, 50,      55 * SECOND,  (55 * SECOND, ClockPace::Full)),
            ("a wall that stands still is no step", 10 * SECOND, 1,       10 * SECOND,  (10 * SECOND, ClockPace::Full)),
        ];
        for (name, last, elapsed, wall, reading) in table {
            assert_eq!(
                follow(last, Duration::from_secs(elapsed), wall),
                reading,
                "{name}"
            );
        }
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "compared with the system's own clock"
    )]
    fn readings_never_go_back_and_stay_with_the_wall_clock() {
        let before = wall_nanos(SystemTime::now()) / 1_000;
        let mut last = SystemClock.now();
        for _ in 0..200_000 {
            let next = SystemClock.now();
            assert!(next >= last, "{next:?} came after {last:?}");
            last = next;
        }
        let after = wall_nanos(SystemTime::now()) / 1_000;
        // The scheduler may hold the thread between any two lines: allow it a tenth of a second.
        assert!(last.as_micros() + 100_000 > before && last.as_micros() < after + 100_000);
    }
}
