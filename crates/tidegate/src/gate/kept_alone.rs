//! Reservations that were made while the store was unavailable: kept by this gate alone, and settled in the counters of
//! this instance.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::reservation::{LONGEST_RESERVATION, RESULT_TTL};
use tidegate_core::{Costs, ExtendAnswer, MadeReservation, ReservationId, Timestamp};

use super::receipt::{ChargedLimit, KeptReceipt};
use super::reserving::ReservationEnd;
use super::settlement::Change;
use super::{Gate, ReservationError, ReservationRecord, SettledLimit, Settlement};

/// The most that are kept. Beyond it a request is decided, and has no reservation to settle.
const MOST: usize = 100_000;

/// The reservations that this gate alone keeps.
pub(super) type ReservationsAlone = Mutex<HashMap<ReservationId, ReservationAlone>>;

pub(super) struct ReservationAlone {
    receipt: KeptReceipt,
    record: ReservationRecord,
    /// Until when it is remembered, once it is settled.
    remembered_until: Option<Timestamp>,
}

impl Gate {
    /// Keeps what was charged without the store.
    pub(super) fn keep_alone(
        &self,
        id: ReservationId,
        receipt: KeptReceipt,
        ttl: Duration,
    ) -> Option<MadeReservation> {
        let charged = receipt.charged();
        if charged.is_empty() {
            return None;
        }
        let now = receipt.at().unwrap_or_else(|| self.clock.now());
        let limits = charged.iter().map(|limit| SettledLimit::open(limit));
        let estimate = receipt.estimate().clone();
        let record = ReservationRecord {
            id,
            created_at: now,
            expires_at: now + ttl.into(),
            is_settled: false,
            is_degraded: true,
            settlement: Settlement::new(estimate.clone(), estimate, limits.collect()),
        };
        let made = MadeReservation {
            id,
            expires_at: record.expires_at,
        };
        drop(charged);
        let alone = ReservationAlone {
            receipt,
            record,
            remembered_until: None,
        };
        let mut kept = self.alone.lock();
        if kept.len() >= MOST {
            let ended: Vec<ReservationId> = kept
                .iter()
                .filter(|(_, alone)| alone.has_ended(now))
                .map(|(id, _)| *id)
                .collect();
            for id in ended {
                if let Some(alone) = kept.remove(&id) {
                    self.end_alone(&alone);
                }
            }
        }
        if kept.len() >= MOST {
            return None;
        }
        kept.insert(id, alone);
        Some(made)
    }

    /// Settles or cancels a reservation that this gate alone keeps; none if it does not.
    pub(super) fn settle_alone(
        &self,
        id: ReservationId,
        actual: Option<&Costs>,
        at: Option<Timestamp>,
    ) -> Option<Result<ReservationRecord, ReservationError>> {
        self.with_alone(id, at, |alone, now| {
            let estimate = alone.receipt.estimate();
            let settled = estimate
                .replaced_by(actual)
                .ok_or(ReservationError::OtherKind)?;
            if alone.record.is_settled {
                let is_same = *alone.record.settlement.settled() == settled;
                let record = is_same.then(|| alone.record.clone());
                return record.ok_or(ReservationError::OtherCost);
            }
            let change = Change {
                actual,
                at: alone.receipt.at().and(Some(now)),
                permit: alone.receipt.permit(),
            };
            let limits = self.change_degraded(&alone.receipt.charged(), change);
            alone.record.is_settled = true;
            alone.record.settlement = Settlement::new(estimate.clone(), settled, limits);
            alone.remembered_until = Some(now + RESULT_TTL);
            self.count_settled(&alone.record, actual.is_none());
            Ok(alone.record.clone())
        })
    }

    /// Extends a reservation that this gate alone keeps; none if it does not.
    pub(super) fn extend_alone(
        &self,
        id: ReservationId,
        ttl: Duration,
        at: Option<Timestamp>,
    ) -> Option<ExtendAnswer> {
        self.with_alone(id, at, |alone, now| {
            if alone.record.is_settled {
                return Err(ReservationError::Settled);
            }
            let longest = alone.record.created_at + LONGEST_RESERVATION;
            alone.record.expires_at = (now + ttl.into()).min(longest);
            if let Some(permit) = alone.receipt.permit() {
                self.local.renew(permit);
            }
            Ok(alone.record.expires_at)
        })
        .map(|extended| match extended {
            Ok(end) => ExtendAnswer::Until(end),
            Err(ReservationError::Settled) => ExtendAnswer::Settled,
            Err(_) => ExtendAnswer::Unknown,
        })
    }

    /// A reservation that this gate alone keeps.
    pub(super) fn look_alone(&self, id: ReservationId) -> Option<ReservationRecord> {
        let found = self.with_alone(id, None, |alone, _| Ok(alone.record.clone()));
        found.and_then(Result::ok)
    }

    /// Does something with a reservation that this gate alone keeps; none if it does not.
    fn with_alone<T>(
        &self,
        id: ReservationId,
        at: Option<Timestamp>,
        run: impl FnOnce(&mut ReservationAlone, Timestamp) -> Result<T, ReservationError>,
    ) -> Option<Result<T, ReservationError>> {
        let mut kept = self.alone.lock();
        let alone = kept.get_mut(&id)?;
        // One that brought its time is about such times; without one, it is settled at its own.
        let now = match alone.receipt.at() {
            Some(made) => at.unwrap_or(made),
            None => self.clock.now(),
        };
        if alone.has_ended(now) {
            if let Some(alone) = kept.remove(&id) {
                self.end_alone(&alone);
            }
            return Some(Err(ReservationError::Unknown));
        }
        Some(run(alone, now))
    }

    /// What a reservation leaves that has ended: if it is unsettled, what its rules give back is, as of its end.
    fn end_alone(&self, alone: &ReservationAlone) {
        if alone.record.is_settled {
            return;
        }
        self.reservations.count(ReservationEnd::Expired);
        let charged = alone.receipt.charged();
        let given_back = |limit: &ChargedLimit<'_>| {
            limit.charge.scope.gives_back() || limit.charge.limit.is_concurrency()
        };
        let given_back: Vec<ChargedLimit<'_>> =
            charged.iter().copied().filter(given_back).collect();
        let change = Change {
            actual: None,
            at: Some(alone.record.expires_at),
            permit: alone.receipt.permit(),
        };
        self.change_degraded(&given_back, change);
    }
}

impl ReservationAlone {
    fn has_ended(&self, now: Timestamp) -> bool {
        self.remembered_until.unwrap_or(self.record.expires_at) <= now
    }
}
