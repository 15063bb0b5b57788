//! The seven algorithms as pure functions of (limit, state, cost, now).
//!
//! Whole numbers only, no clock, no store, no allocation in a decision, so that the same numbers
//! can be replayed in Rust, in a Redis script and on paper. Where and how long a state is kept is
//! up to the store.
//!
//! All of them share two rules about time. A decision is made as of the later of the request's
//! time and the state's last change, so a clock that goes back gives nothing. And a state that was
//! changed further in the future than its limit can remember belongs to a clock that has been set
//! back since: it is moved, whole, to the present, so that it freezes no key.

pub mod arithmetic;
pub mod bucket;
mod common_parts;
pub mod concurrency;
pub mod fixed_window;
pub mod sliding_window_counter;
pub mod sliding_window_log;
pub mod sliding_window_slots;

pub use bucket::{Bucket, BucketState, Hold};
pub use concurrency::{Concurrency, HeldPermit, HeldPermits};
pub use fixed_window::{FixedWindow, FixedWindowState};
pub use sliding_window_counter::{CounterState, SlidingCounter};
pub use sliding_window_log::{Log, SlidingLog};
pub(crate) use sliding_window_slots::MAX_RING;
pub use sliding_window_slots::{SlidingSlots, Slots};

use crate::outcome::{Outcome, Retry};
use crate::time::{Micros, Timestamp};

/// A limit's algorithm with its parameters, ready to decide.
///
/// A store that keeps states has to know every form, so this is exhaustive: with a new form it does not compile.
/// The same holds for the states, [`Hold`], and [`Window`](crate::Window).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `token_bucket` and `leaky_bucket`.
    Bucket(Bucket),
    /// `fixed_window`.
    FixedWindow(FixedWindow),
    /// `sliding_window_counter`.
    SlidingCounter(SlidingCounter),
    /// `sliding_window_slots`.
    SlidingSlots(SlidingSlots),
    /// `sliding_window_log`.
    SlidingLog(SlidingLog),
    /// `concurrency`.
    Concurrency(Concurrency),
}

/// How far a state that was last changed at `changed_at` has to be moved back in time, so that it
/// is not further in the future than its limit remembers. Almost always not at all.
fn set_back(changed_at: Timestamp, now: Timestamp, memory: Micros) -> Micros {
    let ahead = changed_at.since(now);
    if ahead > memory { ahead } else { Micros::ZERO }
}

/// A limit's verdict on a cost, before anything is charged.
struct AlgorithmVerdict {
    allowed: bool,
    retry: Retry,
}

impl AlgorithmVerdict {
    const ALLOWED: Self = Self {
        allowed: true,
        retry: Retry::Now,
    };
    const NEVER: Self = Self {
        allowed: false,
        retry: Retry::Never,
    };

    /// Denied until `then`, counted from the request's own `now`.
    fn denied_until(then: Timestamp, now: Timestamp) -> Self {
        Self {
            allowed: false,
            retry: Retry::After(then.since(now)),
        }
    }

    /// The outcome of an algorithm that never delays: `used` of `limit` after this verdict, all
    /// free again at `reset_at`.
    fn outcome(self, limit: u64, used: u64, reset_at: Timestamp, at: Timestamp) -> Outcome {
        Outcome {
            allowed: self.allowed,
            limit,
            remaining: limit.saturating_sub(used),
            exceeded: 0,
            retry: self.retry,
            reset_at,
            delay: Micros::ZERO,
            at,
            is_remembered: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_moved_back_only_from_beyond_what_its_limit_remembers() {
        let at = Timestamp::from_seconds;
        let memory = Micros::from_seconds(60);
        #[rustfmt::skip]
        let table = [
            // name                                     changed now  moved back by
            ("an old state",                            100,    200, 0),
            ("a state of now",                          200,    200, 0),
            ("a state of the near future",              230,    200, 0),
            ("as far as the limit remembers",           260,    200, 0),
            ("further: the clock has been set back",    261,    200, 61),
        ];
        for (name, changed, now, by) in table {
            let got = set_back(at(changed), at(now), memory);
            assert_eq!(got, Micros::from_seconds(by), "{name}");
        }
    }
}
