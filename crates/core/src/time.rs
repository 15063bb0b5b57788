//! Instants and spans as whole microseconds.
//!
//! Both types stay at or below 2^53 - 1, the largest integer that a Redis script can hold, so the
//! arithmetic of the algorithms never meets a value that only one of the stores can represent.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest number of microseconds that an instant or a span can hold: 2^53 - 1, about 285 years.
const MAX: u64 = (1 << 53) - 1;

/// A span of time in whole microseconds, at most [`Micros::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(u64);

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// One millisecond.
    pub const MILLISECOND: Self = Self(1_000);
    /// One second.
    pub const SECOND: Self = Self(1_000_000);
    /// One minute.
    pub const MINUTE: Self = Self(60_000_000);
    /// One hour.
    pub const HOUR: Self = Self(3_600_000_000);
    /// One day of 24 hours.
    pub const DAY: Self = Self(86_400_000_000);
    /// One week of 7 days.
    pub const WEEK: Self = Self(604_800_000_000);
    /// The longest span, about 285 years.
    pub const MAX: Self = Self(MAX);

    /// A span of `micros` microseconds; longer ones become [`Micros::MAX`].
    pub const fn new(micros: u64) -> Self {
        Self(if micros > MAX { MAX } else { micros })
    }

    /// A span of `millis` milliseconds; longer ones become [`Micros::MAX`].
    pub const fn from_millis(millis: u64) -> Self {
        Self::new(millis.saturating_mul(1_000))
    }

    /// A span of `seconds` seconds; longer ones become [`Micros::MAX`].
    pub const fn from_seconds(seconds: u64) -> Self {
        Self::new(seconds.saturating_mul(1_000_000))
    }

    /// The number of microseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether this is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whole seconds, rounded up.
    pub const fn ceil_seconds(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// This span `times` over; longer than [`Micros::MAX`] becomes that.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self::new(self.0.saturating_mul(times))
    }
}

impl Add for Micros {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        // The sum of two values below 2^53 cannot overflow.
        Self::new(self.0 + other.0)
    }
}

/// Stops at zero.
impl Sub for Micros {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Micros> for Duration {
    fn from(micros: Micros) -> Self {
        Self::from_micros(micros.0)
    }
}

/// Rounds up to a whole microsecond, so that a wait is never cut short.
impl From<Duration> for Micros {
    fn from(duration: Duration) -> Self {
        let whole = duration.as_secs().saturating_mul(1_000_000);
        Self::new(whole.saturating_add(u64::from(duration.subsec_nanos().div_ceil(1_000))))
    }
}

/// In the largest unit that divides it: `90s`, `2h`, `1500ms`.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (Self::WEEK, "w"),
            (Self::DAY, "d"),
            (Self::HOUR, "h"),
            (Self::MINUTE, "m"),
            (Self::SECOND, "s"),
            (Self::MILLISECOND, "ms"),
        ];
        for (unit, suffix) in units {
            if self.0 != 0 && self.0.is_multiple_of(unit.0) {
                return write!(f, "{}{suffix}", self.0 / unit.0);
            }
        }
        write!(f, "{}us", self.0)
    }
}

/// An instant: whole microseconds since the Unix epoch, at most [`Timestamp::MAX`] (in the year 2255).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// 1970-01-01 00:00:00 UTC.
    pub const EPOCH: Self = Self(0);
    /// The last instant that can be represented, in the year 2255.
    pub const MAX: Self = Self(MAX);

    /// The instant `micros` microseconds after the epoch; later ones become [`Timestamp::MAX`].
    pub const fn from_micros(micros: u64) -> Self {
        Self(if micros > MAX { MAX } else { micros })
    }

    /// The instant `seconds` seconds after the epoch; later ones become [`Timestamp::MAX`].
    pub const fn from_seconds(seconds: u64) -> Self {
        Self::from_micros(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded up.
    pub const fn ceil_seconds(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Micros> for Timestamp {
    type Output = Self;

    fn add(self, span: Micros) -> Self {
        Self::from_micros(self.0 + span.0)
    }
}

/// Rounds down to a whole microsecond. Times before the epoch become that.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_micros(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(at: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_micros(at.0)
    }
}

/// Stops at the epoch.
impl Sub<Micros> for Timestamp {
    type Output = Self;

    fn sub(self, span: Micros) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_print_in_their_largest_whole_unit() {
        let table = [
            (Micros::ZERO, "0us"),
            (Micros::new(1), "1us"),
            (Micros::from_millis(1_500), "1500ms"),
            (Micros::from_seconds(90), "90s"),
            (Micros::from_seconds(7_200), "2h"),
            (Micros::from_seconds(86_400), "1d"),
            (Micros::WEEK.times(2), "2w"),
        ];
        for (span, text) in table {
            assert_eq!(span.to_string(), text);
        }
    }

    #[test]
    fn nothing_wraps_around() {
        assert_eq!(Micros::new(u64::MAX), Micros::MAX);
        assert_eq!(Micros::MAX + Micros::MAX, Micros::MAX);
        assert_eq!(Micros::MAX.times(u64::MAX), Micros::MAX);
        assert_eq!(Micros::ZERO - Micros::SECOND, Micros::ZERO);
        assert_eq!(Micros::from(Duration::MAX), Micros::MAX);
        assert_eq!(
            Timestamp::from_micros(u64::MAX) + Micros::MAX,
            Timestamp::MAX
        );
        assert_eq!(Timestamp::EPOCH - Micros::SECOND, Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Micros::ZERO);
    }

    #[test]
    fn a_time_of_the_system_is_read_as_it_is_written() {
        let at = Timestamp::from_micros(1_794_770_000_123_456);
        assert_eq!(Timestamp::from(SystemTime::from(at)), at);
        let between = UNIX_EPOCH + Duration::from_nanos(1_999);
        assert_eq!(Timestamp::from(between), Timestamp::from_micros(1));
        let earlier = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Timestamp::from(earlier), Timestamp::EPOCH);
        assert_eq!(
            Timestamp::from(SystemTime::from(Timestamp::MAX)),
            Timestamp::MAX
        );
        let later = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(Timestamp::from(later), Timestamp::MAX);
    }

    #[test]
    fn a_duration_is_never_cut_short() {
        assert_eq!(Micros::from(Duration::from_nanos(1)), Micros::new(1));
        assert_eq!(Micros::from(Duration::from_nanos(1_001)), Micros::new(2));
    }
}
