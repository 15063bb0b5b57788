//! Stored reservations: an estimate is charged, and the record of it is kept in the store under an id, so that any
//! instance can settle it. `reserving.rs` has those of this process, which need no record.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{
    Charge, Costs, ExtendAnswer, MadeReservation, Outcomes, Request, ReservationId, ReserveRequest,
    Reserved, ReservedCharge, SettleAnswer, SettleRequest, Store, StoreError, Timestamp,
};

use super::deciding::run_step_in_memory;
use super::estimates::WatchedEstimate;
use super::pipeline::{Pipeline, Step, Verb};
use super::reserving::{AloneRoom, ReservationEnd};
use super::rule_decision::ChargeStage;
use super::stored_record::PartLabel;
use super::{Decision, Gate, Receipt, ReservationRecord, ReserveError, RulesInForce};
use crate::attributes::Attributes;
use crate::rules::{BudgetKind, FrontEnd, Rule};

/// A decision about an estimate, and the reservation that was made if it allows.
#[derive(Debug)]
pub struct ReservedDecision {
    /// Whether the estimate was charged, with the details for the caller.
    pub decision: Decision,
    /// None if the request was denied, and if no limit was charged.
    pub made: Option<MadeReservation>,
}

/// A reservation that was extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtendedReservation {
    /// Its id.
    pub id: ReservationId,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Whether this gate alone keeps it, because the store was unavailable.
    pub is_degraded: bool,
}

/// Why a stored reservation was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReservationError {
    /// It has expired, was settled more than a minute ago, or never was.
    #[error("there is no such reservation; it has expired, or was settled more than a minute ago")]
    Unknown,
    /// It is settled, with another cost than this.
    #[error("the reservation is settled already, with another cost")]
    OtherCost,
    /// It is settled, and cannot be extended.
    #[error("the reservation is settled already")]
    Settled,
    /// It was made by unit and is settled with one cost, or the reverse.
    #[error(
        "a reservation that was made with `costs` is settled with `costs`, and one that was made with `cost` with `cost`"
    )]
    OtherKind,
    /// The store could not answer. The call may be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The most settlements whose answers were lost that are remembered.
const MOST_UNCOUNTED: usize = 256;

/// The charges of a step.
type StepCharges<'c> = SmallVec<[ReservedCharge<'c>; 2]>;

impl Gate {
    /// Charges the costs of a request as an estimate, exactly as [`decide_by`](Self::decide_by) does, and keeps a record
    /// that lasts for `ttl`.
    ///
    /// While the store is unavailable each rule's `on_store_failure` decides, and the record is kept by this gate alone.
    pub async fn reserve_stored(
        &self,
        rules: &RulesInForce,
        front_end: FrontEnd,
        attributes: &Attributes<'_>,
        ttl: Duration,
    ) -> Result<ReservedDecision, ReserveError> {
        let reserving = Reserving {
            front_end,
            attributes,
            ttl,
            is_held: false,
            ends_permits: true,
        };
        let (reserved, _) = self.reserve_with(rules, reserving).await?;
        Ok(reserved)
    }

    pub(super) async fn reserve_with(
        &self,
        rules: &RulesInForce,
        reserving: Reserving<'_, '_>,
    ) -> Result<(ReservedDecision, Option<WatchedEstimate>), ReserveError> {
        let Reserving {
            front_end,
            attributes,
            ttl,
            is_held,
            ends_permits,
        } = reserving;
        let costs = attributes.costs();
        if costs.is_zero() {
            return Err(ReserveError::NothingToReserve);
        }
        let began = self.begin();
        let mut pipeline = self.pipeline(rules, attributes, costs);
        let id = ReservationId::random();
        if ends_permits {
            pipeline.permit = pipeline.permit.map(|_| id.permit());
        } else {
            pipeline.charge_permits_apart();
        }
        let terms = StoredTerms {
            id,
            rules,
            attributes,
            ttl,
            ends_permits,
        };
        let made = match self.reserve_steps(&mut pipeline, &terms).await {
            Ok(made) => made,
            Err(error) => {
                self.reservations.count(ReservationEnd::Refused);
                return Err(error);
            }
        };
        let receipt = pipeline.into_receipt(costs.clone());
        let watched = if is_held {
            self.observe_estimate(began, front_end, attributes.into(), &receipt)
        } else {
            self.observe(began, front_end, attributes.into(), &receipt);
            None
        };
        let made = match made {
            Made::InStore(made) => made,
            Made::Alone(Some(room)) if receipt.decision().is_allowed() => {
                let mut kept = receipt.to_kept();
                if !ends_permits {
                    kept.leave_permits();
                }
                self.keep_alone(room, kept, &terms)
            }
            Made::Alone(_) | Made::Denied => None,
        };
        if made.is_some() {
            count_reserved(&receipt);
        }
        let reserved = ReservedDecision {
            decision: receipt.into_decision(),
            made,
        };
        Ok((reserved, watched))
    }

    /// Replaces the estimate of a stored reservation by the true cost, in every counter that was charged, by the limits
    /// of then; `None` cancels it. A call that repeats an earlier one answers the same, and changes nothing.
    pub async fn settle_reservation(
        &self,
        id: ReservationId,
        actual: Option<&Costs>,
        at: Option<Timestamp>,
    ) -> Result<ReservationRecord, ReservationError> {
        if let Some(settled) = self.settle_alone(id, actual, at) {
            return settled;
        }
        let request = SettleRequest { id, actual, at };
        let answer = self.store.settle_reservation(&request).await;
        if answer.as_ref().is_err_and(|error| !error.left_nothing()) {
            self.uncounted.lock().note(id);
        }
        match answer? {
            SettleAnswer::Settled {
                reservation,
                is_repeated,
            } => {
                let record = ReservationRecord::new(&reservation);
                // Counted once, also if the answer to the call that settled it was lost.
                if self.uncounted.lock().take(id) || !is_repeated {
                    self.count_settled(&record, actual.is_none());
                    self.warn_of_settlement(&reservation);
                }
                Ok(record)
            }
            SettleAnswer::OtherCost => Err(ReservationError::OtherCost),
            SettleAnswer::OtherKind => Err(ReservationError::OtherKind),
            SettleAnswer::Unknown => Err(ReservationError::Unknown),
        }
    }

    /// Lets an open reservation last for `ttl` from now on, at most a day after it was made.
    pub async fn extend_reservation(
        &self,
        id: ReservationId,
        ttl: Duration,
        at: Option<Timestamp>,
    ) -> Result<ExtendedReservation, ReservationError> {
        let alone = self.extend_alone(id, ttl, at);
        let is_degraded = alone.is_some();
        let answer = match alone {
            Some(answer) => answer,
            None => self.store.extend_reservation(id, ttl.into(), at).await?,
        };
        match answer {
            ExtendAnswer::Until(expires_at) => Ok(ExtendedReservation {
                id,
                expires_at,
                is_degraded,
            }),
            ExtendAnswer::Settled => Err(ReservationError::Settled),
            ExtendAnswer::Unknown => Err(ReservationError::Unknown),
        }
    }

    /// A reservation that is open, or was settled within the last minute.
    pub async fn look_at_reservation(
        &self,
        id: ReservationId,
    ) -> Result<ReservationRecord, ReservationError> {
        if let Some(looked) = self.look_alone(id) {
            return looked;
        }
        let found = self.store.look_at_reservation(id).await?;
        let record = found.map(|stored| ReservationRecord::new(&stored));
        record.ok_or(ReservationError::Unknown)
    }

    /// Counts what settling a reservation changed, for the rules that are still in force.
    pub(super) fn count_settled(&self, record: &ReservationRecord, is_cancelled: bool) {
        let end = if is_cancelled {
            ReservationEnd::Cancelled
        } else {
            ReservationEnd::Settled
        };
        self.reservations.count(end);
        let rules = self.rules();
        let limits = record.settlement.limits().iter();
        for limit in limits.filter(|limit| !limit.is_shadow) {
            if let Some(rule) = rules.get(limit.rule()) {
                limit.count(rule.counts());
            }
        }
    }

    /// Makes the calls of a pipeline, and charges in one call what is reserved.
    async fn reserve_steps(
        &self,
        pipeline: &mut Pipeline,
        terms: &StoredTerms<'_, '_>,
    ) -> Result<Made, ReserveError> {
        let steps = pipeline.steps();
        let is_before =
            |step: &&Step| matches!(step, Step::Together(stage) if *stage < ChargeStage::Enforced);
        for step in steps.iter().filter(is_before) {
            self.run_step(pipeline, *step).await;
        }
        let enforced = Step::Together(ChargeStage::Enforced);
        if pipeline.verb(enforced) != Verb::Charge {
            // Denied already, whatever the store says.
            for step in steps.iter().filter(|step| !is_before(step)) {
                self.run_step(pipeline, *step).await;
            }
            return Ok(Made::Denied);
        }
        let shadows = steps.iter().filter(|step| matches!(step, Step::Shadow(_)));
        let is_apart = |step: &&Step| !terms.ends_permits && pipeline.takes_permit(**step);
        let (apart, shadows): (SmallVec<[Step; 2]>, SmallVec<[Step; 2]>) =
            shadows.copied().partition(|step| is_apart(&step));
        let reserved: SmallVec<[Step; 2]> = std::iter::once(enforced).chain(shadows).collect();
        let made = self.reserve_together(pipeline, &reserved, terms).await;
        let permit = Step::Together(ChargeStage::Permit);
        let has_permit = steps.contains(&permit);
        let is_used = made.is_ok() && pipeline.is_allowed();
        if let Some(unused) = pipeline.permit.filter(|_| has_permit && !is_used) {
            // If the store does not answer, it ends by itself.
            let _ = self.release(unused).await;
        }
        let made = made?;
        if has_permit && !is_used {
            // As it is without the permit.
            self.run_step(pipeline, permit).await;
        }
        for step in &apart {
            self.run_step(pipeline, *step).await;
        }
        Ok(made)
    }

    /// Charges steps in one call, with a record.
    async fn reserve_together(
        &self,
        pipeline: &mut Pipeline,
        steps: &[Step],
        terms: &StoredTerms<'_, '_>,
    ) -> Result<Made, ReserveError> {
        match self.ask_to_reserve(pipeline, steps, terms).await {
            Ok(Reserved::Decided { outcomes, made }) => {
                for (step, outcomes) in steps.iter().zip(&outcomes) {
                    pipeline.record(*step, outcomes);
                }
                if let Some(made) = made.as_ref().filter(|_| terms.ends_permits) {
                    pipeline.permit = pipeline.permit.map(|_| made.id.permit());
                }
                Ok(Made::InStore(made))
            }
            Ok(Reserved::TooMany) => Err(ReserveError::TooMany),
            Err(_) => {
                self.end_due_alone(pipeline.at);
                let is_charged = pipeline.rules.iter().any(|rule| rule.cost > 0);
                let most = self.local.max_reservations;
                let room = is_charged.then(|| self.reservations.take_room_alone(most));
                if let Some(None) = room {
                    return Err(ReserveError::TooMany);
                }
                for step in steps {
                    self.decide_without_store(pipeline, *step);
                }
                Ok(Made::Alone(room.flatten()))
            }
        }
    }

    async fn run_step(&self, pipeline: &mut Pipeline, step: Step) {
        match &self.store {
            Store::Memory(store) => run_step_in_memory(pipeline, store, step),
            Store::Remote(store) => self.run_steps(&**store, pipeline, &[step]).await,
        }
    }

    /// Asks the store to charge these steps, and to keep a record of it.
    async fn ask_to_reserve(
        &self,
        pipeline: &Pipeline,
        steps: &[Step],
        terms: &StoredTerms<'_, '_>,
    ) -> Result<Reserved, StoreError> {
        let labels: Vec<String> = pipeline
            .rules
            .iter()
            .map(|rule| self.label(pipeline, rule.rule, terms.attributes, rule.is_shadow))
            .collect();
        let groups: SmallVec<[StepCharges<'_>; 2]> = steps
            .iter()
            .map(|step| reserved_charges(pipeline, *step, &labels))
            .collect();
        let groups: SmallVec<[&[ReservedCharge<'_>]; 2]> =
            groups.iter().map(|group| &group[..]).collect();
        if groups.iter().all(|group| group.is_empty()) {
            let outcomes = groups.iter().map(|_| Outcomes::new()).collect();
            return Ok(Reserved::Decided {
                outcomes,
                made: None,
            });
        }
        let request = ReserveRequest {
            id: terms.id,
            groups: &groups,
            estimate: terms.attributes.costs(),
            ttl: terms.ttl.into(),
            at: pipeline.at,
        };
        let charges: SmallVec<[Charge<'_>; 4]> = groups
            .iter()
            .flat_map(|group| group.iter())
            .map(|reserved| reserved.charge)
            .collect();
        let owing = Request {
            charges: &charges,
            at: pipeline.at,
            permit: None,
        };
        self.ask_reconciled(&owing, self.store.reserve(&request))
            .await
    }

    /// What is kept with a part of a record: the rule, and its key as digests.
    pub(super) fn label(
        &self,
        pipeline: &Pipeline,
        rule: usize,
        attributes: &Attributes<'_>,
        is_shadow: bool,
    ) -> String {
        let rule = pipeline.in_force.at(rule);
        let digests = self.digests_of(rule, attributes);
        PartLabel::new(rule, is_shadow, digests).to_string()
    }

    /// The attributes of the key of a rule, with the digests of their values.
    pub(super) fn key_digests(
        &self,
        terms: &StoredTerms<'_, '_>,
        rule: &str,
    ) -> Vec<(String, String)> {
        let rule = terms.rules.get(rule);
        rule.map_or_else(Vec::new, |rule| self.digests_of(&rule, terms.attributes))
    }

    fn digests_of(&self, rule: &Rule, attributes: &Attributes<'_>) -> Vec<(String, String)> {
        let Some(digest) = &self.digest else {
            return Vec::new();
        };
        let values = rule.key_values(attributes).into_iter();
        values
            .map(|(name, value)| (name.to_owned(), digest.of(&value)))
            .collect()
    }
}

/// Reservations that may have been settled by calls whose answers were lost, so that nothing was counted. The oldest are
/// forgotten.
#[derive(Debug, Default)]
pub(super) struct UncountedSettlements(VecDeque<ReservationId>);

impl UncountedSettlements {
    fn note(&mut self, id: ReservationId) {
        if !self.0.contains(&id) {
            if self.0.len() >= MOST_UNCOUNTED {
                self.0.pop_front();
            }
            self.0.push_back(id);
        }
    }

    fn take(&mut self, id: ReservationId) -> bool {
        let known = self.0.iter().position(|known| *known == id);
        known.and_then(|index| self.0.remove(index)).is_some()
    }
}

/// Who reserves, what, and for how long.
pub(super) struct Reserving<'t, 'b> {
    pub(super) front_end: FrontEnd,
    pub(super) attributes: &'t Attributes<'b>,
    pub(super) ttl: Duration,
    /// Whether this process settles it, so that its cost is counted then.
    pub(super) is_held: bool,
    /// Whether permits are in the record, so that they end with it. If not, they are charged apart, before.
    pub(super) ends_permits: bool,
}

/// What a reservation is made with.
pub(super) struct StoredTerms<'t, 'b> {
    pub(super) id: ReservationId,
    pub(super) rules: &'t RulesInForce,
    pub(super) attributes: &'t Attributes<'b>,
    pub(super) ttl: Duration,
    pub(super) ends_permits: bool,
}

/// Where a reservation is kept.
enum Made {
    /// By the store, which makes none of a request that it denies.
    InStore(Option<MadeReservation>),
    /// By this gate, because the store did not answer; nowhere, if nothing is charged.
    Alone(Option<AloneRoom>),
    /// It was denied before the store was asked.
    Denied,
}

/// What the rules of a step charge.
fn reserved_charges<'p>(
    pipeline: &'p Pipeline,
    step: Step,
    labels: &'p [String],
) -> StepCharges<'p> {
    let rules = pipeline.rules.iter().zip(labels).enumerate();
    let own = rules.filter(|(index, (rule, _))| step.is_about(*index, rule));
    own.flat_map(|(_, (rule, label))| {
        let unit = pipeline.in_force.at(rule.rule).unit();
        let charges = rule.charges(&pipeline.in_force);
        charges.map(move |charge| ReservedCharge {
            charge,
            unit,
            unit_cost: rule.unit_cost,
            label,
        })
    })
    .collect()
}

fn count_reserved(receipt: &Receipt) {
    let charged = receipt.charged();
    for limit in charged.iter().filter(|limit| !limit.is_shadow) {
        limit
            .counts
            .count_budget(BudgetKind::Reserved, limit.charge.cost);
    }
}
