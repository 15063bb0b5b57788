//! A pool of units of one state that were charged in advance: serving requests from it, asking Redis for more, and
//! adding granted units.

use std::time::Duration;

use tidegate_core::algorithm::Form;
use tidegate_core::{Limit, Micros, Outcome, PermitId, Retry, Timestamp};
use tokio::time::Instant;

use super::demand::PoolDemand;
use super::shortage::LeaseShortage;
use super::span::Span;
use crate::monotonic::now;
use tidegate_redis_wire::plan::OwnedState;
use tidegate_redis_wire::wire::{LeaseRequest, Leased};

/// How long the lease of a bucket lasts.
const LEASE: Micros = Micros::SECOND;
/// For how long a pool should last when it is filled.
const LASTS: Duration = Duration::from_millis(100);
/// How long a pool may lie idle before its units go back.
const IDLE: Duration = Duration::from_millis(200);
/// How long an empty pool is kept for its measured demand.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// How many units per instance should gather in Redis before it is asked again after it had too few.
pub(crate) const AT_LEAST: u64 = 50;
/// A lease is not used for the last moment before its end.
const MARGIN: Duration = Duration::from_millis(1);

/// Units that were charged in advance, and how fast they are used.
#[derive(Debug)]
pub(crate) struct UnitPool {
    pub(crate) state: OwnedState,
    lease: Option<HeldLease>,
    /// How much to ask for next time, unless less will be used before the window or slot ends.
    batch: u64,
    /// Whether Redis has been given the number of used units of the lease, and has not granted the next one since.
    is_reported: bool,
    demand: PoolDemand,
    used_at: Instant,
    /// The end of the window or slot that was charged last, at the latest. Later requests are charged in the next one.
    boundary: Option<Instant>,
    /// The end of the lease whose return is arranged.
    returning: Option<Timestamp>,
    shortage: LeaseShortage,
}

#[derive(Debug)]
struct HeldLease {
    lease: UnitLease,
    /// How many units were granted.
    granted: u64,
    /// How many are left.
    units: u64,
    /// When the first unit was charged. Units do not go back to a window that was reset since.
    charged_since: Timestamp,
    filled_at: Instant,
    ends_at: Instant,
    /// The outcome with which it was granted.
    outcome: Outcome,
}

impl HeldLease {
    /// The outcome of a request that takes `cost`; none if there are fewer units.
    fn outcome_after(&self, cost: u64) -> Option<Outcome> {
        let units = self.units.checked_sub(cost)?;
        let remaining = self.outcome.remaining.saturating_add(units);
        Some(Outcome {
            allowed: true,
            remaining: remaining.min(self.outcome.limit),
            retry: Retry::Now,
            delay: Micros::ZERO,
            ..self.outcome
        })
    }
}

/// The identity of a lease in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitLease {
    pub(crate) id: PermitId,
    /// The instant at which its units were charged.
    pub(crate) charged_at: Timestamp,
    /// When it ends: with its window or slot, if it has one.
    pub(crate) ends_at: Timestamp,
}

/// How the leases of a limit follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    /// Redis carries the units that are left of a lease over into the next one.
    Bucket,
    /// Units belong to a window or slot. Units of the same window are added up.
    Window,
}

impl LeaseKind {
    pub(crate) fn for_limit(limit: &Limit) -> Self {
        match limit.form() {
            Form::Bucket(_) => Self::Bucket,
            _ => Self::Window,
        }
    }

    /// Whether units of `one` may be put back into `other`.
    pub(crate) fn is_same(self, one: &UnitLease, other: &UnitLease) -> bool {
        match self {
            Self::Bucket => one.id == other.id,
            Self::Window => one.ends_at == other.ends_at,
        }
    }
}

/// A pool's request for units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitRequest {
    /// Fewer units are of no use.
    pub(crate) least: u64,
    pub(crate) want: LeaseRequest,
    /// The units left of the running lease.
    pub(crate) left: u64,
}

/// The answer of Redis to a request for units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseGrant {
    pub(crate) leased: Leased,
    /// The time of Redis when it decided.
    pub(crate) now: Timestamp,
    pub(crate) sent_at: Instant,
}

/// Units that go back.
#[derive(Debug)]
pub(crate) struct Unused {
    pub(crate) state: OwnedState,
    pub(crate) lease: UnitLease,
    pub(crate) units: u64,
}

impl UnitPool {
    pub(crate) fn new(state: OwnedState) -> Self {
        Self {
            state,
            lease: None,
            batch: 1,
            is_reported: false,
            demand: PoolDemand::new(now()),
            used_at: now(),
            boundary: None,
            returning: None,
            shortage: LeaseShortage::new(now()),
        }
    }

    /// Counts a request, whether or not it is served.
    pub(crate) fn asked(&mut self, cost: u64) {
        self.demand.count(cost, now());
    }

    /// Serves `cost`, if there is that much.
    pub(crate) fn take(&mut self, limit: &Limit, cost: u64) -> Option<(Outcome, UnitLease)> {
        let now = now();
        self.used_at = now;
        self.serve(limit, cost, |held| now < held.ends_at)
    }

    /// Serves the request for which the lease `id` was just taken, even after its end: the cost is charged
    /// already.
    pub(crate) fn take_granted(
        &mut self,
        limit: &Limit,
        cost: u64,
        id: PermitId,
    ) -> Option<(Outcome, UnitLease)> {
        self.serve(limit, cost, |held| held.lease.id == id)
    }

    fn serve(
        &mut self,
        limit: &Limit,
        cost: u64,
        is_usable: impl FnOnce(&HeldLease) -> bool,
    ) -> Option<(Outcome, UnitLease)> {
        // Units taken under a limit with other numbers do not count for this one.
        if *limit != self.state.limit {
            return None;
        }
        let held = self.lease.as_mut().filter(|held| is_usable(held))?;
        let outcome = held.outcome_after(cost)?;
        held.units -= cost;
        Some((outcome, held.lease))
    }

    /// The answer of [`take`](Self::take), or the number of units if there are too few. Takes nothing.
    pub(crate) fn preview(&self, limit: &Limit, cost: u64) -> Result<Outcome, u64> {
        let now = now();
        let is_usable = |held: &&HeldLease| *limit == self.state.limit && now < held.ends_at;
        let held = self.lease.as_ref().filter(is_usable).ok_or(0_u64)?;
        held.outcome_after(cost).ok_or(held.units)
    }

    /// Lets units gather in Redis before it is asked again, so that where many requests are denied they do not ask for
    /// every single unit: as long as `AT_LEAST` for each instance take, but never so long that any could be lost.
    fn gather(&mut self, outcome: &Outcome, sent_at: Instant, instances: u64) {
        let units = AT_LEAST.saturating_mul(instances);
        let (capacity, whole, longest) = match self.state.limit.form() {
            Form::Bucket(bucket) => (bucket.burst(), bucket.to_full(), LASTS),
            Form::SlidingCounter(counter) => {
                // Units that are not taken by the window's end are lost.
                let window = Duration::from(counter.window());
                let left = self.left(sent_at).unwrap_or_default();
                let longest = (left / 4).max(window / 128).min(LASTS);
                (self.state.limit.capacity(), counter.window(), longest)
            }
            // All units of a window or slot come back together, and denials are remembered until then.
            Form::FixedWindow(_)
            | Form::SlidingSlots(_)
            | Form::SlidingLog(_)
            | Form::Concurrency(_) => return,
        };
        let gather = u128::from(whole.get()) * u128::from(units.min(capacity / 2).max(1))
            / u128::from(capacity.max(1));
        let gather = Duration::from_micros(u64::try_from(gather).unwrap_or(u64::MAX));
        let retry = Duration::from(outcome.retry.wait().unwrap_or_default());
        self.shortage
            .gather(sent_at + gather.max(retry).min(longest));
    }

    /// The denial of a request, where it is known how long it has to wait; none if Redis is to be asked.
    pub(crate) fn denial(&self, limit: &Limit, cost: u64) -> Option<Outcome> {
        // The known outcome is for an empty pool.
        let is_meant = *limit == self.state.limit && self.units() == 0;
        is_meant.then(|| self.shortage.denial(limit, cost, now()))?
    }

    /// Counts a request that waited for units, which others have taken.
    pub(crate) fn count_waiting(&mut self) {
        self.shortage.count_waiting(now());
    }

    /// Counts a request that was denied.
    pub(crate) fn count_denial(&mut self, outcome: &Outcome) {
        self.shortage.count(outcome.retry, now());
    }

    /// Changes to another limit of the same state. Returns the units taken under the old one.
    pub(crate) fn adopt(&mut self, limit: &Limit) -> Option<Unused> {
        if *limit == self.state.limit {
            return None;
        }
        let unused = self.empty();
        self.state.limit = limit.clone();
        self.batch = 1;
        self.shortage.forget();
        unused
    }

    /// Puts back units that were served and are not needed. False if the pool no longer has their lease, or has
    /// reported them to Redis as used.
    pub(crate) fn put_back(&mut self, cost: u64, is_of: impl Fn(&UnitLease) -> bool) -> bool {
        if !self.takes_back(cost, is_of) {
            return false;
        }
        if let Some(held) = &mut self.lease {
            held.units += cost;
        }
        // A request may lack fewer units now than it did when Redis was asked.
        self.shortage.clear();
        true
    }

    /// Whether units that were served can be put back now.
    pub(crate) fn takes_back(&self, cost: u64, is_of: impl Fn(&UnitLease) -> bool) -> bool {
        let now = now();
        let is_same = |held: &HeldLease| {
            let used = held.granted.saturating_sub(held.units);
            now < held.ends_at && is_of(&held.lease) && used >= cost
        };
        !self.is_reported && self.lease.as_ref().is_some_and(is_same)
    }

    /// Forgets denials, because units went back to Redis.
    pub(crate) fn forget_denials(&mut self) {
        self.shortage.clear();
    }

    /// How much is left of the current window or slot; none if that is unknown.
    fn left(&self, now: Instant) -> Option<Duration> {
        Span::for_limit(&self.state.limit)?.left(self.boundary?, now)
    }

    /// How many units taken now will be used before their end at the measured demand. More would go back so late
    /// that others could not use all of them.
    fn usable(&self, now: Instant) -> u64 {
        let Some(span) = Span::for_limit(&self.state.limit) else {
            return u64::MAX;
        };
        let Some(left) = self.left(now) else {
            return 0;
        };
        // Demand varies, so a little less than expected.
        let until_return = self.demand.expected(left.saturating_sub(span.before_end()));
        let surely = until_return.saturating_sub(2 * until_return.isqrt());
        // Units taken after that do not go back.
        let until_end = self.demand.expected(left.min(span.before_end())) / 2;
        surely.max(until_end.saturating_sub(until_end.isqrt()))
    }

    /// The request to send to Redis to serve `cost`: no more than `share`, if less is enough. All waiting requests
    /// together need `waiting`.
    pub(crate) fn ask(&mut self, cost: u64, waiting: u64, share: u64) -> UnitRequest {
        let now = now();
        let held = self.lease.as_ref().filter(|held| now < held.ends_at);
        let left = held.map_or(0, |held| held.units);
        let missing = cost.saturating_sub(left).max(1);
        let most = self.batch.min(self.usable(now)).max(waiting);
        let most = most.min(share).max(missing);
        let (least, units, previous) = match LeaseKind::for_limit(&self.state.limit) {
            LeaseKind::Bucket => {
                let used = |held: &HeldLease| held.granted.saturating_sub(held.units);
                let previous = held.map(|held| (held.lease.id, used(held)));
                (cost, most.saturating_add(left), previous)
            }
            LeaseKind::Window => (missing, most, None),
        };
        self.is_reported = previous.is_some();
        let want = LeaseRequest {
            id: PermitId::random(),
            units,
            lasts: LEASE,
            previous,
        };
        UnitRequest { least, want, left }
    }

    /// Takes in the answer of Redis to `ask`. If it was asked under another limit than the pool's by now, the
    /// units are lost until their lease ends.
    pub(crate) fn granted(
        &mut self,
        limit: &Limit,
        ask: &UnitRequest,
        grant: &LeaseGrant,
        instances: u64,
    ) {
        if *limit != self.state.limit {
            return;
        }
        let leased = &grant.leased;
        if leased.outcome.allowed {
            self.shortage.clear();
        }
        if leased.units > 0 {
            self.learn_batch();
            self.fill(ask, grant);
        }
        if leased.units < ask.want.units && leased.outcome.retry != Retry::Never {
            self.gather(&leased.outcome, grant.sent_at, instances);
        }
        // With a single instance, the grant itself says when there is more.
        if !leased.outcome.allowed || instances <= 1 {
            let denied = Outcome {
                allowed: false,
                retry: leased.more_after,
                ..leased.outcome
            };
            // From now on, so that a request that waits for it is not too early for Redis.
            self.shortage.record_denial(ask.least, &denied, now());
        }
    }

    /// Asks for more next time if the last lease was soon used up, and for less if it was not. A lease of less than
    /// a batch says nothing about larger ones: the end of a window or a shortage made it small.
    fn learn_batch(&mut self) {
        if let Some(held) = &self.lease {
            let lasted = now().saturating_duration_since(held.filled_at);
            if lasted < LASTS && held.granted >= self.batch {
                self.batch = self.batch.saturating_mul(2);
            } else if lasted > LASTS * 2 {
                self.batch = (self.batch / 2).max(1);
            }
        }
        self.batch = self.batch.min(self.state.limit.capacity());
    }

    fn fill(&mut self, ask: &UnitRequest, grant: &LeaseGrant) {
        let Leased {
            mut outcome,
            units,
            ends_at,
            more_after: _,
        } = grant.leased;
        let lease = UnitLease {
            id: ask.want.id,
            charged_at: outcome.at,
            ends_at,
        };
        let kind = LeaseKind::for_limit(&self.state.limit);
        let (carried, taken) = match kind {
            LeaseKind::Bucket => (ask.left.min(units), units.saturating_sub(ask.left)),
            LeaseKind::Window => (ask.left, units),
        };
        if !outcome.allowed {
            // The units left here are part of `remaining` as Redis reports it.
            outcome.remaining = outcome.remaining.saturating_sub(carried);
        }
        // Since Redis was asked, some of the remaining units may have been used, or expired with their window, and more
        // may have been put back.
        let held = self.lease.as_ref();
        let (left, carried) = match kind {
            LeaseKind::Bucket => (held.map_or(0, |held| held.units.min(carried)), carried),
            LeaseKind::Window => {
                let same = held.filter(|held| held.lease.ends_at == ends_at);
                let left = same.map_or(0, |held| held.units);
                (left, if left > 0 { carried.max(left) } else { 0 })
            }
        };
        let earlier = held.filter(|_| left > 0);
        let charged_since = earlier.map_or(outcome.at, |held| held.charged_since.min(outcome.at));
        let granted = taken.saturating_add(carried);
        self.is_reported = false;
        let lasts = Duration::from(ends_at.since(grant.now));
        let received_at = now();
        // Redis may have decided as late as that. The lease ends as if it had decided when it was asked.
        self.boundary = Some(received_at + lasts);
        self.lease = Some(HeldLease {
            lease,
            granted,
            units: left.saturating_add(taken),
            charged_since,
            filled_at: received_at,
            ends_at: grant.sent_at + lasts.saturating_sub(MARGIN),
            outcome,
        });
    }

    /// Takes out the remaining units, to give them back.
    pub(crate) fn empty(&mut self) -> Option<Unused> {
        let held = self.lease.take()?;
        let is_worth = held.units > 0 && now() < held.ends_at;
        is_worth.then(|| {
            self.shortage.clear();
            let charged_at = held.charged_since;
            Unused {
                state: self.state.clone(),
                lease: UnitLease {
                    charged_at,
                    ..held.lease
                },
                units: held.units,
            }
        })
    }

    /// Drops its units, and the memory of a shortage.
    pub(crate) fn forget(&mut self) {
        self.lease = None;
        self.shortage.forget();
    }

    /// When the units left of a lease should go back. Returned once for each end.
    pub(crate) fn arrange_return(&mut self) -> Option<Instant> {
        let (held, span) = (self.lease.as_ref()?, Span::for_limit(&self.state.limit)?);
        let is_arranged = self.returning.replace(held.lease.ends_at) == Some(held.lease.ends_at);
        let at = held.ends_at.checked_sub(span.before_end())?;
        (!is_arranged).then_some(at)
    }

    /// Whether its units should go back: they are not used, or their end is near.
    pub(crate) fn is_idle(&self) -> bool {
        let now = now();
        let before_end =
            Span::for_limit(&self.state.limit).map_or(Duration::ZERO, Span::before_end);
        self.lease.as_ref().is_some_and(|held| {
            let ends_soon = now + before_end >= held.ends_at && now < held.ends_at;
            held.units > 0 && (now >= self.used_at + IDLE || ends_soon)
        })
    }

    /// Whether it is empty and was not used for a while.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.units() == 0 && self.used_at.elapsed() > FORGOTTEN
    }

    /// How many units it holds.
    pub(crate) fn units(&self) -> u64 {
        let now = now();
        let held = self.lease.as_ref().filter(|held| now < held.ends_at);
        held.map_or(0, |held| held.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{Algorithm, Charge, Rate, Request, Scope};
    use tidegate_redis_wire::keys::{KeySecret, RedisKeys, SecretFrom};
    use tidegate_redis_wire::plan::Plan;

    const NOW: Timestamp = Timestamp::from_seconds(1_000);

    fn limit(algorithm: Algorithm) -> Limit {
        Limit::new(Rate::per_minute(100), algorithm).unwrap()
    }

    /// A pool that was granted ten units, of which four are used.
    fn pool(limit: &Limit) -> UnitPool {
        let keys = RedisKeys::new(None, KeySecret::new(SecretFrom::Public));
        let scope = Scope::new("pool").leased();
        let charges = [Charge {
            scope: &scope,
            limit,
            key: "key",
            cost: 1,
        }];
        let plan = Plan::new(&keys, &Request::new(&charges));
        let mut pool = UnitPool::new(OwnedState::from_planned(&plan.charges[0]));
        let ask = pool.ask(1, 10, 50);
        assert_eq!((ask.least, ask.want.units, ask.left), (1, 10, 0));
        assert_eq!(ask.want.previous, None);
        pool.granted(limit, &ask, &grant(10, Micros::MINUTE), 1);
        assert!(pool.take(limit, 4).is_some());
        pool
    }

    fn grant(units: u64, lasts: Micros) -> LeaseGrant {
        let outcome = Outcome {
            allowed: true,
            limit: 100,
            remaining: 50,
            exceeded: 0,
            retry: Retry::Now,
            reset_at: NOW + lasts,
            delay: Micros::ZERO,
            at: NOW,
            is_remembered: false,
        };
        let leased = Leased {
            outcome,
            units,
            ends_at: NOW + lasts,
            more_after: Retry::After(Micros::ZERO),
        };
        LeaseGrant {
            leased,
            now: NOW,
            sent_at: now(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn redis_carries_the_rest_of_a_bucket_over_into_the_next_lease() {
        let limit = limit(Algorithm::TOKEN_BUCKET);
        let mut pool = pool(&limit);
        let first = pool.lease.as_ref().unwrap().lease.id;
        let ask = pool.ask(8, 8, 50);
        assert_eq!((ask.least, ask.want.units, ask.left), (8, 14, 6));
        assert_eq!(ask.want.previous, Some((first, 4)));
        assert!(pool.take(&limit, 2).is_some(), "while Redis is asked");
        pool.granted(&limit, &ask, &grant(14, Micros::SECOND), 1);
        assert_eq!(pool.units(), 12, "without what was used meanwhile");
        assert!(pool.take_granted(&limit, 12, ask.want.id).is_some());
        let used = pool.ask(1, 1, 50).want.previous;
        assert_eq!(used, Some((ask.want.id, 14)));
    }

    #[tokio::test(start_paused = true)]
    async fn units_of_one_window_are_added_up_and_end_with_it() {
        let limit = limit(Algorithm::FIXED_WINDOW);
        let mut same = pool(&limit);
        let ask = same.ask(8, 8, 50);
        assert_eq!((ask.least, ask.want.units, ask.left), (2, 8, 6));
        assert_eq!(ask.want.previous, None);
        same.granted(&limit, &ask, &grant(8, Micros::MINUTE), 1);
        assert_eq!(same.units(), 14);
        let mut next = pool(&limit);
        let ask = next.ask(8, 8, 50);
        next.granted(&limit, &ask, &grant(8, Micros::HOUR), 1);
        assert_eq!(next.units(), 8, "the rest is of the window before");
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(next.units(), 0);
        assert_eq!(next.take(&limit, 1), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_put_back_while_redis_is_asked_is_not_lost() {
        let any = |_: &UnitLease| true;
        let limit = limit(Algorithm::FIXED_WINDOW);
        let mut window = pool(&limit);
        let ask = window.ask(8, 8, 50);
        assert!(window.put_back(3, any));
        window.granted(&limit, &ask, &grant(8, Micros::MINUTE), 1);
        assert_eq!(window.units(), 6 + 3 + 8);
        assert!(!window.put_back(1, any), "it knows of none that is used");

        let limit = self::limit(Algorithm::TOKEN_BUCKET);
        let mut bucket = pool(&limit);
        let ask = bucket.ask(8, 8, 50);
        assert!(!bucket.put_back(3, any), "Redis knows them as used");
        bucket.granted(&limit, &ask, &grant(14, Micros::SECOND), 1);
        assert_eq!(bucket.units(), 14);
        assert!(bucket.take(&limit, 3).is_some());
        assert!(bucket.put_back(3, any));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_lease_of_a_whole_batch_that_is_soon_used_up_lets_batches_grow() {
        let limit = limit(Algorithm::FIXED_WINDOW);
        let mut pool = pool(&limit);
        // What is granted, how long after the lease before it, and the batch from then on.
        #[rustfmt::skip]
        let table = [
            (1,  10,   2),
            (1,  10,   2),
            (2,  10,   2),
            (4,  10,   4),
            (4,  150,  4),
            (3,  250,  2),
        ];
        pool.lease = None;
        for (units, after, batch) in [(1, 0, 1)].into_iter().chain(table) {
            tokio::time::advance(Duration::from_millis(after)).await;
            let ask = pool.ask(1, 1, 50);
            pool.granted(&limit, &ask, &grant(units, Micros::MINUTE), 1);
            assert_eq!(pool.batch, batch, "{units} units after {after} ms");
            assert!(pool.take(&limit, units).is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn units_of_the_next_window_are_asked_for_when_it_has_certainly_begun() {
        let limit = limit(Algorithm::FIXED_WINDOW);
        let mut pool = pool(&limit);
        pool.batch = 20;
        let (ask, grant) = (pool.ask(8, 8, 50), grant(8, Micros::SECOND));
        // Redis decided at the begin or at the end of this time.
        tokio::time::advance(Duration::from_millis(10)).await;
        pool.granted(&limit, &ask, &grant, 1);
        let ends_at = pool.lease.as_ref().unwrap().ends_at;
        assert_eq!(ends_at, grant.sent_at + Duration::from_millis(999));
        tokio::time::advance(Duration::from_millis(995)).await;
        pool.asked(20);
        assert_eq!(pool.ask(1, 1, 50).want.units, 1, "it may be the old one");
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(pool.ask(1, 1, 50).want.units, 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_under_another_limit_is_not_kept() {
        let limit = limit(Algorithm::TOKEN_BUCKET);
        let mut pool = pool(&limit);
        let ask = pool.ask(8, 8, 50);
        let more: Limit = "200/minute".parse().unwrap();
        let unused = pool.adopt(&more).unwrap();
        assert_eq!(unused.units, 6);
        pool.granted(&limit, &ask, &grant(14, Micros::SECOND), 1);
        assert_eq!(pool.units(), 0);
        assert_eq!(pool.denial(&more, 1), None);
    }
}
