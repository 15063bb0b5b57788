//! Windows, and where they begin and end.

use std::fmt;
use std::time::Duration;

use super::{Algorithm, LimitError};
use crate::calendar;
use crate::time::{Micros, Timestamp};

/// The period of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// A span of one length, from 1 ms to 366 days.
    Span(Micros),
    /// A month of the calendar in UTC.
    Month,
    /// A year of the calendar in UTC.
    Year,
}

impl Window {
    /// The clock-aligned window that holds `at`: its first instant, and the first after it.
    ///
    /// Spans start at multiples of themselves since the epoch, but weeks on Mondays 00:00 UTC.
    pub fn around(self, at: Timestamp) -> (Timestamp, Timestamp) {
        match self {
            Self::Span(span) => {
                let elapsed = elapsed_in(span, at);
                (at - elapsed, at + (span - elapsed))
            }
            Self::Month => calendar::month_around(at),
            Self::Year => calendar::year_around(at),
        }
    }

    /// The maximum length of the window.
    pub fn longest(self) -> Micros {
        match self {
            Self::Span(span) => span,
            Self::Month => Micros::DAY.times(31),
            Self::Year => Micros::DAY.times(366),
        }
    }

    pub(super) fn span_for(self, algorithm: Algorithm) -> Result<Micros, LimitError> {
        match self {
            Self::Span(span) => Ok(span),
            Self::Month | Self::Year => Err(LimitError::CalendarNeedsFixedWindow {
                window: self,
                algorithm: match algorithm {
                    Algorithm::FixedWindow { .. } => "fixed_window with `anchor: first_request`",
                    other => other.name(),
                },
            }),
        }
    }
}

/// The time from the start of the clock-aligned window of length `span` to `at`, which it holds.
pub(crate) fn elapsed_in(span: Micros, at: Timestamp) -> Micros {
    // The epoch was a Thursday, three days after a Monday.
    let before_epoch = if span == Micros::WEEK {
        Micros::DAY.times(3)
    } else {
        Micros::ZERO
    };
    Micros::new((at.as_micros() + before_epoch.get()) % span.get())
}

/// The window of length `span` that holds `at`, of those at multiples of it since the epoch, weeks too.
pub(crate) fn since_epoch(span: Micros, at: Timestamp) -> (Timestamp, Timestamp) {
    let elapsed = Micros::new(at.as_micros() % span.get());
    (at - elapsed, at + (span - elapsed))
}

impl From<Micros> for Window {
    fn from(span: Micros) -> Self {
        Self::Span(span)
    }
}

impl From<Duration> for Window {
    fn from(span: Duration) -> Self {
        Self::Span(span.into())
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Span(span) => span.fmt(f),
            Self::Month => f.write_str("month"),
            Self::Year => f.write_str("year"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn windows_by_hand() {
        #[rustfmt::skip]
        let table = [
            // name                                  window                       at (s)         start         end
            ("a minute",                             Micros::MINUTE.into(),       1_234,         1_200,        1_260),
            ("its last second",                      Micros::MINUTE.into(),       1_259,         1_200,        1_260),
            ("its end begins the next",              Micros::MINUTE.into(),       1_260,         1_260,        1_320),
            ("the first Monday ends a week",         Micros::WEEK.into(),         DAY,           0,            4 * DAY),
            ("a week starts on Monday",              Micros::WEEK.into(),         7 * DAY,       4 * DAY,      11 * DAY),
            ("Monday itself",                        Micros::WEEK.into(),         4 * DAY,       4 * DAY,      11 * DAY),
            ("two weeks do not",                     Micros::WEEK.times(2).into(), 15 * DAY,     14 * DAY,     28 * DAY),
            ("February 2024",                        Window::Month,               1_708_000_000, 1_706_745_600, 1_709_251_200),
            ("the year 2024",                        Window::Year,                1_708_000_000, 1_704_067_200, 1_735_689_600),
        ];
        for (name, window, at, start, end) in table {
            let found = window.around(Timestamp::from_seconds(at));
            let wanted = (Timestamp::from_seconds(start), Timestamp::from_seconds(end));
            assert_eq!(found, wanted, "{name}");
        }
    }
}
