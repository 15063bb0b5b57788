//! Changes afterwards what a request was charged: gives back what it did not use, charges what it used more.

use std::sync::Arc;

use smallvec::SmallVec;
use smol_str::SmolStr;
use tidegate_core::{
    Adjusted, AdjustedCharge, Adjustment, CostUnit, Costs, PermitId, StoreError, Timestamp,
};

use super::held_record::HeldRecord;
use super::local::LocalAdjustment;
use super::receipt::{ChargedLimit, KeptReceipt};
use super::reserving::OpenReservation;
use super::{Gate, ReservationEnd, ReservationError};
use crate::rules::{BudgetKind, RuleCounts, Share};

/// What settling a request changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    estimate: Costs,
    settled: Costs,
    limits: SmallVec<[SettledLimit; 1]>,
}

/// What settling a request changed in one counter, in its own unit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettledLimit {
    pub(super) rule: SmolStr,
    /// The attributes of its key with the digests of their values, of a stored reservation.
    pub key: Vec<(String, String)>,
    /// What the limit counts.
    pub unit: CostUnit,
    /// Whether it only counts.
    pub is_shadow: bool,
    /// Whether it is a counter of the rule's candidate.
    pub is_candidate: bool,
    /// The quota: requests per window, or the capacity of a bucket.
    pub limit: u64,
    /// What was charged when the request was decided.
    pub reserved: u64,
    /// What it costs after all.
    pub settled: u64,
    /// What was given back: less than the difference if some of it had flowed back, left its window, or was reset.
    pub given_back: u64,
    /// What was charged in addition, without asking.
    pub overrun: u64,
    /// What should have been charged in addition and found no room.
    pub uncharged: u64,
}

/// Why a request could not be settled. What it was charged stays charged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The request came with costs by unit and is settled with one cost, or the reverse.
    #[error(
        "a request that was charged by unit is settled by unit, and one with a single cost by a single cost"
    )]
    OtherKind,
    /// The reservation has expired: what it was charged is kept or given back already, as its rules say.
    #[error("the reservation has expired")]
    Expired,
    /// The store could not answer. If the outcome is unknown, the call must not be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Settlement {
    pub(super) fn new(
        estimate: Costs,
        settled: Costs,
        limits: SmallVec<[SettledLimit; 1]>,
    ) -> Self {
        Self {
            estimate,
            settled,
            limits,
        }
    }

    /// What the request came with.
    pub fn estimate(&self) -> &Costs {
        &self.estimate
    }

    /// What the request cost: what it was settled with, and of units that were not named the estimate.
    pub fn settled(&self) -> &Costs {
        &self.settled
    }

    /// The estimate less that, by unit.
    pub fn given_back(&self) -> Costs {
        self.difference(u64::saturating_sub)
    }

    /// What the request cost above the estimate, by unit.
    pub fn overrun(&self) -> Costs {
        self.difference(|estimate, settled| settled.saturating_sub(estimate))
    }

    /// What happened in each counter.
    pub fn limits(&self) -> &[SettledLimit] {
        &self.limits
    }

    fn difference(&self, of: fn(u64, u64) -> u64) -> Costs {
        match (self.estimate.plain(), self.settled.plain()) {
            (Some(estimate), Some(settled)) => of(estimate, settled).into(),
            _ => self.settled.map(|unit, settled| {
                let estimate = self.estimate.named(unit).unwrap_or_default();
                of(estimate, settled)
            }),
        }
    }
}

impl SettledLimit {
    /// The id of the rule.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    pub(super) fn count(&self, counts: &RuleCounts) {
        for (kind, units) in [
            (BudgetKind::Settled, self.settled),
            (BudgetKind::GivenBack, self.given_back),
            (BudgetKind::Overrun, self.overrun),
            (BudgetKind::Uncharged, self.uncharged),
        ] {
            counts.count_budget(kind, units);
        }
    }

    /// A counter whose estimate is not settled.
    pub(super) fn open(charged: &ChargedLimit<'_>) -> Self {
        Self::new(charged, charged.charge.cost, Adjusted::default())
    }

    fn new(charged: &ChargedLimit<'_>, settled: u64, adjusted: Adjusted) -> Self {
        Self {
            rule: SmolStr::new(charged.rule),
            key: Vec::new(),
            unit: charged.unit.clone(),
            is_shadow: charged.is_shadow,
            is_candidate: charged.is_candidate,
            limit: charged.outcome.limit,
            reserved: charged.charge.cost,
            settled,
            given_back: adjusted.given_back,
            overrun: adjusted.overrun,
            uncharged: adjusted.uncharged,
        }
    }
}

/// What is changed of charges.
#[derive(Clone, Copy)]
pub(super) struct Change<'c> {
    /// What was spent; none if nothing was.
    pub(super) actual: Option<&'c Costs>,
    pub(super) at: Option<Timestamp>,
    /// Released, if it is there. Otherwise permits stay as they are.
    pub(super) permit: Option<PermitId>,
}

impl Gate {
    /// Takes back what a request was charged that did not go on after all, and releases what it held.
    ///
    /// Of a bucket what has not flowed back since, of a window what is still counted there. What the
    /// store charged without being able to say so stays charged.
    pub async fn give_back(&self, receipt: impl Into<KeptReceipt>) -> Result<(), StoreError> {
        let mut receipt = receipt.into();
        if let Some(record) = receipt.record.take() {
            let ended = self.settle_record(record, None, receipt.at()).await;
            if let Some(permit) = receipt.permit() {
                self.release(permit).await?;
            }
            return match ended {
                Err(SettleError::Store(error)) => Err(error),
                _ => Ok(()),
            };
        }
        let reservation = receipt.reservation.take();
        let change = Change {
            actual: None,
            at: receipt.at(),
            permit: receipt.permit(),
        };
        let (_, ended) = self.change(&receipt.charged(), change).await;
        let ended = ended.map_err(SettleError::from);
        OpenReservation::note(reservation, &ended, None);
        match ended {
            Err(SettleError::Store(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Charges a request what it turned out to cost, in place of the cost that it came with: what is
    /// more is taken without asking, up to a full quota; what is less is given back. A unit that is not named keeps
    /// its estimate. All of it is one call to the store. Permits stay as they are.
    ///
    /// If the store cannot be reached, rules with `on_store_failure: local` count it locally, and it is
    /// reconciled with the store later.
    pub async fn settle(
        &self,
        receipt: impl Into<KeptReceipt>,
        costs: impl Into<Costs>,
    ) -> Result<Settlement, SettleError> {
        let (mut receipt, actual) = (receipt.into(), costs.into());
        if let Some(record) = receipt.record.take() {
            return self
                .settle_record(record, Some(&actual), receipt.at())
                .await;
        }
        let reservation = receipt.reservation.take();
        let change = Change {
            actual: Some(&actual),
            at: receipt.at(),
            permit: None,
        };
        let charged = receipt.charged();
        let settling = self.settle_charged(receipt.estimate(), &charged, change);
        let ended = settling.await;
        OpenReservation::note(reservation, &ended, Some(&actual));
        ended
    }

    /// Settles a reservation of this process that has a record; without a cost, cancels it.
    pub(super) async fn settle_record(
        &self,
        record: Box<HeldRecord>,
        actual: Option<&Costs>,
        at: Option<Timestamp>,
    ) -> Result<Settlement, SettleError> {
        let settled = self.settle_reservation(record.id, actual, at).await;
        match settled {
            Ok(settled) => {
                record.settle(actual);
                Ok(settled.settlement)
            }
            Err(ReservationError::OtherKind) => Err(SettleError::OtherKind),
            Err(ReservationError::Store(error)) => {
                // It may be settled, so that it must not be ended otherwise. If it is not, it expires.
                record.leave();
                self.reservations.count(ReservationEnd::Failed);
                Err(error.into())
            }
            Err(_) => {
                record.expire();
                Err(SettleError::Expired)
            }
        }
    }

    /// Settles what was charged for an estimate.
    pub(super) async fn settle_charged(
        &self,
        estimate: &Costs,
        charged: &[ChargedLimit<'_>],
        change: Change<'_>,
    ) -> Result<Settlement, SettleError> {
        let settled = estimate
            .replaced_by(change.actual)
            .ok_or(SettleError::OtherKind)?;
        let (limits, ended) = self.change(charged, change).await;
        ended?;
        Ok(Settlement {
            estimate: estimate.clone(),
            settled,
            limits,
        })
    }

    /// Changes what was charged, in one call to the store and in the counters of this instance. Also returns what
    /// happened in each counter, as far as it is known.
    pub(super) async fn change(
        &self,
        charged: &[ChargedLimit<'_>],
        change: Change<'_>,
    ) -> (SmallVec<[SettledLimit; 1]>, Result<(), StoreError>) {
        let is_left = |limit: &ChargedLimit<'_>| {
            limit.charge.limit.is_concurrency() && change.permit.is_none()
        };
        let actual = |limit: &ChargedLimit<'_>| match change.actual {
            Some(actual) => limit.actual(actual),
            None => 0,
        };
        let is_stored = |limit: &ChargedLimit<'_>| {
            let is_same = actual(limit) == limit.charge.cost;
            !limit.is_degraded
                && !is_left(limit)
                && (!is_same || limit.charge.limit.is_concurrency())
        };
        let stored = charged.iter().filter(|limit| is_stored(limit));
        let stored: SmallVec<[AdjustedCharge<'_>; 2]> = stored
            .map(|limit| AdjustedCharge::new(limit.charge, limit.outcome, actual(limit)))
            .collect();
        let adjustment = Adjustment {
            charges: &stored,
            at: change.at,
            permit: change.permit,
        };
        let answer = if stored.is_empty() {
            Ok(SmallVec::new())
        } else {
            self.store.adjust(&adjustment).await
        };
        let left_nothing = answer.as_ref().is_err_and(StoreError::left_nothing);
        let (mut adjusted, ended) = match answer {
            Ok(adjusted) => (adjusted.into_iter(), Ok(())),
            Err(error) => (SmallVec::new().into_iter(), Err(error)),
        };
        let mut limits = SmallVec::new();
        for limit in charged.iter().filter(|limit| !is_left(limit)) {
            let wanted = actual(limit);
            let done = if is_stored(limit) {
                if left_nothing && limit.is_local {
                    let (scope, whole) = (limit.charge.scope, limit.charge.limit);
                    let share = Share::of(scope, whole, self.instances());
                    self.overrun_locally(limit, &share, wanted, change.at);
                }
                adjusted.next().unwrap_or_default()
            } else {
                match limit.share {
                    Some(share) => self.change_locally(limit, share, wanted, change),
                    None => Adjusted::default(),
                }
            };
            let settled = SettledLimit::new(limit, wanted, done);
            if done.overrun > 0 && is_stored(limit) {
                let used = limit.outcome.limit.saturating_sub(done.remaining);
                self.warn(limit, used, done.overrun);
            }
            if ended.is_ok() && !limit.is_shadow {
                settled.count(limit.counts);
            }
            limits.push(settled);
        }
        (limits, ended)
    }

    /// Changes what was charged without the store, in the counters of this instance.
    pub(super) fn change_degraded(
        &self,
        charged: &[ChargedLimit<'_>],
        change: Change<'_>,
    ) -> SmallVec<[SettledLimit; 1]> {
        let settled = |limit: &ChargedLimit<'_>| {
            let wanted = change.actual.map_or(0, |actual| limit.actual(actual));
            let done = limit.share.map_or_else(Adjusted::default, |share| {
                self.change_locally(limit, share, wanted, change)
            });
            SettledLimit::new(limit, wanted, done)
        };
        charged.iter().map(settled).collect()
    }

    /// Changes what this instance alone was charged.
    fn change_locally(
        &self,
        limit: &ChargedLimit<'_>,
        share: &Arc<Share>,
        wanted: u64,
        change: Change<'_>,
    ) -> Adjusted {
        self.local.adjust(&LocalAdjustment {
            charge: limit.of_share(share, limit.charge.cost),
            outcome: limit.outcome,
            actual: wanted,
            at: change.at,
            permit: change.permit,
        })
    }

    /// Charges this instance alone for what a request cost more than the store was charged.
    fn overrun_locally(
        &self,
        limit: &ChargedLimit<'_>,
        share: &Arc<Share>,
        wanted: u64,
        at: Option<Timestamp>,
    ) {
        let overrun = wanted.saturating_sub(limit.charge.cost);
        if overrun > 0 && !limit.charge.limit.is_concurrency() {
            self.local.settle(&limit.of_share(share, overrun), at);
        }
    }
}
