//! The units of time of descriptor limits: where their windows begin and end.

use tidegate_core::{Algorithm, Anchor, Limit, LimitError, Micros, Rate, Window};

/// Where the windows of weeks, months and years begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Units {
    /// With the calendar in UTC; weeks on Mondays.
    #[default]
    Calendar,
    /// At multiples of 7, 30 and 365 days since 1970, as envoyproxy/ratelimit counts them.
    Epoch,
}

impl Units {
    /// The window of a unit, and where it is anchored.
    #[doc(hidden)]
    pub fn window(self, unit: Window) -> (Window, Anchor) {
        let days = |count| (Window::Span(Micros::DAY.times(count)), Anchor::Clock);
        match (self, unit) {
            (Self::Calendar, unit) => (unit, Anchor::Clock),
            (Self::Epoch, Window::Span(Micros::WEEK)) => (unit, Anchor::Epoch),
            (Self::Epoch, Window::Span(_)) => (unit, Anchor::Clock),
            (Self::Epoch, Window::Month) => days(30),
            (Self::Epoch, Window::Year) => days(365),
        }
    }

    /// The unit that has this window.
    #[doc(hidden)]
    pub fn unit(self, window: Window) -> Window {
        let is_meant = |unit: &Window| self.window(*unit).0 == window;
        let units = [Window::Month, Window::Year];
        units.into_iter().find(is_meant).unwrap_or(window)
    }

    /// A limit of this rate. One that is counted in windows of the clock may be exceeded.
    pub(in crate::rules) fn limit(
        self,
        mut rate: Rate,
        algorithm: Algorithm,
    ) -> Result<Limit, LimitError> {
        let Some(unit) = rate.window else {
            return Limit::new(rate, algorithm);
        };
        let (window, anchor) = self.window(unit);
        if algorithm == Algorithm::FIXED_WINDOW && rate.burst.is_none() {
            return Limit::fixed_window(rate.count, window, anchor);
        }
        rate.window = Some(window);
        Limit::new(rate, algorithm)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Charge, MemoryStore, Request, Scope, Timestamp};

    use super::*;

    /// When the window of a unit ends that holds an instant, in seconds.
    fn end(units: Units, unit: Window, at: u64) -> u64 {
        let (window, anchor) = units.window(unit);
        let limit = Limit::fixed_window(1, window, anchor).unwrap();
        let charge = Charge {
            scope: &Scope::new("units"),
            limit: &limit,
            key: "key",
            cost: 1,
        };
        let request = [charge];
        let request = Request::new(&request).at(Timestamp::from_seconds(at));
        let charged = MemoryStore::new().charge(&request);
        charged[0].reset_at.as_micros() / 1_000_000
    }

    #[test]
    fn windows_by_hand() {
        const DAY: u64 = 86_400;
        let week = Window::Span(Micros::WEEK);
        // 2026-11-15 00:00:00 UTC, a Sunday: day 20,772 since 1970.
        let at = 20_772 * DAY;
        #[rustfmt::skip]
        let table = [
            // units          unit                        ends on day
            (Units::Calendar, Window::Span(Micros::DAY),  20_773),
            (Units::Epoch,    Window::Span(Micros::DAY),  20_773),
            (Units::Calendar, week,                       20_773),
            (Units::Epoch,    week,                       20_776),
            (Units::Calendar, Window::Month,              20_788),
            (Units::Epoch,    Window::Month,              20_790),
            (Units::Calendar, Window::Year,               20_819),
            (Units::Epoch,    Window::Year,               20_805),
        ];
        for (units, unit, day) in table {
            assert_eq!(end(units, unit, at), day * DAY, "{units:?} {unit}");
            assert_eq!(units.unit(units.window(unit).0), unit);
        }
    }
}
