//! Tracks a pool that Redis has too few units for: how long requests have to wait, and when not to ask Redis.
//!
//! A wait that Redis returned holds for its cost until units are granted or go back, and for a second at most: other
//! instances may have given back theirs. If many requests arrive before the wait of denied ones is over, not every one
//! of them asks Redis: they get an upper bound of their wait.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::algorithm::Form;
use tidegate_core::{Limit, Micros, Outcome, Retry};
use tokio::time::Instant;

use super::demand::PoolDemand;
use crate::hints::LONGEST;

/// How many costs are remembered.
const COSTS: usize = 8;
/// Above this many impatient requests in a tenth of a second, Redis is not asked again until units have gathered there.
/// A request is impatient if it arrives before the previous wait is over, or finds that others took the granted units
/// while it waited. A single client that waits causes none.
const FLOOD: u64 = 20;
/// The shortest wait in a flood, which is over when no request comes for so long.
const PAUSE: Duration = Duration::from_millis(10);

/// Denials of one pool.
#[derive(Debug)]
pub(super) struct LeaseShortage {
    /// The answers of Redis to requests of different costs since units were last granted or went back.
    answers: SmallVec<[DenialByRedis; 1]>,
    /// How many impatient requests came.
    impatient: PoolDemand,
    /// When the last request that was denied may come again.
    wait_ends: Instant,
    /// When a flood is over if no request comes until then.
    quiet_at: Instant,
    /// Until when units gather in Redis.
    gathers_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct DenialByRedis {
    cost: u64,
    denied_at: Instant,
    /// When a request of this cost is allowed.
    until: Instant,
    outcome: Outcome,
}

impl DenialByRedis {
    /// The latest time at which a request of `cost` is allowed: all units are back then, or enough of them.
    fn latest(&self, limit: &Limit, cost: u64) -> Instant {
        let whole = self.outcome.reset_at.since(self.outcome.at);
        let early = match limit.form() {
            // The rest flows back after that. Less the microsecond that it is rounded up by.
            Form::Bucket(bucket) => {
                let rest = bucket.time_for(bucket.burst().saturating_sub(cost));
                rest - Micros::new(1).min(rest)
            }
            _ => Micros::ZERO,
        };
        self.denied_at + Duration::from(whole - early.min(whole))
    }
}

impl LeaseShortage {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            answers: SmallVec::new(),
            impatient: PoolDemand::new(now),
            wait_ends: now,
            quiet_at: now,
            gathers_until: None,
        }
    }

    /// Records that Redis denied a request of `cost` while the pool was empty.
    pub(super) fn record_denial(&mut self, cost: u64, outcome: &Outcome, denied_at: Instant) {
        let Retry::After(wait) = outcome.retry else {
            return;
        };
        self.answers.retain(|answer| answer.cost != cost);
        if self.answers.len() == COSTS {
            self.answers.remove(0);
        }
        self.answers.push(DenialByRedis {
            cost,
            denied_at,
            until: denied_at + Duration::from(wait),
            outcome: *outcome,
        });
    }

    /// Lets units gather in Redis until then, if many requests are denied.
    pub(super) fn gather(&mut self, until: Instant) {
        self.gathers_until = Some(until);
    }

    /// Forgets the answers of Redis, because units were granted or went back.
    pub(super) fn clear(&mut self) {
        self.answers.clear();
    }

    /// Forgets all but how many requests come.
    pub(super) fn forget(&mut self) {
        self.clear();
        self.gathers_until = None;
    }

    /// Counts a request that was denied with this wait.
    pub(super) fn count(&mut self, retry: Retry, now: Instant) {
        if now < self.wait_ends {
            self.impatient.count(1, now);
        }
        let wait = retry.wait().map_or(PAUSE, Duration::from);
        (self.wait_ends, self.quiet_at) = (now + wait, now + wait.min(PAUSE));
    }

    /// Counts a request that waited for units, which others have taken.
    pub(super) fn count_waiting(&mut self, now: Instant) {
        self.impatient.count(1, now);
        self.quiet_at = now + PAUSE;
    }

    /// The denial of a request that has to wait; none if Redis is to be asked.
    pub(super) fn denial(&self, limit: &Limit, cost: u64, now: Instant) -> Option<Outcome> {
        let is_flood = now < self.quiet_at && self.impatient.lately(now) >= FLOOD;
        let soonest = if is_flood { now + PAUSE } else { now };
        if let Some(known) = self.known(limit, cost, now) {
            let until = known.until.max(soonest);
            return Some(denied_until(until, &known.outcome, now));
        }
        let last = self.recent(now).next_back().filter(|_| is_flood)?;
        // A wait that is enough for a higher cost is enough for this one.
        let dearer = self.recent(now).filter(|answer| answer.cost >= cost);
        let enough = dearer.map(|answer| answer.until).min();
        // A request is not allowed before one that costs less.
        let mut cheaper = self.recent(now).filter(|answer| answer.cost <= cost);
        let is_denied = cheaper.any(|answer| now < answer.until);
        let gathers = self.gathers_until.is_some_and(|until| now < until);
        if !(is_denied || gathers && enough.is_some()) {
            return None;
        }
        let latest = last.latest(limit, cost);
        let until = enough.map_or(latest, |enough| enough.min(latest));
        Some(denied_until(until.max(soonest), &last.outcome, now))
    }

    /// The answer that says exactly how long a request of `cost` has to wait.
    fn known(&self, limit: &Limit, cost: u64, now: Instant) -> Option<&DenialByRedis> {
        // All units of a window come back together.
        let is_window = matches!(limit.form(), Form::FixedWindow(_)) && cost <= limit.capacity();
        let is_meant =
            |answer: &&DenialByRedis| cost == answer.cost || is_window && cost > answer.cost;
        let mut meant = self.recent(now).filter(is_meant);
        meant.find(|answer| now < answer.until)
    }

    /// The answers that are not too old.
    fn recent(&self, now: Instant) -> impl DoubleEndedIterator<Item = &DenialByRedis> {
        let answers = self.answers.iter();
        answers.filter(move |answer| now < answer.denied_at + LONGEST)
    }
}

fn denied_until(until: Instant, outcome: &Outcome, now: Instant) -> Outcome {
    Outcome {
        allowed: false,
        retry: Retry::After(Micros::from(until.saturating_duration_since(now))),
        is_remembered: true,
        ..*outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monotonic::now;
    use tidegate_core::{Algorithm, Rate, Timestamp};

    const AT: Timestamp = Timestamp::from_seconds(1_000);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// 40 a second, all of it used: each unit takes 25 ms.
    fn limit(algorithm: Algorithm) -> Limit {
        Limit::new(Rate::per_second(40), algorithm).unwrap()
    }

    fn denied(wait: u64, whole: u64) -> Outcome {
        Outcome {
            allowed: false,
            limit: 40,
            remaining: 0,
            exceeded: 0,
            retry: Retry::After(Micros::from_millis(wait)),
            reset_at: AT + Micros::from_millis(whole),
            delay: Micros::ZERO,
            at: AT,
            is_remembered: false,
        }
    }

    fn wait(shortage: &LeaseShortage, limit: &Limit, cost: u64) -> Option<u64> {
        let outcome = shortage.denial(limit, cost, now())?;
        assert!(!outcome.allowed);
        Some(outcome.retry.wait().unwrap().get())
    }

    #[tokio::test(start_paused = true)]
    async fn each_cost_waits_as_long_as_redis_says_and_others_ask() {
        let bucket = limit(Algorithm::TOKEN_BUCKET);
        let mut shortage = LeaseShortage::new(now());
        shortage.record_denial(1, &denied(25, 1_000), now());
        shortage.record_denial(20, &denied(500, 1_000), now());
        tokio::time::advance(millis(10)).await;
        assert_eq!(wait(&shortage, &bucket, 1), Some(15_000));
        assert_eq!(wait(&shortage, &bucket, 20), Some(490_000));
        assert_eq!(wait(&shortage, &bucket, 10), None, "a cost between them");
        tokio::time::advance(millis(15)).await;
        assert_eq!(wait(&shortage, &bucket, 1), None, "its time has come");
        shortage.clear();
        assert_eq!(wait(&shortage, &bucket, 20), None, "units were granted");
    }

    #[tokio::test(start_paused = true)]
    async fn all_units_of_a_fixed_window_come_back_at_its_end() {
        let window = limit(Algorithm::FIXED_WINDOW);
        let mut shortage = LeaseShortage::new(now());
        shortage.record_denial(5, &denied(300, 300), now());
        assert_eq!(wait(&shortage, &window, 40), Some(300_000));
        assert_eq!(wait(&shortage, &window, 4), None, "there may be so many");
        assert_eq!(wait(&shortage, &window, 41), None, "never");
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_is_remembered_for_a_second_at_most() {
        let window = limit(Algorithm::FIXED_WINDOW);
        let mut shortage = LeaseShortage::new(now());
        shortage.record_denial(5, &denied(60_000, 60_000), now());
        flood(&mut shortage);
        tokio::time::advance(millis(999)).await;
        assert_eq!(wait(&shortage, &window, 5), Some(59_001_000));
        tokio::time::advance(millis(1)).await;
        assert_eq!(wait(&shortage, &window, 5), None, "others may give back");
        flood(&mut shortage);
        assert_eq!(wait(&shortage, &window, 5), None, "also in a flood");
    }

    /// Many requests that do not wait.
    fn flood(shortage: &mut LeaseShortage) {
        for _ in 0..=FLOOD {
            shortage.count(Retry::After(Micros::from_millis(25)), now());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_flood_redis_is_seldom_asked_and_waits_are_long_enough() {
        let bucket = limit(Algorithm::TOKEN_BUCKET);
        let mut shortage = LeaseShortage::new(now());
        shortage.gather(now() + millis(100));
        shortage.record_denial(1, &denied(25, 1_000), now());
        assert_eq!(wait(&shortage, &bucket, 20), None);
        flood(&mut shortage);
        assert_eq!(wait(&shortage, &bucket, 20), Some(500_001), "as it flows");
        tokio::time::advance(millis(9)).await;
        assert_eq!(wait(&shortage, &bucket, 1), Some(16_000), "as Redis said");
        tokio::time::advance(millis(16)).await;
        assert_eq!(wait(&shortage, &bucket, 1), None, "the flood is over");
        flood(&mut shortage);
        assert_eq!(wait(&shortage, &bucket, 1), Some(10_000), "units gather");
        assert_eq!(wait(&shortage, &bucket, 3), None, "only Redis knows");
        shortage.record_denial(5, &denied(100, 975), now());
        assert_eq!(wait(&shortage, &bucket, 3), Some(50_001), "as it flows");
        let counter = limit(Algorithm::SlidingWindowCounter);
        assert_eq!(wait(&shortage, &counter, 3), Some(100_000), "for 5");
        tokio::time::advance(millis(100)).await;
        flood(&mut shortage);
        assert_eq!(wait(&shortage, &bucket, 1), None, "enough has gathered");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_wait_for_what_others_take_are_a_flood_too() {
        let bucket = limit(Algorithm::TOKEN_BUCKET);
        let mut shortage = LeaseShortage::new(now());
        shortage.gather(now() + millis(100));
        for _ in 0..FLOOD {
            shortage.count_waiting(now());
        }
        assert_eq!(wait(&shortage, &bucket, 1), None, "Redis is asked once");
        shortage.record_denial(1, &denied(1, 1_000), now());
        assert_eq!(wait(&shortage, &bucket, 1), Some(10_000));
        tokio::time::advance(millis(10)).await;
        assert_eq!(wait(&shortage, &bucket, 1), None, "it is over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_is_never_turned_away_by_a_flood() {
        let bucket = limit(Algorithm::TOKEN_BUCKET);
        let mut shortage = LeaseShortage::new(now());
        shortage.gather(now() + millis(100));
        let short = Outcome {
            retry: Retry::After(Micros::new(100)),
            ..denied(0, 1_000)
        };
        for _ in 0..100 {
            shortage.record_denial(1, &short, now());
            shortage.count(short.retry, now());
            tokio::time::advance(Duration::from_micros(100)).await;
            assert_eq!(wait(&shortage, &bucket, 1), None, "one that waits");
        }
        flood(&mut shortage);
        shortage.record_denial(1, &short, now());
        let denied = shortage.denial(&bucket, 1, now()).unwrap().retry;
        assert_eq!(denied, Retry::After(Micros::from_millis(10)));
        shortage.count(denied, now());
        tokio::time::advance(millis(10)).await;
        assert_eq!(wait(&shortage, &bucket, 1), None, "the last of a flood");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_costs_are_remembered_and_no_more() {
        let slots = limit(Algorithm::SLIDING_WINDOW_SLOTS);
        let mut shortage = LeaseShortage::new(now());
        for cost in 1..=9 {
            shortage.record_denial(cost, &denied(300, 900), now());
            shortage.record_denial(cost, &denied(400, 900), now());
        }
        assert_eq!(shortage.answers.len(), COSTS);
        assert_eq!(wait(&shortage, &slots, 1), None);
        assert_eq!(wait(&shortage, &slots, 2), Some(400_000));
    }
}
