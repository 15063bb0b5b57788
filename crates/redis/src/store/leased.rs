//! `sync: leased`: requests that are served from what was taken in advance.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tidegate_core::algorithm::Form;
use tidegate_core::{
    Charge, LeaseId, Limit, Micros, Outcome, Outcomes, Request, Retry, Scope, StoreError,
};
use tokio::time::Instant;

use super::{Inner, Placed};
use crate::leases::{AT_LEAST, Grant, Lease, Pool, SharedPool, Unused};
use crate::monotonic::now;
use crate::wire::{Answer, Step, Want};

/// How often idle pools are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Returns that come sooner than this are arranged one by one: looking for them would find them too late.
const ARRANGED_FOR: Duration = Duration::from_secs(1);
/// How long the lease of a bucket lasts.
const LASTS: Micros = Micros::SECOND;
/// How long a grant may take: what comes late is still worth having.
const PATIENCE: Duration = Duration::from_millis(100);
/// How many leases go back at the same time.
const AT_ONCE: usize = 64;

/// What was taken from pools and goes back, unless the request goes on.
struct Taken<'i> {
    inner: &'i Arc<Inner>,
    parts: SmallVec<[Part; 4]>,
}

struct Part {
    shared: Arc<SharedPool>,
    charge: OwnedCharge,
    outcome: Outcome,
    lease: Lease,
}

/// A charge that outlives its request.
#[derive(Clone)]
struct OwnedCharge {
    scope: Scope,
    limit: Limit,
    key: Box<str>,
    cost: u64,
}

impl OwnedCharge {
    fn of(placed: &Placed<'_>) -> Self {
        Self {
            scope: placed.charge.scope.clone(),
            limit: placed.charge.limit.clone(),
            key: placed.charge.key.into(),
            cost: placed.cost,
        }
    }

    fn charge(&self) -> Charge<'_> {
        Charge {
            scope: &self.scope,
            limit: &self.limit,
            key: &self.key,
            cost: self.cost,
        }
    }

    fn is_bucket(&self) -> bool {
        matches!(self.limit.form(), Form::Bucket(_))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for part in std::mem::take(&mut self.parts) {
            let is_bucket = part.charge.is_bucket();
            let is_of = |lease: &Lease| {
                if is_bucket {
                    lease.id == part.lease.id
                } else {
                    lease.ends_at == part.lease.ends_at
                }
            };
            let is_back = part.shared.pool.lock().put_back(part.charge.cost, is_of);
            if is_back {
                continue;
            }
            // Its pool has gone on meanwhile, so Redis takes it back.
            let inner = Arc::clone(self.inner);
            self.inner.runtime.spawn(async move {
                let charges = [part.charge.charge()];
                let request = Request::new(&charges);
                let step = Step::give_back(&inner.keys, &request, &[part.outcome]);
                if let Some(step) = step {
                    let deadline = inner.router.deadline();
                    let _ = inner.router.step(step, deadline).await;
                }
            });
        }
    }
}

impl Inner {
    /// Charges a request of which some limits are leased: those from their pools, the others in Redis.
    pub(super) async fn charge_leased(
        self: &Arc<Self>,
        request: &Request<'_>,
        placed: &[Placed<'_>],
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let mut taken = Taken {
            inner: self,
            parts: SmallVec::new(),
        };
        let mut answers: SmallVec<[Option<Outcome>; 4]> = SmallVec::from_elem(None, placed.len());
        for at in 0..placed.len() {
            let one = &placed[at];
            if answers[at].is_some() || one.cost == 0 || !self.is_leased(one) {
                continue;
            }
            let Some(outcome) = self.take(one, &mut taken, deadline).await? else {
                continue;
            };
            for (other, answer) in placed.iter().zip(&mut answers) {
                if other.name == one.name {
                    *answer = Some(outcome);
                }
            }
            if !outcome.allowed {
                // The others are only asked, over what they are without this request.
                drop(taken);
                return self.denied_leased(request, placed, answers, deadline).await;
            }
        }
        let rest: SmallVec<[usize; 4]> = (0..placed.len())
            .filter(|at| answers[*at].is_none())
            .collect();
        if !rest.is_empty() {
            let charges: SmallVec<[Charge<'_>; 4]> =
                rest.iter().map(|at| placed[*at].charge).collect();
            let of_rest: SmallVec<[Placed<'_>; 4]> =
                rest.iter().map(|at| placed[*at].again()).collect();
            let part = Request {
                charges: &charges,
                ..*request
            };
            let outcomes = self.charge_exact(&part, &of_rest, deadline).await?;
            let is_denied = outcomes.iter().any(|outcome| !outcome.allowed);
            for (at, outcome) in rest.iter().zip(outcomes) {
                answers[*at] = Some(outcome);
            }
            if is_denied {
                return Ok(answers.into_iter().flatten().collect());
            }
        }
        taken.parts.clear();
        self.stats.add(&self.stats.leased_decisions);
        Ok(answers.into_iter().flatten().collect())
    }

    /// The answer to a request that a leased limit denied.
    async fn denied_leased(
        &self,
        request: &Request<'_>,
        placed: &[Placed<'_>],
        mut answers: SmallVec<[Option<Outcome>; 4]>,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        if answers.iter().any(Option::is_none) {
            let asked = self.peek(request, placed, deadline).await?;
            for (answer, asked) in answers.iter_mut().zip(asked) {
                answer.get_or_insert(asked);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Takes what one state is charged from its pool, which is filled if there is too little in it. None if
    /// it has no pool and is to be asked for like any other.
    async fn take(
        self: &Arc<Self>,
        placed: &Placed<'_>,
        taken: &mut Taken<'_>,
        deadline: Instant,
    ) -> Result<Option<Outcome>, StoreError> {
        let charge = &placed.charge;
        let (limit, cost) = (charge.limit, placed.cost);
        let new = || Pool::new(charge.scope, limit, charge.key);
        let Some(shared) = self.pools.of(placed.name, new) else {
            return Ok(None);
        };
        let adopted = {
            let mut pool = shared.pool.lock();
            pool.asked(cost);
            pool.adopt(limit)
        };
        if let Some(unused) = adopted {
            let inner = Arc::clone(self);
            let going_back = async move { inner.return_one(unused).await };
            self.runtime.spawn(going_back);
        }
        let mut take = |shared: &Arc<SharedPool>, granted: Option<LeaseId>| {
            let (outcome, lease) = {
                let mut pool = shared.pool.lock();
                match granted {
                    Some(id) => pool.take_granted(limit, cost, id)?,
                    None => pool.take(limit, cost)?,
                }
            };
            taken.parts.push(Part {
                shared: Arc::clone(shared),
                charge: OwnedCharge::of(placed),
                outcome,
                lease,
            });
            Some(outcome)
        };
        loop {
            if let Some(outcome) = take(&shared, None) {
                return Ok(Some(outcome));
            }
            if let Some(denied) = shared.pool.lock().resting(limit) {
                return Ok(Some(denied));
            }
            if let Some(denied) = self.hints.denied(placed.name, limit, cost) {
                return Ok(Some(denied));
            }
            let _waiting = shared.wait(cost);
            let filled = shared.filled();
            tokio::pin!(filled);
            // From here on, so that none is missed.
            filled.as_mut().enable();
            let Some(filling) = shared.try_fill() else {
                if self.router.until(deadline, filled).await.is_none() {
                    return Err(StoreError::Unreachable("too many wait for a lease".into()));
                }
                continue;
            };
            // Another request may have filled it since this one looked.
            if let Some(outcome) = take(&shared, None) {
                return Ok(Some(outcome));
            }
            // In a task of its own: what Redis grants is taken in, whoever has gone away meanwhile.
            let (inner, pool) = (Arc::clone(self), Arc::clone(&shared));
            let owned = OwnedCharge::of(placed);
            let task = self.runtime.spawn(async move {
                let filled = inner.fill(&owned, &pool).await;
                drop(filling);
                inner.arrange_return(&pool);
                filled
            });
            let (outcome, id) = match self.router.until(deadline, task).await {
                Some(Ok(filled)) => filled?,
                Some(Err(_)) => return Err(StoreError::Lost("the runtime ends".into())),
                // Nothing was charged for this request: what comes late stays in the pool.
                None => {
                    return Err(StoreError::Unreachable("no lease came in time".into()));
                }
            };
            if !outcome.allowed {
                let resting = shared.pool.lock().resting(limit);
                return Ok(Some(resting.unwrap_or(outcome)));
            }
            if let Some(outcome) = take(&shared, Some(id)) {
                return Ok(Some(outcome));
            }
        }
    }

    /// Takes units in advance and puts them into the pool. Returns the outcome of Redis and the name of the
    /// lease.
    async fn fill(
        &self,
        owned: &OwnedCharge,
        shared: &SharedPool,
    ) -> Result<(Outcome, LeaseId), StoreError> {
        let charge = owned.charge();
        let placed = &self.placed(&[charge])[0];
        let (limit, cost, is_bucket) = (&owned.limit, owned.cost, owned.is_bucket());
        let instances = self.instances.present().unwrap_or(1);
        let left = self.hints.remaining(placed.name);
        let share = left.unwrap_or_else(|| limit.capacity()) / instances;
        // What remained when it was last heard of may be more by now.
        let share = share.max(AT_LEAST.min(limit.capacity() / instances / 2));
        let wanted = shared.pool.lock().wants(cost, shared.waiting(), share);
        let carried = wanted.before.map_or(0, |(_, _, left)| left);
        let id = LeaseId::random();
        // A bucket's lease goes over into the next one; a window's units are simply added to.
        let (least, most, previous) = if is_bucket {
            let previous = wanted.before.map(|(lease, used, _)| (lease.id, used));
            (cost, wanted.most.saturating_add(carried), previous)
        } else {
            (wanted.least, wanted.most, None)
        };
        let want = Want {
            id,
            units: most,
            lasts: LASTS,
            previous,
        };
        let asked = Charge {
            cost: least,
            ..charge
        };
        let make = || Step::lease(&self.keys, &asked, want, None);
        let deadline = self.router.deadline().max(now() + PATIENCE);
        let reply = self.decide(&[asked], deadline, make).await?;
        let Answer::Leased(leased) = reply.answer else {
            return Err(StoreError::BadReply("a lease was expected".into()));
        };
        let mut outcome = leased.outcome;
        self.heard(&[placed.again()], &[outcome], reply.sent_at);
        if leased.units > 0 {
            let carried = if is_bucket {
                carried.min(leased.units)
            } else {
                carried
            };
            let taken = if is_bucket {
                leased.units - carried
            } else {
                leased.units
            };
            if !outcome.allowed {
                // What is left here is in what Redis says remains.
                outcome.remaining = outcome.remaining.saturating_sub(carried);
            }
            let grant = Grant {
                lease: Lease {
                    id,
                    charged_at: outcome.at,
                    ends_at: leased.ends_at,
                },
                taken,
                carried,
                is_bucket,
                lasts: leased.ends_at.since(reply.now),
                sent_at: reply.sent_at,
                outcome,
            };
            shared.pool.lock().fill(limit, &grant);
        }
        let is_short = leased.units < most && outcome.retry != Retry::Never;
        if is_short {
            shared
                .pool
                .lock()
                .rest(&leased.outcome, reply.sent_at, instances);
        }
        Ok((leased.outcome, id))
    }

    /// Sees to it that what is left of a lease goes back before its end.
    fn arrange_return(self: &Arc<Self>, shared: &Arc<SharedPool>) {
        let Some(at) = shared.pool.lock().arrange_return() else {
            return;
        };
        if at > now() + ARRANGED_FOR {
            return;
        }
        let (inner, shared) = (Arc::downgrade(self), Arc::downgrade(shared));
        self.runtime.spawn(async move {
            tokio::time::sleep_until(at).await;
            let (Some(inner), Some(shared)) = (inner.upgrade(), shared.upgrade()) else {
                return;
            };
            let unused = {
                let mut pool = shared.pool.lock();
                pool.is_idle().then(|| pool.empty()).flatten()
            };
            if let Some(unused) = unused {
                inner.return_one(unused).await;
            }
        });
    }

    /// Puts back into its pool what a request took and does not need.
    pub(super) fn put_back(&self, placed: &Placed<'_>, outcome: &Outcome) -> bool {
        let Some(shared) = self.pools.get(placed.name) else {
            return false;
        };
        let is_of = |lease: &Lease| lease.charged_at == outcome.at;
        shared.pool.lock().put_back(placed.charge.cost, is_of)
    }

    /// Gives back the units in the pools that are chosen.
    pub(super) async fn return_leases(&self, chosen: impl Fn(&Pool) -> bool) {
        let mut unused = self.pools.drain(chosen).into_iter();
        loop {
            let some = unused.by_ref().take(AT_ONCE);
            let going_back: Vec<_> = some.map(|unused| self.return_one(unused)).collect();
            if going_back.is_empty() {
                return;
            }
            join_all(going_back).await;
        }
    }

    async fn return_one(&self, unused: Unused) {
        let Unused {
            scope,
            limit,
            key,
            lease,
            units,
        } = unused;
        let charges = [Charge {
            scope: &scope,
            limit: &limit,
            key: &key,
            cost: units,
        }];
        let step = if matches!(limit.form(), Form::Bucket(_)) {
            Some(Step::return_lease(&self.keys, &charges[0], lease.id, None))
        } else {
            let outcome = Outcome {
                allowed: true,
                limit: limit.capacity(),
                remaining: 0,
                retry: Retry::Now,
                reset_at: lease.ends_at,
                delay: Micros::ZERO,
                at: lease.charged_at,
            };
            Step::give_back(&self.keys, &Request::new(&charges), &[outcome])
        };
        if let Some(step) = step {
            let deadline = self.router.deadline().max(now() + PATIENCE);
            // If it fails, the units are lost until their lease ends.
            if let Err(error) = self.router.step(step, deadline).await {
                tracing::debug!(%error, "a lease could not be given back");
            }
        }
        for placed in &self.placed(&charges) {
            self.hints.forget(placed.name);
        }
    }
}

/// Gives back what lies idle, until the store has gone.
pub(super) async fn keep_returning(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        inner.return_leases(Pool::is_idle).await;
    }
}
