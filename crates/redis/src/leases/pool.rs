//! A pool of units that were charged in advance, of one state.

use std::time::Duration;

use super::demand::Demand;
use super::span::Span;
use crate::monotonic::now;
use tidegate_core::algorithm::Form;
use tidegate_core::{LeaseId, Limit, Micros, Outcome, Retry, Timestamp};
use tokio::time::Instant;

/// For how long a pool should last when it is filled.
const LASTS: Duration = Duration::from_millis(100);
/// How long a pool may lie idle before its units go back.
const IDLE: Duration = Duration::from_millis(200);
/// How long an empty pool is kept for what was learned about its demand.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// How many units should be there for each instance when Redis is asked again after it had too few.
pub(crate) const AT_LEAST: u64 = 50;
/// A lease is not used for the last moment before its end.
const MARGIN: Duration = Duration::from_millis(1);

/// Units that were charged in advance, and how fast they go.
#[derive(Debug)]
pub(crate) struct Pool {
    scope: tidegate_core::Scope,
    limit: Limit,
    key: Box<str>,
    lease: Option<Held>,
    /// How much to ask for next time, unless less will be used before the window or slot ends.
    batch: u64,
    demand: Demand,
    used_at: Instant,
    /// When the window or slot ends or has ended that was charged last.
    boundary: Option<Instant>,
    /// The end of the lease whose return is arranged.
    returning: Option<Timestamp>,
    /// Until when nothing is asked for, because Redis had less than was wanted, and what it said.
    rests: Option<(Instant, Outcome)>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    /// How many it was for in all.
    granted: u64,
    /// How many are left.
    units: u64,
    filled_at: Instant,
    ends_at: Instant,
    /// What Redis said when it was taken.
    outcome: Outcome,
}

/// What a lease is called where it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    /// The instant at which its units were charged.
    pub(crate) charged_at: Timestamp,
    /// Its end: that of the window or slot, where it is one.
    pub(crate) ends_at: Timestamp,
}

/// What Redis granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) lease: Lease,
    /// How many units it added to what was left.
    pub(crate) taken: u64,
    /// How long it lasts from the instant of its decision.
    pub(crate) lasts: Micros,
    pub(crate) sent_at: Instant,
    pub(crate) outcome: Outcome,
    /// How many that were left of the lease before may belong to this one.
    pub(crate) carried: u64,
    /// Whether it is a bucket's, in which Redis itself carries over what was left.
    pub(crate) is_bucket: bool,
}

/// What a pool would have to be filled with.
#[derive(Debug)]
pub(crate) struct Want {
    /// Less is of no use.
    pub(crate) least: u64,
    /// What would be good to have.
    pub(crate) most: u64,
    /// The lease that is still running, and how much of it is used and left.
    pub(crate) before: Option<(Lease, u64, u64)>,
}

/// Units that go back.
#[derive(Debug)]
pub(crate) struct Unused {
    pub(crate) scope: tidegate_core::Scope,
    pub(crate) limit: Limit,
    pub(crate) key: Box<str>,
    pub(crate) lease: Lease,
    pub(crate) units: u64,
}

impl Pool {
    pub(crate) fn new(scope: &tidegate_core::Scope, limit: &Limit, key: &str) -> Self {
        Self {
            scope: scope.clone(),
            limit: limit.clone(),
            key: key.into(),
            lease: None,
            batch: 1,
            demand: Demand::new(now()),
            used_at: now(),
            boundary: None,
            returning: None,
            rests: None,
        }
    }

    /// Counts a request, whether or not it is served.
    pub(crate) fn asked(&mut self, cost: u64) {
        self.demand.count(cost, now());
    }

    /// Serves `cost`, if there is that much.
    pub(crate) fn take(&mut self, limit: &Limit, cost: u64) -> Option<(Outcome, Lease)> {
        let now = now();
        self.used_at = now;
        self.serve(limit, cost, |held| now < held.ends_at)
    }

    /// Serves the request for which the lease `id` was just taken. Its cost was charged for it, so it does
    /// not matter if the answer has come after the end.
    pub(crate) fn take_granted(
        &mut self,
        limit: &Limit,
        cost: u64,
        id: LeaseId,
    ) -> Option<(Outcome, Lease)> {
        self.serve(limit, cost, |held| held.lease.id == id)
    }

    fn serve(
        &mut self,
        limit: &Limit,
        cost: u64,
        is_usable: impl FnOnce(&Held) -> bool,
    ) -> Option<(Outcome, Lease)> {
        // What was taken under other numbers does not speak for these.
        if *limit != self.limit {
            return None;
        }
        let held = self.lease.as_mut().filter(|held| is_usable(held))?;
        if held.units < cost {
            return None;
        }
        held.units -= cost;
        let remaining = held.outcome.remaining.saturating_add(held.units);
        let outcome = Outcome {
            allowed: true,
            remaining: remaining.min(held.outcome.limit),
            retry: Retry::Now,
            delay: Micros::ZERO,
            ..held.outcome
        };
        Some((outcome, held.lease))
    }

    /// Lets some units gather in Redis before it is asked again, so that many who wait for what drips in do
    /// not ask for every drop: as long as `AT_LEAST` for each instance take, but never so long that any
    /// could be lost.
    pub(crate) fn rest(&mut self, outcome: &Outcome, sent_at: Instant, instances: u64) {
        let units = AT_LEAST.saturating_mul(instances);
        let (capacity, whole, longest) = match self.limit.form() {
            Form::Bucket(bucket) => (bucket.burst(), bucket.to_full(), LASTS),
            Form::SlidingCounter(counter) => {
                // What has not been taken at the window's end is lost.
                let window = Duration::from(counter.window());
                let left = self.left(sent_at).unwrap_or_default();
                let longest = (left / 4).max(window / 128).min(LASTS);
                (self.limit.capacity(), counter.window(), longest)
            }
            // All of a window or slot comes back at once, and denials are remembered until then.
            Form::FixedWindow(_)
            | Form::SlidingSlots(_)
            | Form::SlidingLog(_)
            | Form::Concurrency(_) => return,
        };
        let gather = u128::from(whole.get()) * u128::from(units.min(capacity / 2).max(1))
            / u128::from(capacity.max(1));
        let gather = Duration::from_micros(u64::try_from(gather).unwrap_or(u64::MAX));
        let retry = Duration::from(outcome.retry.wait().unwrap_or_default());
        self.rests = Some((sent_at + gather.max(retry).min(longest), *outcome));
    }

    /// The answer while it rests: denied until then.
    pub(crate) fn resting(&self, limit: &Limit) -> Option<Outcome> {
        let (until, outcome) = self.rests.filter(|_| *limit == self.limit)?;
        let wait = until.checked_duration_since(now())?;
        let wait = Micros::from(wait);
        (!wait.is_zero()).then_some(Outcome {
            allowed: false,
            remaining: self.units(),
            retry: Retry::After(wait),
            delay: Micros::ZERO,
            ..outcome
        })
    }

    /// Goes over to another limit of the same state; what was taken under the one before goes back.
    pub(crate) fn adopt(&mut self, limit: &Limit) -> Option<Unused> {
        if *limit == self.limit {
            return None;
        }
        let unused = self.empty();
        self.limit = limit.clone();
        self.batch = 1;
        self.rests = None;
        unused
    }

    /// Puts back what was served and is not needed. False if its lease has gone.
    pub(crate) fn put_back(&mut self, cost: u64, is_of: impl Fn(&Lease) -> bool) -> bool {
        let now = now();
        let is_same = |held: &&mut Held| {
            let used = held.granted.saturating_sub(held.units);
            now < held.ends_at && is_of(&held.lease) && used >= cost
        };
        match self.lease.as_mut().filter(is_same) {
            Some(held) => {
                held.units += cost;
                true
            }
            None => false,
        }
    }

    /// How much is left of the present window or slot; none if that is unknown.
    fn left(&self, now: Instant) -> Option<Duration> {
        Span::of(&self.limit)?.left(self.boundary?, now)
    }

    /// How much of what is taken now will be used before its end, if demand goes on as before. What is taken
    /// for more goes back so late that others cannot use all of it.
    fn usable(&self, now: Instant) -> u64 {
        let Some(span) = Span::of(&self.limit) else {
            return u64::MAX;
        };
        let Some(left) = self.left(now) else {
            return 0;
        };
        // Demand is no steady stream, so a little less than is expected.
        let until_return = self.demand.expected(left.saturating_sub(span.before_end()));
        let surely = until_return.saturating_sub(2 * until_return.isqrt());
        // What is taken after that does not go back.
        let until_end = self.demand.expected(left.min(span.before_end())) / 2;
        surely.max(until_end.saturating_sub(until_end.isqrt()))
    }

    /// What is missing to serve `cost`; no more than `share`, if less is enough. All together wait for
    /// `waiting`.
    pub(crate) fn wants(&self, cost: u64, waiting: u64, share: u64) -> Want {
        let now = now();
        let held = self.lease.as_ref().filter(|held| now < held.ends_at);
        let left = held.map_or(0, |held| held.units);
        let least = cost.saturating_sub(left).max(1);
        Want {
            least,
            most: self
                .batch
                .min(self.usable(now))
                .max(waiting)
                .min(share)
                .max(least),
            before: held.map(|held| {
                let used = held.granted.saturating_sub(held.units);
                (held.lease, used, held.units)
            }),
        }
    }

    /// Takes in what was granted, and learns how fast it goes.
    pub(crate) fn fill(&mut self, limit: &Limit, grant: &Grant) {
        let now = now();
        if *limit != self.limit {
            // It has gone over to another limit meanwhile: what was granted is lost until it ends.
            return;
        }
        if let Some(held) = &self.lease {
            let lasted = now.saturating_duration_since(held.filled_at);
            if lasted < LASTS {
                self.batch = self.batch.saturating_mul(2);
            } else if lasted > LASTS * 2 {
                self.batch = (self.batch / 2).max(1);
            }
        }
        self.batch = self.batch.min(self.limit.capacity());
        // What was left belongs to the new lease if Redis put it there, or if both are of one window. Some
        // of it may have gone since the question was sent.
        let left = match &self.lease {
            Some(held) if grant.is_bucket || held.lease.ends_at == grant.lease.ends_at => {
                held.units.min(grant.carried)
            }
            _ => 0,
        };
        let carried = if left > 0 || grant.is_bucket {
            grant.carried
        } else {
            0
        };
        let lasts = Duration::from(grant.lasts);
        self.boundary = Some(grant.sent_at + lasts);
        self.lease = Some(Held {
            lease: grant.lease,
            granted: carried.saturating_add(grant.taken),
            units: left.saturating_add(grant.taken),
            filled_at: now,
            ends_at: grant.sent_at + lasts.saturating_sub(MARGIN),
            outcome: grant.outcome,
        });
    }

    /// Takes out what is left, to give it back.
    pub(crate) fn empty(&mut self) -> Option<Unused> {
        let held = self.lease.take()?;
        let is_worth = held.units > 0 && now() < held.ends_at;
        is_worth.then(|| Unused {
            scope: self.scope.clone(),
            limit: self.limit.clone(),
            key: self.key.clone(),
            lease: held.lease,
            units: held.units,
        })
    }

    /// Forgets what was taken, and that there was too little.
    pub(crate) fn forget(&mut self) {
        self.lease = None;
        self.rests = None;
    }

    /// When the units should go back that are left of a lease by then. Said once for each end.
    pub(crate) fn arrange_return(&mut self) -> Option<Instant> {
        let (held, span) = (self.lease.as_ref()?, Span::of(&self.limit)?);
        let is_arranged = self.returning.replace(held.lease.ends_at) == Some(held.lease.ends_at);
        let at = held.ends_at.checked_sub(span.before_end())?;
        (!is_arranged).then_some(at)
    }

    /// Whether its units should go back: nobody takes them, or their end is near.
    pub(crate) fn is_idle(&self) -> bool {
        let now = now();
        let before_end = Span::of(&self.limit).map_or(Duration::ZERO, Span::before_end);
        self.lease.as_ref().is_some_and(|held| {
            let ends_soon = now + before_end >= held.ends_at && now < held.ends_at;
            held.units > 0 && (now >= self.used_at + IDLE || ends_soon)
        })
    }

    /// Whether nothing is in it and nobody has asked for a while.
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
