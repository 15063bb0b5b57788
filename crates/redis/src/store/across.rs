//! All or nothing over several slots of a cluster: one slot after the other, and given back where a later
//! one denies.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Limit, Outcomes, StoreError, Timestamp};
use tokio::time::Instant;

use super::StoreInner;
use super::exact::{OutcomesByIndex, outcomes};
use tidegate_redis_wire::plan::{Plan, SlotGroup};
use tidegate_redis_wire::wire::{LuaStep, admitted};

/// The steps that give back the charges made in some slots. Sent when this is dropped, also if the request is
/// cancelled.
pub(super) struct SlotCharges<'s> {
    pub(super) inner: &'s Arc<StoreInner>,
    pub(super) give_back: Vec<LuaStep>,
}

impl Drop for SlotCharges<'_> {
    fn drop(&mut self) {
        if self.give_back.is_empty() {
            return;
        }
        let (inner, steps) = (Arc::clone(self.inner), std::mem::take(&mut self.give_back));
        self.inner.runtime.spawn(async move {
            inner.take_back(steps).await;
        });
    }
}

impl StoreInner {
    /// Charges one group after the other, the scarcest first.
    pub(super) async fn charge_across(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        mut groups: SmallVec<[SlotGroup; 2]>,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        self.note_across(plan);
        groups.sort_by_key(|group| {
            let names = group.iter().map(|index| plan.charges[*index].state.name);
            let remaining = names.map(|name| self.hints.remaining(name));
            remaining.map(|left| left.unwrap_or(u64::MAX)).min()
        });
        // A replay is alone with its states: asked first, a request that is denied leaves no trace.
        if plan.at.is_some() {
            let asked = self.peek(plan, deadline).await?;
            if asked.iter().any(|outcome| !outcome.allowed) {
                return self.rebase_denied(plan, &groups, asked, deadline).await;
            }
        }
        self.register_far(plan, deadline).await?;
        let mut charged = SlotCharges {
            inner: self,
            give_back: Vec::new(),
        };
        let mut answers = OutcomesByIndex::new(plan.charges.len());
        for (position, group) in groups.iter().enumerate() {
            let part = plan.part(group);
            let step = LuaStep::charge(&self.keys, &part).registered_elsewhere();
            let reply = self.decide(&part, step, deadline).await?;
            let sent_at = reply.sent_at;
            let answer = outcomes(reply)?;
            if plan.at.is_none() {
                self.remember(&part, &answer, sent_at);
            }
            answers.fill(group, &answer);
            if answer.iter().any(|outcome| !outcome.allowed) {
                let steps = std::mem::take(&mut charged.give_back);
                self.undo_across(plan, &groups[..position], steps, deadline)
                    .await;
                groups.remove(position);
                self.peek_others(plan, &groups, &mut answers, deadline)
                    .await?;
                return Ok(answers.into_outcomes());
            }
            let given_back = LuaStep::give_back(&self.keys, &part, &answer);
            charged.give_back.extend(given_back);
        }
        charged.give_back.clear();
        Ok(answers.into_outcomes())
    }

    /// Gives back the charges of the first groups of a denied plan, by these steps.
    pub(super) async fn undo_across(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        charged: &[SlotGroup],
        steps: Vec<LuaStep>,
        deadline: Instant,
    ) {
        self.stats
            .add_many(&self.stats.given_back, steps.len() as u64);
        // In a task of its own, so that it is finished if the request is cancelled.
        let inner = Arc::clone(self);
        let giving_back = self
            .runtime
            .spawn(async move { inner.take_back(steps).await });
        let _ = self.router.until(deadline, giving_back).await;
        for index in charged.iter().flatten() {
            self.forget_remembered(plan.charges[*index].state.name);
        }
        if let Some(permit) = plan.permit {
            let inner = Arc::clone(self);
            self.runtime
                .spawn(async move { inner.unregister(permit).await });
        }
    }

    /// Asks the groups of a denied plan that did not deny it.
    pub(super) async fn peek_others(
        &self,
        plan: &Plan<'_>,
        groups: &[SlotGroup],
        answers: &mut OutcomesByIndex,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        for group in groups {
            let part = plan.part(group);
            let asked = if let Ok(reply) = self.router.step(LuaStep::peek(&part), deadline).await {
                outcomes(reply)?
            } else {
                // The request is denied all the same; nothing is known of these.
                let limits = part.charges.iter().map(|planned| planned.charge.limit);
                let unknown = |whole| admitted(whole, whole, Timestamp::EPOCH);
                limits.map(Limit::capacity).map(unknown).collect()
            };
            answers.fill(group, &asked);
        }
        Ok(())
    }

    /// Repeats the charge of the groups that denied, which rebases their states if a clock was set back.
    pub(super) async fn rebase_denied(
        &self,
        plan: &Plan<'_>,
        groups: &[SlotGroup],
        asked: Outcomes,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        for group in groups {
            if group.iter().all(|index| asked[*index].allowed) {
                continue;
            }
            // Denied again, as a whole.
            let step = LuaStep::charge(&self.keys, &plan.part(group)).registered_elsewhere();
            self.router.step(step, deadline).await?;
        }
        Ok(asked)
    }

    async fn take_back(&self, steps: Vec<LuaStep>) {
        for step in steps {
            let deadline = self.router.deadline();
            let step = step.registered_elsewhere();
            // After an error it is unknown whether it ran: the units are lost until they expire.
            if let Err(error) = self.router.step(step, deadline).await {
                tracing::debug!(%error, "a charge could not be given back");
            }
        }
    }

    pub(super) fn note_across(&self, plan: &Plan<'_>) {
        let scopes = || plan.charges.iter().map(|planned| planned.charge.scope.id());
        let is_known = {
            let across = self.across.read();
            scopes().all(|scope| across.contains(&scope))
        };
        if !is_known {
            self.across.write().extend(scopes());
        }
    }
}
