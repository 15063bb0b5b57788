//! A pool of units of one state that were charged in advance: what it serves, what it asks Redis for, and
//! how it takes in what is granted.

use std::time::Duration;

use tidegate_core::algorithm::Form;
use tidegate_core::{LeaseId, Limit, Micros, Outcome, Retry, Timestamp};
use tokio::time::Instant;

use super::demand::PoolDemand;
use super::span::Span;
use crate::monotonic::now;
use crate::plan::OwnedState;
use crate::wire::{LeaseRequest, Leased};

/// How long the lease of a bucket lasts.
const LEASE: Micros = Micros::SECOND;
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
pub(crate) struct UnitPool {
    state: OwnedState,
    lease: Option<HeldLease>,
    /// How much to ask for next time, unless less will be used before the window or slot ends.
    batch: u64,
    demand: PoolDemand,
    used_at: Instant,
    /// When the window or slot ends or has ended that was charged last.
    boundary: Option<Instant>,
    /// The end of the lease whose return is arranged.
    returning: Option<Timestamp>,
    /// Until when nothing is asked for, because Redis had less than was wanted, and what it said.
    rests: Option<(Instant, Outcome)>,
}

#[derive(Debug)]
struct HeldLease {
    lease: UnitLease,
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
pub(crate) struct UnitLease {
    pub(crate) id: LeaseId,
    /// The instant at which its units were charged.
    pub(crate) charged_at: Timestamp,
    /// Its end: that of the window or slot, where it is one.
    pub(crate) ends_at: Timestamp,
}

/// How the leases of a limit follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    /// Redis carries the units that are left of a lease over into the next one.
    Bucket,
    /// Units belong to a window or slot; those of one window are added up here.
    Window,
}

impl LeaseKind {
    pub(crate) fn of(limit: &Limit) -> Self {
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

/// What a pool asks Redis for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitRequest {
    /// Fewer units are of no use.
    pub(crate) least: u64,
    pub(crate) want: LeaseRequest,
    /// The units left of the running lease.
    pub(crate) left: u64,
}

/// What Redis answered.
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
            demand: PoolDemand::new(now()),
            used_at: now(),
            boundary: None,
            returning: None,
            rests: None,
        }
    }

    pub(crate) fn state(&self) -> &OwnedState {
        &self.state
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

    /// Serves the request for which the lease `id` was just taken. Its cost was charged for it, so it does
    /// not matter if the answer has come after the end.
    pub(crate) fn take_granted(
        &mut self,
        limit: &Limit,
        cost: u64,
        id: LeaseId,
    ) -> Option<(Outcome, UnitLease)> {
        self.serve(limit, cost, |held| held.lease.id == id)
    }

    fn serve(
        &mut self,
        limit: &Limit,
        cost: u64,
        is_usable: impl FnOnce(&HeldLease) -> bool,
    ) -> Option<(Outcome, UnitLease)> {
        // What was taken under other numbers does not speak for these.
        if *limit != self.state.limit {
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
        let (capacity, whole, longest) = match self.state.limit.form() {
            Form::Bucket(bucket) => (bucket.burst(), bucket.to_full(), LASTS),
            Form::SlidingCounter(counter) => {
                // What has not been taken at the window's end is lost.
                let window = Duration::from(counter.window());
                let left = self.left(sent_at).unwrap_or_default();
                let longest = (left / 4).max(window / 128).min(LASTS);
                (self.state.limit.capacity(), counter.window(), longest)
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
        let (until, outcome) = self.rests.filter(|_| *limit == self.state.limit)?;
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
        if *limit == self.state.limit {
            return None;
        }
        let unused = self.empty();
        self.state.limit = limit.clone();
        self.batch = 1;
        self.rests = None;
        unused
    }

    /// Puts back what was served and is not needed. False if its lease has gone.
    pub(crate) fn put_back(&mut self, cost: u64, is_of: impl Fn(&UnitLease) -> bool) -> bool {
        let now = now();
        let is_same = |held: &&mut HeldLease| {
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
        Span::of(&self.state.limit)?.left(self.boundary?, now)
    }

    /// How much of what is taken now will be used before its end, if demand goes on as before. What is taken
    /// for more goes back so late that others cannot use all of it.
    fn usable(&self, now: Instant) -> u64 {
        let Some(span) = Span::of(&self.state.limit) else {
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

    /// What to ask Redis for to serve `cost`: no more than `share`, if less is enough. All requests that wait
    /// for it want `waiting` together.
    pub(crate) fn ask(&self, cost: u64, waiting: u64, share: u64) -> UnitRequest {
        let now = now();
        let held = self.lease.as_ref().filter(|held| now < held.ends_at);
        let left = held.map_or(0, |held| held.units);
        let missing = cost.saturating_sub(left).max(1);
        let most = self.batch.min(self.usable(now)).max(waiting);
        let most = most.min(share).max(missing);
        let (least, units, previous) = match LeaseKind::of(&self.state.limit) {
            LeaseKind::Bucket => {
                let used = |held: &HeldLease| held.granted.saturating_sub(held.units);
                let previous = held.map(|held| (held.lease.id, used(held)));
                (cost, most.saturating_add(left), previous)
            }
            LeaseKind::Window => (missing, most, None),
        };
        let want = LeaseRequest {
            id: LeaseId::random(),
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
        if leased.units > 0 {
            self.learn_batch();
            self.fill(ask, grant);
        }
        if leased.units < ask.want.units && leased.outcome.retry != Retry::Never {
            self.rest(&leased.outcome, grant.sent_at, instances);
        }
    }

    /// Asks for more next time if the last lease was soon used up, and for less if it was not.
    fn learn_batch(&mut self) {
        if let Some(held) = &self.lease {
            let lasted = now().saturating_duration_since(held.filled_at);
            if lasted < LASTS {
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
        } = grant.leased;
        let lease = UnitLease {
            id: ask.want.id,
            charged_at: outcome.at,
            ends_at,
        };
        // Some of what was left may have gone since Redis was asked.
        let held = self.lease.as_ref();
        let still_left = held.map_or(0, |held| held.units.min(ask.left));
        let (carried, left, taken) = match LeaseKind::of(&self.state.limit) {
            LeaseKind::Bucket => {
                let carried = ask.left.min(units);
                (carried, still_left.min(carried), units - carried)
            }
            LeaseKind::Window if held.is_some_and(|held| held.lease.ends_at == ends_at) => {
                let carried = if still_left > 0 { ask.left } else { 0 };
                (carried, still_left, units)
            }
            LeaseKind::Window => (0, 0, units),
        };
        if !outcome.allowed {
            // The units left here are part of what Redis says remains.
            let here = match LeaseKind::of(&self.state.limit) {
                LeaseKind::Bucket => carried,
                LeaseKind::Window => ask.left,
            };
            outcome.remaining = outcome.remaining.saturating_sub(here);
        }
        let lasts = Duration::from(ends_at.since(grant.now));
        self.boundary = Some(grant.sent_at + lasts);
        self.lease = Some(HeldLease {
            lease,
            granted: carried.saturating_add(taken),
            units: left.saturating_add(taken),
            filled_at: now(),
            ends_at: grant.sent_at + lasts.saturating_sub(MARGIN),
            outcome,
        });
    }

    /// Takes out what is left, to give it back.
    pub(crate) fn empty(&mut self) -> Option<Unused> {
        let held = self.lease.take()?;
        let is_worth = held.units > 0 && now() < held.ends_at;
        is_worth.then(|| Unused {
            state: self.state.clone(),
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
        let (held, span) = (self.lease.as_ref()?, Span::of(&self.state.limit)?);
        let is_arranged = self.returning.replace(held.lease.ends_at) == Some(held.lease.ends_at);
        let at = held.ends_at.checked_sub(span.before_end())?;
        (!is_arranged).then_some(at)
    }

    /// Whether its units should go back: nobody takes them, or their end is near.
    pub(crate) fn is_idle(&self) -> bool {
        let now = now();
        let before_end = Span::of(&self.state.limit).map_or(Duration::ZERO, Span::before_end);
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
