//! Makes stored reservations: the script that charges writes the record. In a cluster each slot has a record of its own
//! counters, and the id leads to that of the slot that is charged last, which names the others.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{
    Charge, MadeReservation, Outcomes, Request, ReservationId, ReserveRequest, Reserved,
    StoreError, Timestamp,
};
use tokio::time::Instant;

use super::StoreInner;
use super::across::SlotCharges;
use super::exact::OutcomesByIndex;
use super::leased::fill_state;
use super::taken::TakenFromPools;
use tidegate_redis_wire::keys::RedisKeys;
use tidegate_redis_wire::plan::{Plan, PlannedCharge, SlotGroup};
use tidegate_redis_wire::wire::{
    BareRecord, HoldAnswer, HoldPart, HoldTerms, LuaStep, StepOutcome,
};

/// A reservation on its way.
struct HoldPlan<'r> {
    request: &'r ReserveRequest<'r>,
    /// One for each group of the request.
    plans: Vec<Plan<'r>>,
    /// What is known of the charges of each group.
    answers: Vec<OutcomesByIndex>,
    deadline: Instant,
}

/// A charge, by its group and its index in it.
type ChargeIndex = (usize, usize);

impl StoreInner {
    /// Charges each group of a request, and writes the record of the reservation.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        request: &ReserveRequest<'_>,
    ) -> Result<Reserved, StoreError> {
        let charges: Vec<SmallVec<[Charge<'_>; 4]>> = request
            .groups
            .iter()
            .map(|group| group.iter().map(|reserved| reserved.charge).collect())
            .collect();
        let plans: Vec<Plan<'_>> = charges
            .iter()
            .map(|charges| {
                self.plan(&Request {
                    charges,
                    at: request.at,
                    permit: Some(request.id.permit()),
                })
            })
            .collect();
        let answers = plans
            .iter()
            .map(|plan| OutcomesByIndex::new(plan.charges.len()));
        let mut hold = HoldPlan {
            request,
            answers: answers.collect(),
            plans,
            deadline: self.router.deadline(),
        };
        if hold.plans.iter().all(|plan| plan.charges.is_empty()) {
            return Ok(hold.decided(None));
        }
        if request.at.is_none()
            && let Some(denied) = self.known_denial(&hold.plans[0])
        {
            hold.answers[0].fill(&all_of(&hold.plans[0]), &denied);
            return self.charge_others(hold).await;
        }
        let mut taken = TakenFromPools {
            inner: self,
            parts: SmallVec::new(),
        };
        if request.at.is_none() && !self.take_from_pools(&mut hold, &mut taken).await? {
            drop(taken);
            return self.charge_others(hold).await;
        }
        let slots = self.slots_of(&hold);
        let made = if slots.len() > 1 {
            self.reserve_across(&mut hold, slots).await?
        } else {
            self.reserve_together(&mut hold).await?
        };
        if !hold.is_allowed() {
            drop(taken);
            return self.charge_others(hold).await;
        }
        let parts = std::mem::take(&mut taken.parts).into_iter();
        if let Some(made) = &made {
            self.lent.lend(made.id, &hold.plans[0], parts);
        }
        Ok(hold.decided(made))
    }

    /// The remembered denial of the charges that decide.
    fn known_denial(&self, plan: &Plan<'_>) -> Option<Outcomes> {
        let is_leased = plan.charges.iter().any(|planned| self.is_leased(planned));
        // A pool knows more about a limit that is alone.
        if is_leased && plan.charges.len() == 1 {
            return None;
        }
        let denied = self.remembered_denial(plan)?;
        self.stats.add(&self.stats.remembered_denials);
        self.count_denials(plan, &denied);
        Some(denied)
    }

    /// Takes what is leased from its pools. False if that is denied; then all charges that decide are answered.
    async fn take_from_pools(
        self: &Arc<Self>,
        hold: &mut HoldPlan<'_>,
        taken: &mut TakenFromPools<'_>,
    ) -> Result<bool, StoreError> {
        let (plan, answers) = (&hold.plans[0], &mut hold.answers[0]);
        for (index, planned) in plan.charges.iter().enumerate() {
            if answers.is_known(index) || planned.total == 0 || !self.is_leased(planned) {
                continue;
            }
            let Some(outcome) = self.take(planned, taken, hold.deadline).await? else {
                continue;
            };
            fill_state(plan, planned, outcome, answers);
            if !outcome.allowed {
                let known = std::mem::replace(answers, OutcomesByIndex::new(0));
                let outcomes = self.peek_missing(plan, known, hold.deadline).await?;
                *answers = OutcomesByIndex::new(plan.charges.len());
                answers.fill(&all_of(plan), &outcomes);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The slots of a reservation; one where slots do not matter.
    fn slots_of(&self, hold: &HoldPlan<'_>) -> SmallVec<[u16; 2]> {
        let charges = hold.plans.iter().flat_map(|plan| &plan.charges);
        let mut slots: SmallVec<[u16; 2]> = charges.map(|planned| planned.state.slot).collect();
        if self.router.is_cluster() {
            slots.sort_unstable();
            slots.dedup();
        } else {
            slots.truncate(1);
        }
        slots
    }

    /// Reserves in one step.
    async fn reserve_together(
        self: &Arc<Self>,
        hold: &mut HoldPlan<'_>,
    ) -> Result<Option<MadeReservation>, StoreError> {
        let slot = hold.plans.iter().find(|plan| !plan.charges.is_empty());
        let slot = slot.map_or(0, Plan::slot);
        let id = RedisKeys::reservation_in(slot, hold.request.id);
        let charges = hold.charges(|_, _| true);
        let terms = hold.terms(id, hold.plans.len());
        let (parts, expires_at) = self.reserve_step(hold, slot, &charges, &terms).await?;
        Ok((parts > 0).then_some(MadeReservation { id, expires_at }))
    }

    /// Reserves one slot after the other: those that decide, the scarcest first, then those that are charged on their
    /// own.
    async fn reserve_across(
        self: &Arc<Self>,
        hold: &mut HoldPlan<'_>,
        slots: SmallVec<[u16; 2]>,
    ) -> Result<Option<MadeReservation>, StoreError> {
        let plan = &hold.plans[0];
        self.note_across(plan);
        let mut groups = self.groups(plan);
        groups.sort_by_key(|group| {
            let names = group.iter().map(|index| plan.charges[*index].state.name);
            let remaining = names.map(|name| self.hints.remaining(name));
            remaining.map(|left| left.unwrap_or(u64::MAX)).min()
        });
        // A replay is alone with its states: asked first, a request that is denied leaves no trace.
        if plan.at.is_some() && !plan.charges.is_empty() {
            let asked = self.peek(plan, hold.deadline).await?;
            if asked.iter().any(|outcome| !outcome.allowed) {
                let denied = self
                    .rebase_denied(plan, &groups, asked, hold.deadline)
                    .await?;
                hold.answers[0].fill(&all_of(&hold.plans[0]), &denied);
                return Ok(None);
            }
        }
        let slot_of = |plan: &Plan<'_>, group: &SlotGroup| plan.charges[group[0]].state.slot;
        let last = groups.last().map(|group| slot_of(plan, group));
        let main = last.or_else(|| slots.first().copied()).unwrap_or_default();
        let id = RedisKeys::reservation_in(main, hold.request.id);
        let others = slots.iter().filter(|slot| **slot != main);
        let others: Vec<String> = others.map(|slot| self.keys.hold(*slot, id)).collect();
        let others = others.join(" ");
        let base = hold.terms(id, 1);
        let terms = |slot: u16| HoldTerms {
            others: if slot == main {
                others.clone()
            } else {
                String::new()
            },
            is_other: slot != main,
            ..base.clone()
        };
        // The record that the id leads to is there whatever its own charges are.
        let written_bare = |slot: u16, wanted| {
            if slot == main {
                wanted
            } else {
                BareRecord::Never
            }
        };
        let mut undo = SlotCharges {
            inner: self,
            give_back: Vec::new(),
        };
        let (mut made, mut parts) = (None, 0);
        for (position, group) in groups.iter().enumerate() {
            let slot = slot_of(&hold.plans[0], group);
            let charges: Vec<ChargeIndex> = group.iter().map(|index| (0, *index)).collect();
            let terms = HoldTerms {
                bare: written_bare(slot, BareRecord::IfMade),
                ..terms(slot)
            };
            let (written, expires_at) = self.reserve_step(hold, slot, &charges, &terms).await?;
            parts += written;
            if !hold.are_allowed(&charges) {
                let steps = std::mem::take(&mut undo.give_back);
                let plan = &hold.plans[0];
                self.undo_across(plan, &groups[..position], steps, hold.deadline)
                    .await;
                groups.remove(position);
                self.peek_others(plan, &groups, &mut hold.answers[0], hold.deadline)
                    .await?;
                return Ok(None);
            }
            if slot == main {
                made = Some(expires_at);
            }
            let record = self.keys.hold(slot, id);
            undo.give_back
                .push(LuaStep::drop_hold(&record, id, hold.request.at));
        }
        // Each on its own: what one of them says does not matter to the others.
        for group in 1..hold.plans.len() {
            let charges = hold.charges(|of, _| of == group);
            if charges.is_empty() {
                continue;
            }
            let slot = hold.plans[group].slot();
            let terms = HoldTerms {
                bare: written_bare(slot, BareRecord::Always),
                ..terms(slot)
            };
            let (written, expires_at) = self.reserve_step(hold, slot, &charges, &terms).await?;
            parts += written;
            if slot == main {
                made = made.or(Some(expires_at));
            }
        }
        undo.give_back.clear();
        let made = made.filter(|_| parts > 0);
        Ok(made.map(|expires_at| MadeReservation { id, expires_at }))
    }

    /// Charges some charges of a reservation, all in one slot, and writes their record. The first of their groups
    /// decides. Returns how many of them are in the record, and when the reservation ends.
    async fn reserve_step(
        self: &Arc<Self>,
        hold: &mut HoldPlan<'_>,
        slot: u16,
        charges: &[ChargeIndex],
        terms: &HoldTerms<'_>,
    ) -> Result<(u64, Timestamp), StoreError> {
        let (plan, parts) = hold.plan(charges, terms.groups == 1);
        let asked: SmallVec<[ChargeIndex; 4]> = charges
            .iter()
            .copied()
            .filter(|(group, index)| !hold.answers[*group].is_known(*index))
            .collect();
        let record = self.keys.hold(slot, terms.id);
        let step = LuaStep::reserve(&plan, parts, &record, terms);
        let reply = self.decide(&plan, step, hold.deadline).await?;
        let sent_at = reply.sent_at;
        let StepOutcome::Hold(answer) = reply.answer else {
            return Err(StoreError::BadReply("expected a reservation".into()));
        };
        let HoldAnswer::Reserved(outcomes, written, expires_at) = *answer else {
            return Err(StoreError::BadReply("expected a reservation".into()));
        };
        drop(plan);
        for ((group, index), outcome) in asked.iter().zip(&outcomes) {
            hold.answers[*group].fill(&[*index], &[*outcome]);
            if hold.request.at.is_none() {
                let part = hold.plans[*group].part(&[*index]);
                self.remember(&part, &[*outcome], sent_at);
            }
        }
        Ok((written, expires_at))
    }

    /// Completes a reservation that is denied: the other groups are charged on their own, without a record.
    async fn charge_others(
        self: &Arc<Self>,
        mut hold: HoldPlan<'_>,
    ) -> Result<Reserved, StoreError> {
        for group in 1..hold.plans.len() {
            let missing = hold.answers[group].missing();
            if missing.is_empty() {
                continue;
            }
            // Nothing holds a permit for a request that is denied.
            let plan = Plan {
                permit: None,
                ..hold.plans[group].part(&missing)
            };
            let outcomes = self.charge_exact(&plan, hold.deadline).await?;
            hold.answers[group].fill(&missing, &outcomes);
        }
        Ok(hold.decided(None))
    }
}

impl<'r> HoldPlan<'r> {
    fn terms(&self, id: ReservationId, groups: usize) -> HoldTerms<'r> {
        HoldTerms {
            id,
            ttl: self.request.ttl,
            estimate: self.request.estimate,
            groups,
            others: String::new(),
            is_other: false,
            bare: BareRecord::Never,
        }
    }

    /// The charges that are chosen.
    fn charges(&self, is_chosen: impl Fn(usize, usize) -> bool) -> Vec<ChargeIndex> {
        let groups = self.plans.iter().enumerate();
        let all = groups.flat_map(|(group, plan)| {
            let indexes = 0..plan.charges.len();
            indexes.map(move |index| (group, index))
        });
        all.filter(|(group, index)| is_chosen(*group, *index))
            .collect()
    }

    /// The plan of some charges, and what is written of each. They are one group, or keep theirs.
    fn plan(&self, charges: &[ChargeIndex], is_one_group: bool) -> (Plan<'r>, Vec<HoldPart>) {
        let mut planned: SmallVec<[PlannedCharge<'r>; 4]> = SmallVec::new();
        let mut parts = Vec::new();
        for (group, index) in charges {
            let charge = &self.plans[*group].charges[*index];
            let is_first =
                |(other, first): &ChargeIndex| (*other, *first) == (*group, charge.first);
            let first = charges.iter().position(is_first);
            planned.push(PlannedCharge {
                first: first.unwrap_or(planned.len()),
                ..charge.clone()
            });
            let reserved = &self.request.groups[*group][*index];
            let before: usize = self.plans[..*group]
                .iter()
                .map(|plan| plan.charges.len())
                .sum();
            let known = self.answers[*group].get(*index);
            parts.push(HoldPart {
                group: if is_one_group { 1 } else { *group + 1 },
                index: before + *index,
                cost: reserved.charge.cost,
                unit: reserved.unit.clone(),
                unit_cost: reserved.unit_cost,
                label: reserved.label.to_owned(),
                taken: known.map(|outcome| (outcome.at, outcome.delay)),
            });
        }
        let plan = Plan {
            charges: planned,
            at: self.request.at,
            permit: Some(self.request.id.permit()),
        };
        (plan, parts)
    }

    fn are_allowed(&self, charges: &[ChargeIndex]) -> bool {
        let mut answers = charges
            .iter()
            .map(|(group, index)| self.answers[*group].get(*index));
        answers.all(|outcome| outcome.is_some_and(|outcome| outcome.allowed))
    }

    /// Whether the charges that decide are allowed.
    fn is_allowed(&self) -> bool {
        self.are_allowed(&self.charges(|group, _| group == 0))
    }

    fn decided(self, made: Option<MadeReservation>) -> Reserved {
        let outcomes = self.answers.into_iter();
        Reserved::Decided {
            outcomes: outcomes.map(OutcomesByIndex::into_outcomes).collect(),
            made,
        }
    }
}

fn all_of(plan: &Plan<'_>) -> SlotGroup {
    (0..plan.charges.len()).collect()
}
