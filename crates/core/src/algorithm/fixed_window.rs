//! Fixed window: one counter for each window, all of it back at the window's end.

use super::{AlgorithmVerdict, set_back};
use crate::limit::{Anchor, Window, since_epoch};
use crate::outcome::Outcome;
use crate::time::Timestamp;

/// The most that a window counts as used, also beyond its limit: the last whole number that a Redis script can hold.
pub const MAX_USED: u64 = (1 << 53) - 1;

/// The parameters of a fixed window. Made by [`Limit::new`](crate::Limit::new).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    count: u64,
    window: Window,
    anchor: Anchor,
}

/// The usage of the window that opened at `opened_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FixedWindowState {
    /// The window's first instant.
    pub opened_at: Timestamp,
    /// When something was last charged, within that window.
    pub changed_at: Timestamp,
    /// The cost charged in the window; zero means that no window is open.
    pub used: u64,
}

impl FixedWindow {
    pub(crate) fn new(count: u64, window: Window, anchor: Anchor) -> Self {
        Self {
            count,
            window,
            anchor,
        }
    }

    /// The number of requests that a window admits.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The window.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Where windows start.
    pub fn anchor(&self) -> Anchor {
        self.anchor
    }

    /// Decides one charge and returns the state to keep.
    #[inline]
    pub fn decide(
        &self,
        state: FixedWindowState,
        cost: u64,
        now: Timestamp,
    ) -> (Outcome, FixedWindowState) {
        let state = self.present(state, now);
        let at = now.max(state.changed_at);
        let (current, ends_at) = self.current(state, at);

        let verdict = if cost == 0 || current.used.saturating_add(cost) <= self.count {
            AlgorithmVerdict::ALLOWED
        } else if cost > self.count {
            AlgorithmVerdict::NEVER
        } else {
            AlgorithmVerdict::denied_until(ends_at, now)
        };
        let charged = verdict.allowed && cost > 0;
        let after = FixedWindowState {
            used: current.used.saturating_add(cost),
            changed_at: at,
            ..current
        };
        let kept = if charged { after } else { current };
        let reset_at = if kept.used == 0 { now } else { ends_at };
        let outcome = Outcome {
            exceeded: kept.used.saturating_sub(self.count),
            ..verdict.outcome(self.count, kept.used, reset_at, at)
        };
        (outcome, if charged { after } else { state })
    }

    /// Adds a cost that is known only afterwards, up to the limit.
    pub fn settle(&self, state: FixedWindowState, cost: u64, now: Timestamp) -> FixedWindowState {
        let state = self.present(state, now);
        let at = now.max(state.changed_at);
        let (current, _) = self.current(state, at);
        let cost = cost.min(self.count.saturating_sub(current.used));
        FixedWindowState {
            used: current.used + cost,
            changed_at: at,
            ..current
        }
    }

    /// Adds a cost that was spent already, all of it, also beyond the limit and up to [`MAX_USED`]. Only windows of the
    /// clock [hold that](Self::holds_excess); others take what fits.
    pub fn settle_in_full(
        &self,
        state: FixedWindowState,
        cost: u64,
        now: Timestamp,
    ) -> FixedWindowState {
        if !self.holds_excess() {
            return self.settle(state, cost, now);
        }
        let state = self.present(state, now);
        let at = now.max(state.changed_at);
        let (current, _) = self.current(state, at);
        FixedWindowState {
            used: current.used.saturating_add(cost).min(MAX_USED),
            changed_at: at,
            ..current
        }
    }

    /// Whether more can be used than the limit grants, up to [`MAX_USED`].
    pub fn holds_excess(&self) -> bool {
        self.anchor != Anchor::FirstRequest
    }

    /// The window of the clock that is open at `at`.
    pub(crate) fn opened_at(&self, at: Timestamp) -> Timestamp {
        self.around(at).0
    }

    /// When the window of the clock ends that is open at `at`; none if requests open the windows.
    pub(crate) fn ends_at(&self, at: Timestamp) -> Option<Timestamp> {
        self.holds_excess().then(|| self.around(at).1)
    }

    fn around(&self, at: Timestamp) -> (Timestamp, Timestamp) {
        match (self.anchor, self.window) {
            (Anchor::Epoch, Window::Span(span)) => since_epoch(span, at),
            (_, window) => window.around(at),
        }
    }

    /// Takes back `cost` if the window in which it was charged, as of `charged_at`, is still open.
    pub fn give_back(
        &self,
        state: FixedWindowState,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> FixedWindowState {
        let state = self.present(state, now);
        let (current, ends_at) = self.current(state, now.max(state.changed_at));
        if (current.opened_at..ends_at).contains(&charged_at) {
            FixedWindowState {
                used: current.used.saturating_sub(cost),
                ..current
            }
        } else {
            state
        }
    }

    /// How much [`give_back`](Self::give_back) takes back.
    pub fn given_back(
        &self,
        state: FixedWindowState,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> u64 {
        let state = self.present(state, now);
        let (current, ends_at) = self.current(state, now.max(state.changed_at));
        if (current.opened_at..ends_at).contains(&charged_at) {
            current.used.min(cost)
        } else {
            0
        }
    }

    /// The window that is open at `at`, with its usage, and its end.
    fn current(&self, state: FixedWindowState, at: Timestamp) -> (FixedWindowState, Timestamp) {
        let (opened_at, ends_at) = match self.anchor {
            Anchor::Clock | Anchor::Epoch => self.around(at),
            Anchor::FirstRequest => {
                let length = self.window.longest();
                let ends_at = state.opened_at + length;
                let is_open = state.used > 0 && at < ends_at;
                if is_open {
                    (state.opened_at, ends_at)
                } else {
                    (at, at + length)
                }
            }
        };
        let used = if state.opened_at == opened_at {
            state.used
        } else {
            0
        };
        (
            FixedWindowState {
                opened_at,
                changed_at: state.changed_at.max(opened_at),
                used,
            },
            ends_at,
        )
    }

    /// The state, moved to the present if its clock has been set back since.
    fn present(&self, state: FixedWindowState, now: Timestamp) -> FixedWindowState {
        let by = set_back(state.changed_at, now, self.window.longest());
        if by.is_zero() {
            return state;
        }
        let opened_at = match self.anchor {
            Anchor::Clock | Anchor::Epoch => self.around(now).0,
            Anchor::FirstRequest => state.opened_at - by,
        };
        FixedWindowState {
            opened_at,
            changed_at: now,
            used: state.used,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Retry;
    use crate::time::Micros;

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn fixed_window_by_hand() {
        let clock = FixedWindow::new(10, Micros::MINUTE.into(), Anchor::Clock);
        let first = FixedWindow::new(10, Micros::MINUTE.into(), Anchor::FirstRequest);
        let after = |s| Retry::After(Micros::from_seconds(s));
        #[rustfmt::skip]
        let table = [
            // name                                  limit  opened used  cost  at   allowed left retry         reset
            ("a fresh window",                       clock, 0,     0,    1,    75,  true,   9,   Retry::Now,   120),
            ("the rest of it",                       clock, 60,    9,    1,    75,  true,   0,   Retry::Now,   120),
            ("a full one denies to its end",         clock, 60,    10,   1,    75,  false,  0,   after(45),    120),
            ("the whole limit waits for the end",    clock, 60,    1,    10,   75,  false,  9,   after(45),    120),
            ("the end begins the next",              clock, 60,    10,   1,    120, true,   9,   Retry::Now,   180),
            ("more than the limit never passes",     clock, 60,    0,    11,   75,  false,  10,  Retry::Never, 75),
            ("the first request opens the window",   first, 0,     0,    1,    75,  true,   9,   Retry::Now,   135),
            ("and it ends a window later",           first, 75,    10,   1,    134, false,  0,   after(1),     135),
            ("at exactly its end another opens",     first, 75,    10,   1,    135, true,   9,   Retry::Now,   195),
        ];
        for (name, limit, opened, used, cost, at, allowed, left, retry, reset) in table {
            let state = FixedWindowState {
                opened_at: seconds(opened),
                changed_at: seconds(opened),
                used,
            };
            let (got, _) = limit.decide(state, cost, seconds(at));
            let wanted = (allowed, left, retry, seconds(reset));
            assert_eq!(
                (got.allowed, got.remaining, got.retry, got.reset_at),
                wanted,
                "{name}"
            );
        }
    }

    #[test]
    fn give_back_is_void_once_the_window_has_ended() {
        let limit = FixedWindow::new(10, Micros::MINUTE.into(), Anchor::Clock);
        let (charged, state) = limit.decide(FixedWindowState::default(), 4, seconds(70));
        assert_eq!(limit.give_back(state, 3, charged.at, seconds(80)).used, 1);
        let (_, next) = limit.decide(state, 5, seconds(130));
        assert_eq!(limit.give_back(next, 4, charged.at, seconds(131)).used, 5);
    }

    #[test]
    fn a_window_says_what_it_was_made_of() {
        let limit = FixedWindow::new(10, Micros::MINUTE.into(), Anchor::FirstRequest);
        assert_eq!((limit.count(), limit.anchor()), (10, Anchor::FirstRequest));
        assert_eq!(limit.window(), Micros::MINUTE.into());
    }

    #[test]
    fn states_by_hand() {
        let clock = FixedWindow::new(10, Micros::MINUTE.into(), Anchor::Clock);
        let first = FixedWindow::new(10, Micros::MINUTE.into(), Anchor::FirstRequest);
        let state = |opened, changed, used| FixedWindowState {
            opened_at: seconds(opened),
            changed_at: seconds(changed),
            used,
        };
        #[rustfmt::skip]
        let table = [
            // name                                   limit  before              cost at   after
            ("the first charge",                      clock, state(0, 0, 0),     3,   75,  state(60, 75, 3)),
            ("another one in the window",             clock, state(60, 70, 3),   4,   75,  state(60, 75, 7)),
            ("a denial changes nothing",              clock, state(60, 70, 9),   2,   75,  state(60, 70, 9)),
            ("nor does a peek",                       clock, state(60, 70, 9),   0,   75,  state(60, 70, 9)),
            ("a window begins at nothing",            clock, state(60, 70, 9),   2,   125, state(120, 125, 2)),
            ("a clock that goes back a little",       clock, state(60, 90, 3),   1,   75,  state(60, 90, 4)),
            ("a clock that was set back for good",    clock, state(600, 630, 3), 1,   75,  state(60, 75, 4)),
            ("the window of the first request",       first, state(0, 0, 0),     3,   75,  state(75, 75, 3)),
            ("stays open for its time",               first, state(75, 80, 3),   4,   134, state(75, 134, 7)),
            ("one that was given back is not open",   first, state(75, 80, 0),   4,   100, state(100, 100, 4)),
            ("a clock set back moves it whole",       first, state(600, 630, 3), 1,   75,  state(45, 75, 4)),
        ];
        for (name, limit, before, cost, at, after) in table {
            assert_eq!(limit.decide(before, cost, seconds(at)).1, after, "{name}");
        }
    }

    #[test]
    fn what_is_settled_fits_into_the_limit() {
        let limit = FixedWindow::new(10, Micros::MINUTE.into(), Anchor::Clock);
        let state = FixedWindowState {
            opened_at: seconds(60),
            changed_at: seconds(70),
            used: 7,
        };
        #[rustfmt::skip]
        let table = [
            // name                            cost  at   opened changed used
            ("as much as there is room for",   2,    75,  60,    75,     9),
            ("and no more",                    9,    75,  60,    75,     10),
            ("in the next window",             9,    125, 120,   125,    9),
            ("as of the last change",          1,    65,  60,    70,     8),
        ];
        for (name, cost, at, opened, changed, used) in table {
            let wanted = FixedWindowState {
                opened_at: seconds(opened),
                changed_at: seconds(changed),
                used,
            };
            assert_eq!(limit.settle(state, cost, seconds(at)), wanted, "{name}");
        }
    }

    #[test]
    fn what_is_settled_in_full_may_exceed_the_limit() {
        let count = |count, anchor| FixedWindow::new(count, Micros::MINUTE.into(), anchor);
        let (clock, first) = (count(10, Anchor::Clock), count(10, Anchor::FirstRequest));
        let nothing = count(0, Anchor::Clock);
        #[rustfmt::skip]
        let table = [
            // name                                 limit    used          cost      at   used after   left exceeded  a peek of 1
            ("as much as there is room for",        clock,   7,            3,        75,  10,          0,   0,        false),
            ("more than that, too",                 clock,   7,            9,        75,  16,          0,   6,        false),
            ("beyond the limit more is added",      clock,   16,           4,        75,  20,          0,   10,       false),
            ("in the next window from nothing",     clock,   16,           4,        125, 4,           6,   0,        true),
            ("up to the last whole number",         clock,   MAX_USED - 1, 9,        75,  MAX_USED,    0,   MAX_USED - 10, false),
            ("whatever the cost",                   clock,   1,            u64::MAX, 75,  MAX_USED,    0,   MAX_USED - 10, false),
            ("a limit of nothing counts, too",      nothing, 0,            2,        75,  2,           0,   2,        false),
            ("one from the first request does not", first,   7,            9,        75,  10,          0,   0,        false),
        ];
        for (name, limit, used, cost, at, after, left, exceeded, fits) in table {
            let state = FixedWindowState {
                opened_at: seconds(60),
                changed_at: seconds(70),
                used,
            };
            let next = limit.settle_in_full(state, cost, seconds(at));
            assert_eq!(next.used, after, "{name}");
            let (asked, _) = limit.decide(next, 0, seconds(at));
            assert_eq!(
                (asked.remaining, asked.exceeded),
                (left, exceeded),
                "{name}"
            );
            assert_eq!(asked.used(), after, "{name}");
            assert_eq!(limit.decide(next, 1, seconds(at)).0.allowed, fits, "{name}");
        }
    }

    #[test]
    fn weeks_may_begin_with_the_epoch() {
        const DAY: u64 = 86_400;
        let week = |anchor| FixedWindow::new(10, Micros::WEEK.into(), anchor);
        for (anchor, at, start) in [
            (Anchor::Clock, 7 * DAY, 4 * DAY),
            (Anchor::Epoch, 7 * DAY, 7 * DAY),
            (Anchor::Epoch, 13 * DAY, 7 * DAY),
            (Anchor::Epoch, 14 * DAY, 14 * DAY),
        ] {
            let (_, state) = week(anchor).decide(FixedWindowState::default(), 1, seconds(at));
            assert_eq!(state.opened_at, seconds(start), "{anchor:?} {at}");
        }
    }

    #[test]
    fn give_back_counts_from_the_first_to_before_the_last_instant_of_the_window() {
        let limit = FixedWindow::new(10, Micros::MINUTE.into(), Anchor::Clock);
        let state = FixedWindowState {
            opened_at: seconds(60),
            changed_at: seconds(70),
            used: 7,
        };
        for (charged_at, used) in [(59, 7), (60, 4), (119, 4), (120, 7)] {
            let after = limit.give_back(state, 3, seconds(charged_at), seconds(80));
            assert_eq!(
                (after.used, after.opened_at),
                (used, seconds(60)),
                "{charged_at}"
            );
        }
        let after = limit.give_back(state, 9, seconds(70), seconds(80));
        assert_eq!(after.used, 0, "never more than was taken");
    }
}
