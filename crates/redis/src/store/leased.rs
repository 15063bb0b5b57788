//! `sync: leased`: requests that are served from units taken in advance.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tidegate_core::{Adjusted, AdjustedCharge, Outcome, Outcomes, PermitId, Retry, StoreError};
use tokio::time::Instant;

use super::StoreInner;
use super::exact::OutcomesByIndex;
use super::taken::TakenFromPools;
use crate::leases::{
    AT_LEAST, Filling, LeaseGrant, LeaseKind, SharedPool, UnitLease, UnitPool, Unused,
};
use crate::monotonic::now;
use tidegate_redis_wire::keys::StateName;
use tidegate_redis_wire::plan::{OwnedState, Plan, PlannedCharge, SlotGroup};
use tidegate_redis_wire::wire::{LuaStep, StepOutcome, admitted};

/// How often idle pools are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Returns that are due sooner than this get a timer of their own: looking for them would find them late.
const ARRANGED_FOR: Duration = Duration::from_secs(1);
/// How long a grant may take. Units that arrive late are still useful.
const PATIENCE: Duration = Duration::from_millis(100);
/// How many leases go back at the same time.
const AT_ONCE: usize = 64;

impl StoreInner {
    /// Charges a request of which some limits are leased: those from their pools, the others in Redis.
    pub(super) async fn charge_leased(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let mut taken = TakenFromPools {
            inner: self,
            parts: SmallVec::new(),
        };
        let mut answers = OutcomesByIndex::new(plan.charges.len());
        for (index, planned) in plan.charges.iter().enumerate() {
            if answers.is_known(index) || planned.total == 0 || !self.is_leased(planned) {
                continue;
            }
            let Some(outcome) = self.take(planned, &mut taken, deadline).await? else {
                continue;
            };
            fill_state(plan, planned, outcome, &mut answers);
            if !outcome.allowed {
                // The other states are only peeked at, without the units that this request took.
                drop(taken);
                return self.peek_missing(plan, answers, deadline).await;
            }
        }
        let rest = answers.missing();
        if !rest.is_empty() {
            let outcomes = self.charge_exact(&plan.part(&rest), deadline).await?;
            answers.fill(&rest, &outcomes);
            if outcomes.iter().any(|outcome| !outcome.allowed) {
                return Ok(answers.into_outcomes());
            }
        }
        taken.parts.clear();
        self.stats.add(&self.stats.leased_decisions);
        Ok(answers.into_outcomes())
    }

    /// Like [`charge_leased`](Self::charge_leased), but takes nothing. The units that Redis would grant in advance are
    /// unknown, so the reset time is for this request alone.
    pub(super) async fn preview_leased(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let mut answers = OutcomesByIndex::new(plan.charges.len());
        for (index, planned) in plan.charges.iter().enumerate() {
            if answers.is_known(index) || planned.total == 0 || !self.is_leased(planned) {
                continue;
            }
            let outcome = self.preview_one(planned, deadline).await?;
            fill_state(plan, planned, outcome, &mut answers);
            if !outcome.allowed {
                return self.peek_missing(plan, answers, deadline).await;
            }
        }
        let rest = answers.missing();
        if !rest.is_empty() {
            let outcomes = self.preview_exact(&plan.part(&rest), deadline).await?;
            answers.fill(&rest, &outcomes);
        }
        Ok(answers.into_outcomes())
    }

    /// The answer of [`take`](Self::take): from the pool, or from Redis for the missing units.
    async fn preview_one(
        &self,
        planned: &PlannedCharge<'_>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let (limit, cost) = (planned.charge.limit, planned.total);
        let mut left = 0;
        if let Some(shared) = self.pools.get(planned.state.name) {
            let pool = shared.pool.lock();
            left = match pool.preview(limit, cost) {
                Ok(outcome) => return Ok(outcome),
                Err(left) => left,
            };
            if let Some(denied) = pool.denial(limit, cost) {
                return Ok(denied);
            }
        }
        if let Some(denied) = self.hints.denied(planned.state.name, limit, cost) {
            return Ok(denied);
        }
        let state = OwnedState::from_planned(planned);
        let outcomes = self
            .preview_exact(&state.plan(cost.saturating_sub(left)), deadline)
            .await?;
        let missing = || StoreError::BadReply("no outcome for the charge".into());
        outcomes.first().copied().ok_or_else(missing)
    }

    /// Completes the outcomes of a denied plan with the limits that were not asked.
    pub(super) async fn peek_missing(
        &self,
        plan: &Plan<'_>,
        mut answers: OutcomesByIndex,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let missing = answers.missing();
        if !missing.is_empty() {
            let asked = self.peek(plan, deadline).await?;
            let asked = missing.iter().filter_map(|index| asked.get(*index));
            let asked: Outcomes = asked.copied().collect();
            answers.fill(&missing, &asked);
        }
        Ok(answers.into_outcomes())
    }

    /// Takes the cost of one state from its pool, and fills the pool if it has too few units. `None` if there are too
    /// many pools, so that Redis decides.
    pub(super) async fn take(
        self: &Arc<Self>,
        planned: &PlannedCharge<'_>,
        taken: &mut TakenFromPools<'_>,
        deadline: Instant,
    ) -> Result<Option<Outcome>, StoreError> {
        let (limit, cost) = (planned.charge.limit, planned.total);
        let new = || UnitPool::new(OwnedState::from_planned(planned));
        let Some(shared) = self.pools.of(planned.state.name, new) else {
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
        loop {
            if let Some(outcome) = taken.serve(&shared, planned, None) {
                return Ok(Some(outcome));
            }
            let known = shared.pool.lock().denial(limit, cost);
            let never = || {
                let denied = self.hints.denied(planned.state.name, limit, cost);
                denied.filter(|denied| denied.retry == Retry::Never)
            };
            if let Some(denied) = known.or_else(never) {
                self.stats.add(&self.stats.remembered_denials);
                shared.pool.lock().count_denial(&denied);
                return Ok(Some(denied));
            }
            let _waiting = shared.wait(cost);
            let filled = shared.filled();
            tokio::pin!(filled);
            // From here on, so that none is missed.
            filled.as_mut().enable();
            let Some(filling) = shared.try_fill() else {
                if self.router.until(deadline, filled).await.is_none() {
                    let problem = "too many requests wait for a lease";
                    return Err(StoreError::Unreachable(problem.into()));
                }
                if let Some(outcome) = taken.serve(&shared, planned, None) {
                    return Ok(Some(outcome));
                }
                shared.pool.lock().count_waiting();
                continue;
            };
            // Another request may have filled it since this one looked.
            if let Some(outcome) = taken.serve(&shared, planned, None) {
                return Ok(Some(outcome));
            }
            let (outcome, id) = self.fill_within(planned, filling, deadline).await?;
            if !outcome.allowed {
                let mut pool = shared.pool.lock();
                // Longer in a flood.
                let denied = pool.denial(limit, cost).unwrap_or(outcome);
                pool.count_denial(&denied);
                return Ok(Some(denied));
            }
            if let Some(outcome) = taken.serve(&shared, planned, Some(id)) {
                return Ok(Some(outcome));
            }
        }
    }

    /// Counts requests that were denied without their pools.
    pub(super) fn count_denials(&self, plan: &Plan<'_>, outcomes: &[Outcome]) {
        let leased = |(planned, outcome): &(&PlannedCharge<'_>, &Outcome)| {
            planned.charge.scope.is_leased() && !outcome.allowed
        };
        for (planned, outcome) in plan.charges.iter().zip(outcomes).filter(leased) {
            if let Some(shared) = self.pools.get(planned.state.name) {
                shared.pool.lock().count_denial(outcome);
            }
        }
    }

    /// Fills a pool in a task of its own, so that granted units are kept if the request is cancelled or its
    /// deadline passes.
    async fn fill_within(
        self: &Arc<Self>,
        planned: &PlannedCharge<'_>,
        filling: Filling,
        deadline: Instant,
    ) -> Result<(Outcome, PermitId), StoreError> {
        let (inner, state, cost) = (
            Arc::clone(self),
            OwnedState::from_planned(planned),
            planned.total,
        );
        let task = self.runtime.spawn(async move {
            let shared = Arc::clone(&filling.shared);
            let filled = inner.fill(&state, cost, &shared).await;
            drop(filling);
            inner.arrange_return(&shared);
            filled
        });
        match self.router.until(deadline, task).await {
            Some(Ok(filled)) => filled,
            Some(Err(_)) => Err(StoreError::Lost("the runtime ends".into())),
            // Nothing was charged for this request: units that arrive late stay in the pool.
            None => Err(StoreError::Unreachable("no lease came in time".into())),
        }
    }

    /// Takes units in advance and puts them into the pool. Returns the outcome of Redis and the id of the
    /// lease.
    ///
    /// Before a request is denied, the units that are left in the pool go back: Redis counts them as used, and in a later
    /// window or after the end of their lease they do not count for the request.
    async fn fill(
        &self,
        state: &OwnedState,
        cost: u64,
        shared: &SharedPool,
    ) -> Result<(Outcome, PermitId), StoreError> {
        let (outcome, id) = self.lease(state, cost, shared).await?;
        let unused = if outcome.allowed {
            None
        } else {
            shared.pool.lock().empty()
        };
        let Some(unused) = unused else {
            return Ok((outcome, id));
        };
        self.return_one(unused).await;
        self.lease(state, cost, shared).await
    }

    async fn lease(
        &self,
        state: &OwnedState,
        cost: u64,
        shared: &SharedPool,
    ) -> Result<(Outcome, PermitId), StoreError> {
        let capacity = state.limit.capacity();
        let instances = self.instances.present().unwrap_or(1);
        let left = self.hints.remaining(state.state.name);
        let share = left.unwrap_or(capacity) / instances;
        // More may remain by now than when Redis last answered.
        let share = share.max(AT_LEAST.min(capacity / instances / 2));
        let ask = shared.pool.lock().ask(cost, shared.waiting(), share);
        let plan = state.plan(ask.least);
        let deadline = self.router.deadline().max(now() + PATIENCE);
        let step = LuaStep::lease(&plan, ask.want);
        let reply = self.decide(&plan, step, deadline).await?;
        let StepOutcome::Leased(leased) = reply.answer else {
            return Err(StoreError::BadReply("expected a lease".into()));
        };
        self.remember(&state.plan(cost), &[leased.outcome], reply.sent_at);
        let grant = LeaseGrant {
            leased,
            now: reply.now,
            sent_at: reply.sent_at,
        };
        let mut pool = shared.pool.lock();
        pool.granted(&state.limit, &ask, &grant, instances);
        Ok((leased.outcome, ask.want.id))
    }

    /// Makes sure that the units left of a lease go back before its end.
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

    /// Puts back into its pool the units of a request that does not need them.
    pub(super) fn put_back(
        &self,
        planned: &PlannedCharge<'_>,
        change: &AdjustedCharge<'_>,
    ) -> Option<Adjusted> {
        let given_back = change.charge.cost.checked_sub(change.actual)?;
        let shared = self.pools.get(planned.state.name)?;
        let is_of = |lease: &UnitLease| lease.charged_at == change.charged_at;
        let mut pool = shared.pool.lock();
        pool.put_back(given_back, is_of).then(|| Adjusted {
            given_back,
            remaining: pool.units(),
            ..Adjusted::default()
        })
    }

    /// Forgets what is remembered of a state, because units of it were given back.
    pub(super) fn forget_remembered(&self, name: StateName) {
        self.hints.forget(name);
        if let Some(shared) = self.pools.get(name) {
            shared.pool.lock().forget_denials();
        }
    }

    /// Gives back the units in the pools that are chosen.
    pub(super) async fn return_leases(&self, chosen: impl Fn(&UnitPool) -> bool) {
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
            state,
            lease,
            units,
        } = unused;
        let plan = state.plan(units);
        let step = match LeaseKind::for_limit(&state.limit) {
            LeaseKind::Bucket => Some(LuaStep::return_lease(&plan, lease.id)),
            LeaseKind::Window => {
                let outcome = admitted(state.limit.capacity(), 0, lease.charged_at);
                LuaStep::give_back(&self.keys, &plan, &[outcome])
            }
        };
        if let Some(step) = step {
            let deadline = self.router.deadline().max(now() + PATIENCE);
            // If it fails, the units are lost until their lease ends.
            if let Err(error) = self.router.step(step, deadline).await {
                tracing::debug!(%error, "a lease could not be given back");
            }
        }
        self.hints.forget(state.state.name);
    }
}

/// Sets the outcome of all charges on one state.
pub(super) fn fill_state(
    plan: &Plan<'_>,
    planned: &PlannedCharge<'_>,
    outcome: Outcome,
    answers: &mut OutcomesByIndex,
) {
    let on_state = |other: &usize| plan.charges[*other].first == planned.first;
    let same: SlotGroup = (0..plan.charges.len()).filter(on_state).collect();
    let outcomes = SmallVec::<[Outcome; 4]>::from_elem(outcome, same.len());
    answers.fill(&same, &outcomes);
}

/// Gives back idle units, until the store is dropped.
pub(super) async fn keep_returning(inner: Weak<StoreInner>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        inner.return_leases(UnitPool::is_idle).await;
    }
}
