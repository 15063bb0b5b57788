//! Charges that Redis itself decides, one call each.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use smallvec::SmallVec;
use tidegate_core::{
    Adjusted, AdjustedCharges, Adjustment, Charge, Micros, Outcome, Outcomes, Request, Retry,
    StoreError,
};
use tokio::time::Instant;

use super::StoreInner;
use crate::call::StepReply;
use crate::hints::{AnswerTimes, LONGEST, LONGEST_ACROSS_SLOTS};
use crate::monotonic::now;
use tidegate_redis_wire::plan::{Plan, SlotGroup};
use tidegate_redis_wire::wire::{ChargeChange, LuaStep, StepOutcome};

/// How old an outcome may be that is returned for a charge that was not asked.
const RECENT: Duration = Duration::from_secs(1);

/// The outcomes of a plan's charges, filled in by index.
pub(super) struct OutcomesByIndex(SmallVec<[Option<Outcome>; 4]>);

impl OutcomesByIndex {
    pub(super) fn new(count: usize) -> Self {
        Self(SmallVec::from_elem(None, count))
    }

    /// Sets the outcomes of the charges at these indexes.
    pub(super) fn fill(&mut self, indexes: &[usize], outcomes: &[Outcome]) {
        for (index, outcome) in indexes.iter().zip(outcomes) {
            self.0[*index] = Some(*outcome);
        }
    }

    pub(super) fn is_known(&self, index: usize) -> bool {
        self.0[index].is_some()
    }

    pub(super) fn get(&self, index: usize) -> Option<Outcome> {
        self.0.get(index).copied().flatten()
    }

    /// The indexes without an outcome.
    pub(super) fn missing(&self) -> SlotGroup {
        let indexes = 0..self.0.len();
        indexes.filter(|index| !self.is_known(*index)).collect()
    }

    pub(super) fn into_outcomes(self) -> Outcomes {
        self.0.into_iter().flatten().collect()
    }
}

impl StoreInner {
    /// Charges all or none, in one step where the slots allow it.
    pub(super) async fn charge_exact(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let groups = self.groups(plan);
        if groups.len() > 1 {
            return self.charge_across(plan, groups, deadline).await;
        }
        let mut step = LuaStep::charge(&self.keys, plan);
        if self.is_far(plan) {
            self.register_far(plan, deadline).await?;
            step = step.registered_elsewhere();
        }
        let reply = self.decide(plan, step, deadline).await?;
        let sent_at = reply.sent_at;
        let outcomes = outcomes(reply)?;
        if plan.at.is_none() {
            self.remember(plan, &outcomes, sent_at);
        }
        Ok(outcomes)
    }

    /// Asks, and changes nothing.
    pub(super) async fn peek(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        self.ask_by_slot(plan, LuaStep::peek, deadline).await
    }

    /// Answers as [`charge_exact`](Self::charge_exact) would, and changes nothing.
    pub(super) async fn preview_exact(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let asked = self.ask_by_slot(plan, LuaStep::preview, deadline).await?;
        let is_denied = asked.iter().any(|outcome| !outcome.allowed);
        if is_denied && self.groups(plan).len() > 1 {
            // One slot does not know that another denies.
            return self.peek(plan, deadline).await;
        }
        Ok(asked)
    }

    /// Takes a step that changes nothing in each slot of a plan.
    async fn ask_by_slot(
        &self,
        plan: &Plan<'_>,
        step: impl Fn(&Plan<'_>) -> LuaStep,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let groups = self.groups(plan);
        if groups.len() <= 1 {
            return outcomes(self.decide(plan, step(plan), deadline).await?);
        }
        let asked = try_join_all(groups.iter().map(|group| async {
            let part = plan.part(group);
            outcomes(self.decide(&part, step(&part), deadline).await?)
        }));
        let mut answers = OutcomesByIndex::new(plan.charges.len());
        for (group, outcomes) in groups.iter().zip(asked.await?) {
            answers.fill(group, &outcomes);
        }
        Ok(answers.into_outcomes())
    }

    /// Charges a cost that is known only afterwards.
    pub(super) async fn settle(&self, plan: &Plan<'_>) -> Result<Outcomes, StoreError> {
        let deadline = self.router.deadline();
        let mut settled = OutcomesByIndex::new(plan.charges.len());
        for (position, group) in self.groups(plan).iter().enumerate() {
            let part = plan.part(group);
            match self.decide(&part, LuaStep::settle(&part), deadline).await {
                Ok(reply) => settled.fill(group, &outcomes(reply)?),
                // A part is charged already, so the caller must not assume that nothing was charged.
                Err(StoreError::Unreachable(source) | StoreError::BadState(source))
                    if position > 0 =>
                {
                    return Err(StoreError::Lost(source));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(settled.into_outcomes())
    }

    /// Changes the charges of a request to what they cost after all.
    pub(super) async fn adjust(
        &self,
        adjustment: &Adjustment<'_>,
    ) -> Result<AdjustedCharges, StoreError> {
        let charges: SmallVec<[Charge<'_>; 4]> = adjustment
            .charges
            .iter()
            .map(|adjusted| adjusted.charge)
            .collect();
        let plan = self.plan(&Request {
            charges: &charges,
            at: adjustment.at,
            permit: adjustment.permit,
        });
        let deadline = self.router.deadline();
        self.forget_hints(&plan);
        // Units from a pool go back there while their lease lasts.
        let planned = plan.charges.iter().zip(adjustment.charges);
        let mut done: SmallVec<[Option<Adjusted>; 4]> = planned
            .map(|(planned, change)| {
                let is_leased = plan.at.is_none() && planned.charge.scope.is_leased();
                is_leased.then(|| self.put_back(planned, change)).flatten()
            })
            .collect();
        let is_open = |index: &usize| done[*index].is_none();
        let groups = self.groups(&plan).into_iter();
        let groups = groups.map(|group| group.into_iter().filter(is_open).collect());
        let groups: SmallVec<[SlotGroup; 2]> = groups
            .filter(|group: &SlotGroup| !group.is_empty())
            .collect();
        let answers = try_join_all(groups.iter().map(|group| async {
            let part = plan.part(group);
            let wanted: SmallVec<[ChargeChange; 4]> = group
                .iter()
                .map(|index| ChargeChange::from(&adjustment.charges[*index]))
                .collect();
            let mut step = LuaStep::adjust(&self.keys, &part, &wanted);
            if self.is_far(&part) {
                step = step.registered_elsewhere();
            }
            match self.router.step(step, deadline).await?.answer {
                StepOutcome::Adjusted(adjusted) => Ok(adjusted),
                _ => Err(StoreError::BadReply("expected adjustments".into())),
            }
        }));
        let answers = answers.await.map_err(|error| match error {
            // Another slot may have done its part, so the caller must not assume that nothing changed.
            StoreError::Unreachable(source) | StoreError::BadState(source) if groups.len() > 1 => {
                StoreError::Lost(source)
            }
            error => error,
        })?;
        for (group, answer) in groups.iter().zip(answers) {
            for (index, adjusted) in group.iter().zip(answer) {
                done[*index] = Some(adjusted);
            }
        }
        self.forget_hints(&plan);
        Ok(done.into_iter().flatten().collect())
    }

    /// Clears the usage of the states of a plan, which are in one slot.
    pub(super) async fn forget(&self, plan: &Plan<'_>) -> Result<(), StoreError> {
        self.forget_hints(plan);
        for planned in &plan.charges {
            if let Some(shared) = self.pools.get(planned.state.name) {
                // Clears units taken in advance, too.
                shared.pool.lock().forget();
            }
        }
        let deadline = self.router.deadline();
        let forgotten = self.router.step(LuaStep::forget(plan), deadline).await;
        // A request may have been denied meanwhile.
        self.forget_hints(plan);
        forgotten.map(drop)
    }

    pub(super) fn forget_hints(&self, plan: &Plan<'_>) {
        for planned in &plan.charges {
            self.forget_remembered(planned.state.name);
        }
    }

    /// Remembers the outcomes of a plan.
    pub(super) fn remember(&self, plan: &Plan<'_>, outcomes: &[Outcome], sent_at: Instant) {
        for (planned, outcome) in plan.charges.iter().zip(outcomes) {
            let is_across =
                self.router.is_cluster() && self.across.read().contains(&planned.charge.scope.id());
            let longest = if is_across {
                LONGEST_ACROSS_SLOTS
            } else {
                LONGEST
            };
            let (limit, cost) = (planned.charge.limit, planned.total);
            let times = AnswerTimes {
                sent_at,
                // For a leased limit the wait counts from now on, so that a request that waits for it does not come too
                // early for Redis.
                counts_from: if planned.charge.scope.is_leased() {
                    now()
                } else {
                    sent_at
                },
                longest,
            };
            self.hints
                .remember(planned.state.name, limit, cost, outcome, times);
        }
    }

    /// The outcomes of a request that a charge would deny without asking Redis.
    pub(super) fn denial_for(&self, plan: &Plan<'_>) -> Option<Outcomes> {
        // One that is leased alone is denied by its pool.
        if plan.at.is_some() || plan.charges.len() == 1 && self.has_leased(plan) {
            return None;
        }
        self.remembered_denial(plan)
    }

    /// Whether a limit is leased.
    pub(super) fn has_leased(&self, plan: &Plan<'_>) -> bool {
        plan.charges.iter().any(|planned| self.is_leased(planned))
    }

    /// The outcomes of a request that is known to be denied still; none if Redis has to be asked.
    pub(super) fn remembered_denial(&self, plan: &Plan<'_>) -> Option<Outcomes> {
        let denials: SmallVec<[Option<Outcome>; 4]> = plan
            .charges
            .iter()
            .map(|planned| {
                self.hints
                    .denied(planned.state.name, planned.charge.limit, planned.total)
            })
            .collect();
        if denials.iter().all(Option::is_none) {
            return None;
        }
        let outcomes = plan.charges.iter().zip(denials).map(|(planned, denial)| {
            denial.or_else(|| {
                let recent = self.hints.recent(planned.state.name, RECENT)?;
                let fits = recent.remaining >= planned.total;
                let is_same = recent.limit == planned.charge.limit.capacity();
                (fits && is_same && !planned.is_concurrency()).then_some(Outcome {
                    allowed: true,
                    retry: Retry::Now,
                    delay: Micros::ZERO,
                    ..recent
                })
            })
        });
        outcomes.collect()
    }

    /// The plan's charges by slot; all in one group where slots do not matter.
    pub(super) fn groups(&self, plan: &Plan<'_>) -> SmallVec<[SlotGroup; 2]> {
        if self.router.is_cluster() {
            return plan.by_slot();
        }
        let all: SlotGroup = (0..plan.charges.len()).collect();
        SmallVec::from_iter((!all.is_empty()).then_some(all))
    }
}

/// The outcomes in a reply.
pub(super) fn outcomes(reply: StepReply) -> Result<Outcomes, StoreError> {
    match reply.answer {
        StepOutcome::Outcomes(outcomes) => Ok(outcomes),
        _ => Err(StoreError::BadReply("expected outcomes".into())),
    }
}
