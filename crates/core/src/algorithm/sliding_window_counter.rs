//! Sliding window counter: the present window's count, and as much of the one before as still
//! reaches into the last `window` of time.

use super::arithmetic::Divisor;
use super::{AlgorithmVerdict, set_back};
use crate::limit::elapsed_in;
use crate::outcome::Outcome;
use crate::time::{Micros, Timestamp};

/// The parameters of a sliding window counter. Made by [`Limit::new`](crate::Limit::new).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingCounter {
    count: u64,
    window: Micros,
}

/// The usage of the clock-aligned window that holds `changed_at`, and of the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CounterState {
    /// When something was last charged.
    pub changed_at: Timestamp,
    /// The cost charged in the current window.
    pub current: u64,
    /// The cost charged in the previous window.
    pub previous: u64,
}

impl SlidingCounter {
    pub(crate) fn new(count: u64, window: Micros) -> Self {
        Self { count, window }
    }

    /// The number of requests that a window admits.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The window.
    pub fn window(&self) -> Micros {
        self.window
    }

    /// Decides one charge and returns the state to keep.
    #[inline]
    pub fn decide(
        &self,
        state: CounterState,
        cost: u64,
        now: Timestamp,
    ) -> (Outcome, CounterState) {
        let state = self.moved_back(state, set_back(state.changed_at, now, self.window));
        let at = now.max(state.changed_at);
        let before = self.as_of(state, at);

        let verdict = if cost == 0 || self.used(before).saturating_add(cost) <= self.count {
            AlgorithmVerdict::ALLOWED
        } else if cost > self.count {
            AlgorithmVerdict::NEVER
        } else {
            AlgorithmVerdict::denied_until(self.falls_to(before, self.count - cost), now)
        };
        let charged = verdict.allowed && cost > 0;
        let after = CounterState {
            current: before.current.saturating_add(cost),
            ..before
        };
        let kept = if charged { after } else { before };
        let used = self.used(kept);
        let reset_at = if used == 0 {
            now
        } else {
            self.falls_to(kept, 0)
        };
        (
            verdict.outcome(self.count, used, reset_at, at),
            if charged { after } else { state },
        )
    }

    /// Adds a cost that is known only afterwards, up to the limit.
    pub fn settle(&self, state: CounterState, cost: u64, now: Timestamp) -> CounterState {
        let before = self.present(state, now);
        let cost = cost.min(self.count.saturating_sub(self.used(before)));
        CounterState {
            current: before.current + cost,
            ..before
        }
    }

    /// Takes back `cost` in the window in which it was charged, as of `charged_at`, while that
    /// window still counts.
    pub fn give_back(
        &self,
        state: CounterState,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> CounterState {
        let before = self.present(state, now);
        let start = self.start_of(before.changed_at);
        if self.start_of(charged_at) == start {
            CounterState {
                current: before.current.saturating_sub(cost),
                ..before
            }
        } else if charged_at < start && start.since(charged_at) <= self.window {
            CounterState {
                previous: before.previous.saturating_sub(cost),
                ..before
            }
        } else {
            before
        }
    }

    /// How much [`give_back`](Self::give_back) takes back in its window.
    pub fn given_back(
        &self,
        state: CounterState,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> u64 {
        let before = self.present(state, now);
        let after = self.give_back(state, cost, charged_at, now);
        (before.current - after.current) + (before.previous - after.previous)
    }

    /// The usage at `state.changed_at`.
    #[inline]
    fn used(&self, state: CounterState) -> u64 {
        let left = self.window - elapsed_in(self.window, state.changed_at);
        let (weighted, _) = Divisor::new(self.window.get()).mul_div(state.previous, left.get());
        state.current.saturating_add(weighted)
    }

    /// The first instant after `state.changed_at` at which no more than `room` is used, if nothing
    /// is charged until then. More than `room` is used now.
    fn falls_to(&self, state: CounterState, room: u64) -> Timestamp {
        let ends_at = state.changed_at + (self.window - elapsed_in(self.window, state.changed_at));
        if state.current <= room {
            // The previous window's share has to fall to the room that the current one leaves.
            ends_at - self.left_when(state.previous, room - state.current)
        } else {
            // The current window has to become the previous one first.
            ends_at + (self.window - self.left_when(state.current, room))
        }
    }

    /// How much of a window may be left for the share of the `previous` one to be within `room`.
    fn left_when(&self, previous: u64, room: u64) -> Micros {
        // floor(previous * left / window) <= room  <=>  previous * left < (room + 1) * window
        Micros::new(Divisor::new(previous).mul_add_div_ceil(room + 1, self.window.get(), 0) - 1)
    }

    fn present(&self, state: CounterState, now: Timestamp) -> CounterState {
        let state = self.moved_back(state, set_back(state.changed_at, now, self.window));
        self.as_of(state, now.max(state.changed_at))
    }

    /// The state as it stands at `at`, which is not before its last change.
    #[inline]
    fn as_of(&self, state: CounterState, at: Timestamp) -> CounterState {
        let start = self.start_of(at);
        if state.changed_at >= start {
            CounterState {
                changed_at: at,
                ..state
            }
        } else if start.since(state.changed_at) <= self.window {
            CounterState {
                changed_at: at,
                current: 0,
                previous: state.current,
            }
        } else {
            CounterState {
                changed_at: at,
                current: 0,
                previous: 0,
            }
        }
    }

    /// The state moved to the present. Usage is kept: at another position in its window the older count would weigh
    /// less, so its current weight is added to the newer count.
    fn moved_back(&self, state: CounterState, by: Micros) -> CounterState {
        if by.is_zero() {
            return state;
        }
        let current = self.used(state);
        CounterState {
            changed_at: state.changed_at - by,
            current,
            previous: 0,
        }
    }

    fn start_of(&self, at: Timestamp) -> Timestamp {
        at - elapsed_in(self.window, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Retry;

    #[test]
    fn sliding_window_counter_by_hand() {
        let limit = SlidingCounter::new(100, Micros::MINUTE);
        let at = |seconds: u64| Timestamp::from_seconds(seconds);
        #[rustfmt::skip]
        let table = [
            // name                                  previous current elapsed cost allowed left retry
            ("half of 40 and 80 are 100",            40,      80,     30,     1,   false,  0,   Retry::After(Micros::new(1))),
            ("a third of 40 and 80 are 93",          40,      80,     40,     1,   true,   6,   Retry::Now),
            ("the current window has to pass first", 0,       100,    30,     1,   false,  0,   Retry::After(Micros::from_seconds(30) + Micros::new(1))),
            ("the whole limit waits for all to pass", 0,      50,     30,     100, false,  50,  Retry::After(Micros::new(88_800_001))),
            ("an untouched key",                     0,       0,      30,     100, true,   0,   Retry::Now),
            ("never more than the limit",            0,       0,      30,     101, false,  100, Retry::Never),
        ];
        for (name, previous, current, elapsed, cost, allowed, left, retry) in table {
            let state = CounterState {
                changed_at: at(600),
                current,
                previous,
            };
            let (got, _) = limit.decide(state, cost, at(600 + elapsed));
            assert_eq!(
                (got.allowed, got.remaining, got.retry),
                (allowed, left, retry),
                "{name}"
            );
        }
    }

    #[test]
    fn it_is_whole_again_when_less_than_one_request_is_left() {
        let limit = SlidingCounter::new(10, Micros::MINUTE);
        let (one, _) = limit.decide(CounterState::default(), 1, Timestamp::from_seconds(90));
        assert_eq!(one.reset_at, Timestamp::from_seconds(120) + Micros::new(1));
        let (four, _) = limit.decide(CounterState::default(), 4, Timestamp::from_seconds(90));
        assert_eq!(four.reset_at, Timestamp::from_seconds(165) + Micros::new(1));
    }

    #[test]
    fn a_counter_says_what_it_was_made_of() {
        let limit = SlidingCounter::new(100, Micros::MINUTE);
        assert_eq!((limit.count(), limit.window()), (100, Micros::MINUTE));
    }

    #[test]
    fn states_by_hand() {
        let limit = SlidingCounter::new(100, Micros::MINUTE);
        let state = |changed, current, previous| CounterState {
            changed_at: Timestamp::from_seconds(changed),
            current,
            previous,
        };
        #[rustfmt::skip]
        let table = [
            // name                                before                cost at   after
            ("in the same window",                 state(610, 20, 30),   5,   620, state(620, 25, 30)),
            ("a peek changes nothing",             state(610, 20, 30),   0,   620, state(610, 20, 30)),
            ("nor does a denial",                  state(610, 99, 30),   5,   620, state(610, 99, 30)),
            ("in the next window",                 state(610, 20, 30),   5,   670, state(670, 5, 20)),
            ("at its first instant",               state(610, 20, 30),   5,   660, state(660, 5, 20)),
            ("after a window without requests",    state(610, 20, 30),   5,   725, state(725, 5, 0)),
            ("the last instant that counts on",    state(600, 20, 30),   5,   719, state(719, 5, 20)),
            ("a clock that goes back a little",    state(630, 20, 30),   5,   620, state(630, 25, 30)),
            ("a clock that was set back for good", state(1230, 20, 30),  5,   620, state(620, 40, 0)),
        ];
        for (name, before, cost, at, after) in table {
            let (_, got) = limit.decide(before, cost, Timestamp::from_seconds(at));
            assert_eq!(got, after, "{name}");
        }
    }

    #[test]
    fn what_is_settled_fits_into_the_limit() {
        let limit = SlidingCounter::new(100, Micros::MINUTE);
        let state = CounterState {
            changed_at: Timestamp::from_seconds(610),
            current: 70,
            previous: 40,
        };
        // Half of the previous window counts: 20.
        for (cost, current) in [(0, 70), (9, 79), (10, 80), (11, 80), (500, 80)] {
            let after = limit.settle(state, cost, Timestamp::from_seconds(630));
            assert_eq!((after.current, after.previous), (current, 40), "{cost}");
            assert_eq!(after.changed_at, Timestamp::from_seconds(630));
        }
    }

    #[test]
    fn give_back_finds_its_window() {
        let limit = SlidingCounter::new(100, Micros::MINUTE);
        let state = CounterState {
            changed_at: Timestamp::from_seconds(630),
            current: 20,
            previous: 40,
        };
        #[rustfmt::skip]
        let table = [
            // charged cost current previous
            (629,      5,   15,     40),
            (600,      5,   15,     40),
            (600,      50,  0,      40),
            (599,      5,   20,     35),
            (540,      5,   20,     35),
            (540,      50,  20,     0),
            (539,      5,   20,     40),
            (660,      5,   20,     40),
        ];
        for (charged_at, cost, current, previous) in table {
            let charged_at = Timestamp::from_seconds(charged_at);
            let after = limit.give_back(state, cost, charged_at, Timestamp::from_seconds(631));
            assert_eq!(
                (after.current, after.previous),
                (current, previous),
                "{charged_at:?}"
            );
        }
    }

    #[test]
    fn the_share_of_the_previous_window_falls_while_the_current_one_stays() {
        let limit = SlidingCounter::new(100, Micros::MINUTE);
        let state = CounterState {
            changed_at: Timestamp::from_seconds(600),
            current: 60,
            previous: 80,
        };
        // At 630 s, 60 and half of 80 are used. 5 more fit when less than 36 of 80 count: a microsecond after 633 s.
        let (got, _) = limit.decide(state, 5, Timestamp::from_seconds(630));
        let wait = Micros::from_seconds(3) + Micros::new(1);
        assert_eq!(got.retry, Retry::After(wait));
        let then = Timestamp::from_seconds(630) + wait;
        assert!(limit.decide(state, 5, then).0.allowed);
        let sooner = Timestamp::from_seconds(633);
        assert!(!limit.decide(state, 5, sooner).0.allowed);
    }
}
