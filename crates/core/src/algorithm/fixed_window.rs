//! Fixed window: one counter for each window, all of it back at the window's end.

use super::{AlgorithmVerdict, set_back};
use crate::limit::{Anchor, Window};
use crate::outcome::Outcome;
use crate::time::Timestamp;

/// The parameters of a fixed window. Made by [`Limit::new`](crate::Limit::new).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    count: u64,
    window: Window,
    anchor: Anchor,
}

/// What was used in the window that opened at `opened_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FixedWindowState {
    /// The window's first instant.
    pub opened_at: Timestamp,
    /// When something was last charged, within that window.
    pub changed_at: Timestamp,
    /// What was charged in it; zero means that no window is open.
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

    /// What a window admits.
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
        (
            verdict.outcome(self.count, kept.used, reset_at, at),
            if charged { after } else { state },
        )
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

    /// The window that is open at `at`, with what was used in it, and its end.
    fn current(&self, state: FixedWindowState, at: Timestamp) -> (FixedWindowState, Timestamp) {
        let (opened_at, ends_at) = match self.anchor {
            Anchor::Clock => self.window.around(at),
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
            Anchor::Clock => self.window.around(now).0,
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
}
