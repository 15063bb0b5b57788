//! Token bucket and leaky bucket: a steady flow with room for a burst.
//!
//! They are one algorithm. A key owes *debt*: each unit of cost adds one request to it, and time repays `count`
//! requests per window. A token bucket has its burst minus the debt left; the level of a leaky bucket is the debt. They
//! differ in the delay of an admitted request.
//!
//! Debt is kept as whole requests and a remainder in parts of a window, so that nothing is ever
//! rounded, and neither number depends on the limit: when a limit changes, what was used stays.

use super::arithmetic::Divisor;
use super::common_parts::CommonParts;
use super::{AlgorithmVerdict, set_back};
use crate::outcome::{Outcome, Retry};
use crate::time::{Micros, Timestamp};

/// The parameters of a bucket. Made by [`Limit::new`](crate::Limit::new), which validates them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    count: Divisor,
    window: Divisor,
    burst: u64,
    to_full: Micros,
    hold: Hold,
    /// Whether admitted charges have no delay and states are stored unconverted.
    is_plain: bool,
    /// How remainders are kept if states of other windows are to be taken over.
    common: Option<CommonParts>,
}

/// How long an admitted request is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// A request that would be allowed within this time is admitted now, and waits for it.
    UpTo(Micros),
    /// Every request waits until the requests before it have leaked.
    Queue,
}

/// The debt of a key: `whole + part / window` requests, as of `changed_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketState {
    /// Whole requests.
    pub whole: u64,
    /// The remainder, below the window's number of microseconds.
    pub part: u64,
    /// When this was true.
    pub changed_at: Timestamp,
}

impl Bucket {
    pub(crate) fn new(count: u64, window: Micros, burst: u64, hold: Hold) -> Self {
        let (count, window) = (Divisor::new(count), Divisor::new(window.get()));
        let to_full = Micros::new(count.mul_add_div_ceil(burst, window.get(), 0));
        Self {
            count,
            window,
            burst,
            to_full,
            hold,
            is_plain: matches!(hold, Hold::UpTo(_)),
            common: None,
        }
    }

    /// The same bucket with states that do not depend on the window, so that a bucket with another window can continue
    /// them.
    pub(crate) fn with_common_parts(self) -> Self {
        Self {
            is_plain: false,
            common: Some(CommonParts::new(self.window)),
            ..self
        }
    }

    /// Whether a state is kept in parts that do not depend on the window. A store then writes [`kept`](Self::kept)
    /// states and converts them with [`opened`](Self::opened) before it decides.
    #[inline]
    pub fn has_common_parts(&self) -> bool {
        self.common.is_some()
    }

    /// A state as it is to be kept, whatever window the next to read it has.
    #[inline]
    pub fn kept(&self, state: BucketState) -> BucketState {
        let part = self.common.map_or(state.part, |c| c.of_part(state.part));
        BucketState { part, ..state }
    }

    /// A state that was kept, to be decided on.
    #[inline]
    pub fn opened(&self, kept: BucketState) -> BucketState {
        let Some(common) = self.common else {
            return kept;
        };
        let (whole, part) = common.to_part(kept.part);
        BucketState {
            whole: kept.whole.saturating_add(whole),
            part,
            ..kept
        }
    }

    /// The capacity.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// How many requests flow back in a window.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// How long an admitted request is held back.
    pub fn hold(&self) -> Hold {
        self.hold
    }

    /// The window in which `count` requests flow back.
    pub fn window(&self) -> Micros {
        Micros::new(self.window.get())
    }

    /// The time in which `requests` requests flow back.
    pub fn time_for(&self, requests: u64) -> Micros {
        self.time_to_repay(BucketState {
            whole: requests,
            ..BucketState::default()
        })
    }

    /// How long an empty bucket of tokens takes to fill.
    pub fn to_full(&self) -> Micros {
        self.to_full
    }

    /// The fast path for a charge that fits and has no delay, as nearly all do. Returns the same as
    /// [`decide`](Self::decide), in fewer steps. `None` for any other charge, which then needs `decide`. Always `None`
    /// for a bucket with common parts, and for one that delays requests.
    #[inline]
    pub fn admit(
        &self,
        state: BucketState,
        cost: u64,
        now: Timestamp,
    ) -> Option<(Outcome, BucketState)> {
        if !self.is_plain || cost == 0 || state.changed_at > now {
            return None;
        }
        let before = self.repaid(state, now);
        let after = BucketState {
            whole: before.whole.saturating_add(cost),
            ..before
        };
        let remaining = self.burst.checked_sub(after.ceil())?;
        let outcome = Outcome {
            allowed: true,
            limit: self.burst,
            remaining,
            exceeded: 0,
            retry: Retry::Now,
            reset_at: now + self.time_to_repay(after),
            delay: Micros::ZERO,
            at: now,
            is_remembered: false,
        };
        Some((outcome, after))
    }

    /// Decides one charge and returns the state to keep.
    ///
    /// A denied charge adds no debt; the state it returns is still to be kept, as it may have been
    /// moved to the present.
    #[inline]
    pub fn decide(&self, state: BucketState, cost: u64, now: Timestamp) -> (Outcome, BucketState) {
        let state = state.moved_back(set_back(state.changed_at, now, self.to_full));
        let at = now.max(state.changed_at);
        let before = self.repaid(state, at);

        let (verdict, delay) = self.verdict(before, cost, now);
        let after = BucketState {
            whole: before.whole.saturating_add(cost),
            ..before
        };
        let kept = if verdict.allowed { after } else { before };

        let outcome = Outcome {
            allowed: verdict.allowed,
            limit: self.burst,
            remaining: self.burst.saturating_sub(kept.ceil()),
            exceeded: 0,
            retry: verdict.retry,
            reset_at: if kept.is_zero() {
                now
            } else {
                at + self.time_to_repay(kept)
            },
            delay,
            at,
            is_remembered: false,
        };
        let next = if verdict.allowed && cost > 0 {
            after
        } else {
            state
        };
        (outcome, next)
    }

    /// The verdict on `cost`, and how long the request is to be held.
    #[inline]
    fn verdict(
        &self,
        before: BucketState,
        cost: u64,
        now: Timestamp,
    ) -> (AlgorithmVerdict, Micros) {
        if cost == 0 {
            return (AlgorithmVerdict::ALLOWED, Micros::ZERO);
        }
        if cost > self.burst {
            return (AlgorithmVerdict::NEVER, Micros::ZERO);
        }
        if before.ceil().saturating_add(cost) <= self.burst {
            let delay = match self.hold {
                Hold::Queue => self.time_to_repay(before),
                Hold::UpTo(_) => Micros::ZERO,
            };
            return (AlgorithmVerdict::ALLOWED, delay);
        }
        self.wait_for(before, cost, now)
    }

    /// The verdict on a `cost` that does not fit yet. Out of line, to keep the common path short.
    #[inline(never)]
    fn wait_for(
        &self,
        before: BucketState,
        cost: u64,
        now: Timestamp,
    ) -> (AlgorithmVerdict, Micros) {
        let excess = BucketState {
            whole: before.whole.saturating_add(cost) - self.burst,
            ..before
        };
        let wait = before.changed_at.since(now) + self.time_to_repay(excess);
        match self.hold {
            Hold::UpTo(max_delay) if wait <= max_delay => (AlgorithmVerdict::ALLOWED, wait),
            Hold::UpTo(max_delay) => (
                AlgorithmVerdict {
                    allowed: false,
                    retry: Retry::After(wait - max_delay),
                },
                Micros::ZERO,
            ),
            Hold::Queue => (
                AlgorithmVerdict {
                    allowed: false,
                    retry: Retry::After(wait),
                },
                Micros::ZERO,
            ),
        }
    }

    /// Adds a cost that is known only afterwards, up to a full bucket of debt.
    pub fn settle(&self, state: BucketState, cost: u64, now: Timestamp) -> BucketState {
        let before = self.as_of(state, now);
        let room = self.burst.saturating_sub(before.ceil());
        if cost <= room {
            return BucketState {
                whole: before.whole + cost,
                ..before
            };
        }
        // The whole quota is owed, or the earlier debt if that is more.
        let full = BucketState {
            whole: self.burst,
            part: 0,
            changed_at: before.changed_at,
        };
        if before.whole >= self.burst {
            before
        } else {
            full
        }
    }

    /// Takes back a `cost` that was charged as of `charged_at`, minus the part that has flowed back since.
    pub fn give_back(
        &self,
        state: BucketState,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> BucketState {
        let before = self.as_of(state, now);
        let left = self.left_of(before, cost, charged_at);
        before.less(left.whole, left.part, self.window.get())
    }

    /// How much [`give_back`](Self::give_back) takes back, rounded up.
    pub fn given_back(
        &self,
        state: BucketState,
        cost: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> u64 {
        let before = self.as_of(state, now);
        let left = self.left_of(before, cost, charged_at);
        left.ceil().min(before.ceil())
    }

    /// What has not flowed back until `before` of a `cost` that was charged as of `charged_at`.
    fn left_of(&self, before: BucketState, cost: u64, charged_at: Timestamp) -> BucketState {
        let charged = BucketState {
            whole: cost,
            part: 0,
            changed_at: charged_at,
        };
        self.repaid(charged, before.changed_at.max(charged_at))
    }

    /// The debt now.
    fn as_of(&self, state: BucketState, now: Timestamp) -> BucketState {
        let state = state.moved_back(set_back(state.changed_at, now, self.to_full));
        self.repaid(state, now.max(state.changed_at))
    }

    /// The debt at `at`, which is not before the state's last change.
    #[inline]
    fn repaid(&self, state: BucketState, at: Timestamp) -> BucketState {
        let elapsed = at.since(state.changed_at).get();
        let (whole, part) = self.window.mul_div(elapsed, self.count.get());
        BucketState {
            changed_at: at,
            ..state.less(whole, part, self.window.get())
        }
    }

    /// How long `debt` takes to flow back, rounded up.
    #[inline]
    fn time_to_repay(&self, debt: BucketState) -> Micros {
        let time = self
            .count
            .mul_add_div_ceil(debt.whole, self.window.get(), debt.part);
        Micros::new(time)
    }
}

impl BucketState {
    /// Whole requests, rounded up, as they count against the burst.
    fn ceil(self) -> u64 {
        self.whole.saturating_add(u64::from(self.part > 0))
    }

    fn is_zero(self) -> bool {
        self.whole == 0 && self.part == 0
    }

    /// Less by `whole + part / window`, stopping at nothing.
    #[inline]
    fn less(self, whole: u64, part: u64, window: u64) -> Self {
        // Without a branch: which way the remainders compare is as good as random.
        let (part_left, borrowed) = self.part.overflowing_sub(part);
        let (left, is_less) = self.whole.overflowing_sub(whole);
        let (left, is_short) = left.overflowing_sub(u64::from(borrowed));
        let enough = !(is_less | is_short);
        let part_left = part_left.wrapping_add(u64::from(borrowed) * window);
        Self {
            whole: if enough { left } else { 0 },
            part: if enough { part_left } else { 0 },
            ..self
        }
    }

    fn moved_back(self, by: Micros) -> Self {
        Self {
            changed_at: self.changed_at - by,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T0: Timestamp = Timestamp::from_seconds(1_000);

    fn bucket(count: u64, window: Micros, burst: u64, hold: Hold) -> Bucket {
        Bucket::new(count, window, burst, hold)
    }

    fn millis(millis: u64) -> Micros {
        Micros::from_millis(millis)
    }

    fn after(wait: u64) -> Retry {
        Retry::After(millis(wait))
    }

    #[test]
    fn token_bucket_by_hand() {
        let limit = bucket(10, Micros::SECOND, 5, Hold::UpTo(Micros::ZERO));
        #[rustfmt::skip]
        let table = [
            // name                           owed  cost  wait    allowed  left  retry         reset in
            ("a fresh key has its burst",     0,    5,    0,      true,    0,    Retry::Now,   500),
            ("an empty bucket denies",        5,    1,    0,      false,   0,    after(100),   500),
            ("one token is back in 100 ms",   5,    1,    100,    true,    0,    Retry::Now,   500),
            ("and not a millisecond sooner",  5,    1,    99,     false,   0,    after(1),     401),
            ("idling never exceeds burst",    5,    6,    60_000, false,   5,    Retry::Never, 0),
            ("cost 0 asks and takes nothing", 3,    0,    0,      true,    2,    Retry::Now,   300),
            ("cost 0 passes when empty",      5,    0,    0,      true,    0,    Retry::Now,   500),
        ];
        for (name, owed, cost, wait, allowed, left, retry, reset) in table {
            let state = BucketState {
                whole: owed,
                part: 0,
                changed_at: T0,
            };
            let now = T0 + millis(wait);
            let (got, _) = limit.decide(state, cost, now);
            let wanted = (allowed, left, retry, now + millis(reset));
            assert_eq!(
                (got.allowed, got.remaining, got.retry, got.reset_at),
                wanted,
                "{name}"
            );
        }
    }

    #[test]
    fn a_delay_is_a_reservation_of_one_request() {
        let limit = bucket(10, Micros::SECOND, 1, Hold::UpTo(millis(250)));
        let mut state = BucketState {
            changed_at: T0,
            ..BucketState::default()
        };
        let mut delays = Vec::new();
        for _ in 0..4 {
            let (outcome, next) = limit.decide(state, 1, T0);
            state = next;
            delays.push((outcome.allowed, outcome.delay, outcome.retry));
        }
        assert_eq!(delays[0], (true, millis(0), Retry::Now));
        assert_eq!(delays[1], (true, millis(100), Retry::Now));
        assert_eq!(delays[2], (true, millis(200), Retry::Now));
        assert_eq!(
            delays[3],
            (false, millis(0), after(50)),
            "300 ms away, 250 may be waited"
        );
    }

    #[test]
    fn a_shaped_leaky_bucket_spaces_requests_evenly() {
        let limit = bucket(10, Micros::SECOND, 3, Hold::Queue);
        let mut state = BucketState {
            changed_at: T0,
            ..BucketState::default()
        };
        let mut answers = Vec::new();
        for _ in 0..4 {
            let (outcome, next) = limit.decide(state, 1, T0);
            state = next;
            answers.push((outcome.allowed, outcome.delay, outcome.remaining));
        }
        let wanted = [
            (true, millis(0), 2),
            (true, millis(100), 1),
            (true, millis(200), 0),
            (false, millis(0), 0),
        ];
        assert_eq!(answers, wanted);
    }

    #[test]
    fn give_back_returns_what_has_not_leaked() {
        let limit = bucket(10, Micros::SECOND, 5, Hold::UpTo(Micros::ZERO));
        let state = BucketState {
            whole: 5,
            part: 0,
            changed_at: T0,
        };
        let after_200_ms = limit.give_back(state, 3, T0, T0 + millis(200));
        assert_eq!(
            (after_200_ms.whole, after_200_ms.part),
            (2, 0),
            "3 owed, 1 of them given back"
        );
        let much_later = limit.give_back(state, 3, T0, T0 + millis(10_000));
        assert_eq!((much_later.whole, much_later.part), (0, 0));
        for (after, given) in [(0, 3), (1, 3), (100, 2), (200, 1), (299, 1), (300, 0)] {
            let given_back = limit.given_back(state, 3, T0, T0 + millis(after));
            assert_eq!(given_back, given, "after {after} ms");
        }
        let reset = BucketState::default();
        assert_eq!(limit.given_back(reset, 3, T0, T0), 0, "nothing is owed");
    }

    #[test]
    fn settling_stops_at_a_full_quota() {
        let limit = bucket(10, Micros::SECOND, 5, Hold::UpTo(Micros::ZERO));
        let owed = |whole| BucketState {
            whole,
            part: 0,
            changed_at: T0,
        };
        assert_eq!(limit.settle(owed(1), 2, T0), owed(3));
        assert_eq!(limit.settle(owed(1), u64::MAX, T0), owed(5));
        assert_eq!(
            limit.settle(owed(9), 2, T0),
            owed(9),
            "what is owed already stays owed"
        );
    }

    #[test]
    fn a_refill_that_does_not_divide_never_drifts() {
        // 3 per second: a token every 333,333 1/3 µs. A burst of 2 that is never full again.
        let limit = bucket(3, Micros::SECOND, 2, Hold::UpTo(Micros::ZERO));
        let (mut state, mut now) = (
            BucketState {
                whole: 2,
                part: 0,
                changed_at: T0,
            },
            T0,
        );
        for _ in 0..3_000 {
            let (denied, _) = limit.decide(state, 1, now);
            now = now + denied.retry.wait().unwrap();
            let (allowed, next) = limit.decide(state, 1, now);
            assert!(allowed.allowed);
            state = next;
        }
        assert_eq!(now.since(T0).get(), 1_000_000_000);
    }

    proptest! {
        /// Of everything that fits, and of nothing else.
        #[test]
        fn what_is_admitted_is_what_would_be_decided(
            count in 1..2_000_u64, window in 1..100_000_000_u64, burst in 1..2_000_u64,
            delay in prop::option::of(0..1_000_000_u64),
            whole in 0..3_000_u64, part in 0..100_000_000_u64, cost in 0..50_u64,
            changed_at in 0..200_000_000_u64, now in 0..200_000_000_u64,
        ) {
            let hold = delay.map_or(Hold::Queue, |delay| Hold::UpTo(Micros::new(delay)));
            let limit = bucket(count, Micros::new(window), burst, hold);
            let changed_at = Timestamp::from_micros(changed_at);
            let state = BucketState { whole, part: part % window, changed_at };
            let now = Timestamp::from_micros(now);
            let (outcome, next) = limit.decide(state, cost, now);
            let is_plain = outcome.allowed && outcome.delay.is_zero() && cost > 0;
            let is_admitted = delay.is_some() && is_plain && changed_at <= now;
            prop_assert_eq!(limit.admit(state, cost, now), is_admitted.then_some((outcome, next)));
            prop_assert_eq!(limit.with_common_parts().admit(state, cost, now), None);
        }
    }

    #[test]
    fn a_bucket_says_what_it_was_made_of() {
        let limit = bucket(10, Micros::SECOND, 5, Hold::UpTo(millis(7)));
        assert_eq!((limit.count(), limit.burst()), (10, 5));
        assert_eq!(limit.hold(), Hold::UpTo(millis(7)));
        assert_eq!(
            (limit.window(), limit.to_full()),
            (Micros::SECOND, millis(500))
        );
        assert_eq!(
            (limit.time_for(0), limit.time_for(3)),
            (Micros::ZERO, millis(300))
        );
    }

    #[test]
    fn states_are_kept_in_common_parts_only_where_windows_may_differ() {
        let state = BucketState {
            whole: 3,
            part: 500_000,
            changed_at: T0,
        };
        let plain = bucket(10, Micros::SECOND, 5, Hold::UpTo(Micros::ZERO));
        assert!(!plain.has_common_parts());
        assert_eq!((plain.kept(state), plain.opened(state)), (state, state));

        let second = plain.with_common_parts();
        let minute = bucket(10, Micros::MINUTE, 5, Hold::UpTo(Micros::ZERO)).with_common_parts();
        assert!(second.has_common_parts());
        let kept = second.kept(state);
        assert_eq!((kept.whole, kept.changed_at), (3, T0));
        assert_eq!(second.opened(kept), state);
        let half_of_a_minute = BucketState {
            part: 30_000_000,
            ..state
        };
        assert_eq!(
            minute.opened(kept),
            half_of_a_minute,
            "half a request is half a request"
        );
        // What is not a whole part is rounded up, if need be to a whole request.
        let most = BucketState {
            part: kept.part * 2 - 1,
            ..kept
        };
        assert_eq!(
            (second.opened(most).whole, second.opened(most).part),
            (4, 0)
        );
    }

    #[test]
    fn what_is_denied_or_only_asked_leaves_the_state_as_it_was() {
        let limit = bucket(10, Micros::SECOND, 5, Hold::UpTo(Micros::ZERO));
        let full = BucketState {
            whole: 5,
            part: 0,
            changed_at: T0,
        };
        let now = T0 + millis(50);
        assert_eq!(limit.decide(full, 1, now).1, full, "denied");
        assert_eq!(limit.decide(full, 0, now).1, full, "a peek");
        assert_eq!(limit.decide(full, 6, now).1, full, "never");
    }

    #[test]
    fn a_charge_that_fits_is_admitted_in_one_step_also_in_the_microsecond_of_the_last() {
        let limit = bucket(10, Micros::SECOND, 5, Hold::UpTo(Micros::ZERO));
        let (_, state) = limit.decide(BucketState::default(), 4, T0);
        assert_eq!(limit.admit(state, 1, T0), Some(limit.decide(state, 1, T0)));
        assert_eq!(limit.admit(state, 2, T0), None, "it does not fit");
        assert_eq!(limit.admit(state, 0, T0), None, "a peek");
        let before = Timestamp::from_seconds(999);
        assert_eq!(limit.admit(state, 1, before), None, "the clock went back");
    }

    #[test]
    fn an_untouched_key_is_whole_now_whatever_the_time_of_its_state() {
        let limit = bucket(10, Micros::SECOND, 5, Hold::UpTo(Micros::ZERO));
        let idle = BucketState {
            changed_at: T0 + millis(100),
            ..BucketState::default()
        };
        let (got, _) = limit.decide(idle, 0, T0);
        assert_eq!((got.reset_at, got.at), (T0, T0 + millis(100)));
        for (whole, part) in [(1, 0), (0, 1)] {
            let used = BucketState {
                whole,
                part,
                ..idle
            };
            assert!(
                limit.decide(used, 0, T0).0.reset_at > got.at,
                "{whole}, {part}"
            );
        }
    }

    #[test]
    fn a_state_of_a_clock_that_was_set_back_is_moved_to_now_with_its_usage() {
        let limit = bucket(10, Micros::SECOND, 5, Hold::UpTo(Micros::ZERO));
        let future = BucketState {
            whole: 5,
            part: 0,
            changed_at: T0 + Micros::HOUR,
        };
        let (got, next) = limit.decide(future, 1, T0);
        assert_eq!((got.retry, got.at), (after(100), T0));
        let present = BucketState {
            changed_at: T0,
            ..future
        };
        assert_eq!(next, present);
        assert_eq!(limit.settle(future, 0, T0), present);
    }
}
