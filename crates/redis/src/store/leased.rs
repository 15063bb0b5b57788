//! `sync: leased`: requests that are served from what was taken in advance.

use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::algorithm::Form;
use tidegate_core::{Charge, LeaseId, Micros, Outcome, Outcomes, Request, StoreError};

use super::{Inner, Placed};
use tokio::time::Instant;

use crate::leases::{Grant, Lease, Pool, SharedPool, Unused};
use crate::wire::{Answer, Step, Want};

/// How often idle pools are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the lease of a bucket lasts.
const LASTS: Micros = Micros::SECOND;

/// What was taken from pools and goes back into them, unless the request goes on.
#[derive(Default)]
struct Taken {
    parts: SmallVec<[(Arc<SharedPool>, u64, Outcome); 4]>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        for (shared, cost, outcome) in &self.parts {
            shared.pool.lock().put_back(*cost, outcome.at);
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
        let mut taken = Taken::default();
        let mut answers: SmallVec<[Option<Outcome>; 4]> = SmallVec::from_elem(None, placed.len());
        let is_leased = |one: &Placed<'_>| one.charge.scope.is_leased() && one.cost > 0;
        for at in 0..placed.len() {
            let one = &placed[at];
            if answers[at].is_some() || !is_leased(one) {
                continue;
            }
            let outcome = self.take(one, &mut taken, deadline).await?;
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

    /// Takes what one state is charged from its pool, which is filled if there is too little in it.
    async fn take(
        &self,
        placed: &Placed<'_>,
        taken: &mut Taken,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let charge = &placed.charge;
        let (limit, cost) = (charge.limit, placed.cost);
        let new = || Pool::new(charge.scope, limit, charge.key);
        let shared = self.pools.of(placed.name, new);
        loop {
            if let Some(outcome) = shared.pool.lock().take(limit, cost) {
                taken.parts.push((Arc::clone(&shared), cost, outcome));
                return Ok(outcome);
            }
            let Ok(_filling) = tokio::time::timeout_at(deadline, shared.filling.lock()).await
            else {
                return Err(StoreError::Unreachable("too many wait for a lease".into()));
            };
            // Somebody else may have filled it, or been denied, while this one waited.
            if let Some(outcome) = shared.pool.lock().take(limit, cost) {
                taken.parts.push((Arc::clone(&shared), cost, outcome));
                return Ok(outcome);
            }
            if let Some(denied) = self.hints.denied(placed.name, limit, cost) {
                return Ok(denied);
            }
            let outcome = self.fill(placed, &shared, deadline).await?;
            if !outcome.allowed {
                return Ok(outcome);
            }
        }
    }

    /// Takes units in advance and puts them into the pool. The outcome is that of Redis.
    async fn fill(
        &self,
        placed: &Placed<'_>,
        shared: &SharedPool,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let (limit, cost) = (placed.charge.limit, placed.cost);
        let is_bucket = matches!(limit.form(), Form::Bucket(_));
        let instances = self.instances.count().unwrap_or(1).max(1);
        let left = self.hints.remaining(placed.name);
        let share = left.unwrap_or_else(|| limit.capacity()) / instances;
        let wanted = shared.pool.lock().wants(cost, share);
        let carried = wanted.before.map_or(0, |(_, _, left)| left);
        let id = LeaseId::random();
        // A bucket's lease goes over into the next one; a window's units are simply added to.
        let (least, most, previous) = if is_bucket {
            let previous = wanted.before.map(|(lease, used, _)| (lease.id, used));
            (cost, wanted.most.saturating_add(carried), previous)
        } else {
            (wanted.least, wanted.most, None)
        };
        let charge = Charge {
            cost: least,
            ..placed.charge
        };
        let want = Want {
            id,
            units: most,
            lasts: LASTS,
            previous,
        };
        let step = Step::lease(&self.keys, &charge, want, None);
        let reply = self.router.step(step, deadline).await?;
        let Answer::Leased(leased) = reply.answer else {
            return Err(StoreError::BadReply("a lease was expected".into()));
        };
        let outcome = leased.outcome;
        let charged = [placed.again()];
        self.heard(&charged, &[outcome], reply.sent_at);
        if leased.units > 0 {
            let taken = if is_bucket {
                leased.units.saturating_sub(carried)
            } else {
                leased.units
            };
            let grant = Grant {
                lease: Lease {
                    id,
                    charged_at: outcome.at,
                },
                taken,
                carried,
                lasts: leased.ends_at.since(reply.now),
                sent_at: reply.sent_at,
                outcome,
            };
            shared.pool.lock().fill(limit, &grant);
        }
        Ok(outcome)
    }

    /// Puts back into its pool what a request took and does not need.
    pub(super) fn put_back(&self, placed: &Placed<'_>, outcome: &Outcome) -> bool {
        let Some(shared) = self.pools.get(placed.name) else {
            return false;
        };
        shared.pool.lock().put_back(placed.charge.cost, outcome.at)
    }

    /// Gives back the units in the pools that are chosen.
    pub(super) async fn return_leases(&self, chosen: impl Fn(&Pool) -> bool) {
        for unused in self.pools.drain(chosen) {
            let Unused {
                scope,
                limit,
                key,
                lease,
                units,
            } = unused;
            let charge = Charge {
                scope: &scope,
                limit: &limit,
                key: &key,
                cost: units,
            };
            let step = if matches!(limit.form(), Form::Bucket(_)) {
                Some(Step::return_lease(&self.keys, &charge, lease.id, None))
            } else {
                let charges = [charge];
                let outcome = Outcome {
                    allowed: true,
                    limit: limit.capacity(),
                    remaining: 0,
                    retry: tidegate_core::Retry::Now,
                    reset_at: lease.charged_at,
                    delay: Micros::ZERO,
                    at: lease.charged_at,
                };
                Step::give_back(&self.keys, &Request::new(&charges), &[outcome])
            };
            for placed in &self.placed(&[charge]) {
                self.hints.forget(placed.name);
            }
            if let Some(step) = step {
                let deadline = self.router.deadline();
                // If it fails, the units are lost until their lease ends.
                if let Err(error) = self.router.step(step, deadline).await {
                    tracing::debug!(%error, "a lease could not be given back");
                }
            }
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
