//! Reservations that were made while the store was unavailable: kept by this gate alone, and settled in the counters of
//! this instance.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_core::reservation::{LONGEST_RESERVATION, RESULT_TTL};
use tidegate_core::{
    Clock, Costs, ExtendAnswer, MadeReservation, Micros, PermitId, ReservationId, Timestamp,
};

use super::receipt::{ChargedLimit, KeptReceipt};
use super::reserving::{AloneRoom, ReservationEnd};
use super::settlement::Change;
use super::stored::StoredTerms;
use super::{Gate, ReservationError, ReservationRecord, SettledLimit, Settlement};

/// The reservations that this gate alone keeps.
pub(super) struct ReservationsAlone {
    kept: Mutex<AloneBook>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
pub(super) struct AloneBook {
    by_id: HashMap<ReservationId, ReservationAlone>,
    /// When each ends or is forgotten: by the clock, and by the times that requests bring.
    ends: [BTreeSet<(Timestamp, ReservationId)>; 2],
}

/// One reservation.
struct ReservationAlone {
    /// Until it ends.
    open: Option<OpenAlone>,
    /// Unless it has expired.
    record: Option<ReservationRecord>,
    /// Whether the clock says nothing about its end, because its time was supplied.
    is_supplied: bool,
    /// When it ends; once it has ended, until when that is remembered.
    until: Timestamp,
}

/// What was charged for a reservation that has not ended.
struct OpenAlone {
    receipt: KeptReceipt,
    _room: AloneRoom,
}

impl ReservationsAlone {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            kept: Mutex::default(),
            clock: Arc::clone(clock),
        }
    }

    pub(super) fn has(&self, id: ReservationId) -> bool {
        self.kept.lock().by_id.contains_key(&id)
    }

    /// One that was found, at its own time or that of the call, and the book to put it back into.
    fn take(
        &self,
        id: ReservationId,
        at: Option<Timestamp>,
    ) -> Option<(MutexGuard<'_, AloneBook>, ReservationAlone, Timestamp)> {
        let mut kept = self.kept.lock();
        let alone = kept.remove(id)?;
        let made = alone.open.as_ref().and_then(|open| open.receipt.at());
        let now = match made {
            Some(made) if alone.is_supplied => at.unwrap_or(made),
            _ => self.clock.now(),
        };
        Some((kept, alone, now))
    }

    /// Lets one last for so long from now on. Also returns its permit. None if it is not kept here.
    pub(super) fn extend(
        &self,
        id: ReservationId,
        ttl: Micros,
        at: Option<Timestamp>,
    ) -> Option<(ExtendAnswer, Option<PermitId>)> {
        let (mut kept, mut alone, now) = self.take(id, at)?;
        let mut permit = None;
        let answer = match (&alone.open, &mut alone.record) {
            (Some(open), Some(record)) if now < alone.until => {
                permit = open.receipt.permit();
                record.expires_at = (now + ttl).min(record.created_at + LONGEST_RESERVATION);
                alone.until = record.expires_at;
                ExtendAnswer::Until(record.expires_at)
            }
            (None, Some(_)) => ExtendAnswer::Settled,
            _ => ExtendAnswer::Unknown,
        };
        kept.insert(id, alone);
        Some((answer, permit))
    }
}

impl AloneBook {
    fn insert(&mut self, id: ReservationId, alone: ReservationAlone) {
        self.ends[usize::from(alone.is_supplied)].insert((alone.until, id));
        self.by_id.insert(id, alone);
    }

    fn remove(&mut self, id: ReservationId) -> Option<ReservationAlone> {
        let alone = self.by_id.remove(&id)?;
        self.ends[usize::from(alone.is_supplied)].remove(&(alone.until, id));
        Some(alone)
    }

    /// Takes out the next one that has ended or is to be forgotten.
    fn pop_due(
        &mut self,
        is_supplied: bool,
        now: Timestamp,
    ) -> Option<(ReservationId, ReservationAlone)> {
        let (until, id) = *self.ends[usize::from(is_supplied)].first()?;
        let due = (until <= now).then(|| self.remove(id))?;
        due.map(|alone| (id, alone))
    }
}

impl fmt::Debug for ReservationsAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservationsAlone").finish_non_exhaustive()
    }
}

impl Gate {
    /// Keeps what was charged without the store.
    pub(super) fn keep_alone(
        &self,
        room: AloneRoom,
        receipt: KeptReceipt,
        terms: &StoredTerms<'_, '_>,
    ) -> Option<MadeReservation> {
        let charged = receipt.charged();
        if charged.is_empty() {
            return None;
        }
        let now = receipt.at().unwrap_or_else(|| self.clock.now());
        let limits = charged.iter().map(|limit| SettledLimit {
            key: self.key_digests(terms, limit.rule),
            ..SettledLimit::open(limit)
        });
        let estimate = receipt.estimate().clone();
        let record = ReservationRecord {
            id: terms.id,
            created_at: now,
            expires_at: now + terms.ttl.into(),
            is_settled: false,
            is_degraded: true,
            settlement: Settlement::new(estimate.clone(), estimate, limits.collect()),
        };
        let made = MadeReservation {
            id: terms.id,
            expires_at: record.expires_at,
        };
        drop(charged);
        let alone = ReservationAlone {
            is_supplied: receipt.at().is_some(),
            until: record.expires_at,
            record: Some(record),
            open: Some(OpenAlone {
                receipt,
                _room: room,
            }),
        };
        self.alone.kept.lock().insert(terms.id, alone);
        Some(made)
    }

    /// Ends what has expired by now, or by a time that a request brings, before the counters of this instance are asked.
    pub(super) fn end_due_alone(&self, at: Option<Timestamp>) {
        let now = at.unwrap_or_else(|| self.clock.now());
        let mut kept = self.alone.kept.lock();
        while let Some((id, alone)) = kept.pop_due(at.is_some(), now) {
            self.end_alone(&mut kept, id, alone);
        }
    }

    /// Settles or cancels a reservation that this gate alone keeps; none if it does not.
    pub(super) fn settle_alone(
        &self,
        id: ReservationId,
        actual: Option<&Costs>,
        at: Option<Timestamp>,
    ) -> Option<Result<ReservationRecord, ReservationError>> {
        self.with_alone(id, at, |alone, now| {
            let record = alone.record.as_mut().ok_or(ReservationError::Unknown)?;
            let estimate = record.settlement.estimate().clone();
            let settled = estimate
                .replaced_by(actual)
                .ok_or(ReservationError::OtherKind)?;
            let Some(open) = alone.open.take() else {
                let is_same = *record.settlement.settled() == settled;
                return is_same
                    .then(|| record.clone())
                    .ok_or(ReservationError::OtherCost);
            };
            let change = Change {
                actual,
                at: open.receipt.at().and(Some(now)),
                permit: open.receipt.permit(),
            };
            let mut limits = self.change_degraded(&open.receipt.charged(), change);
            for (limit, open) in limits.iter_mut().zip(record.settlement.limits()) {
                limit.key.clone_from(&open.key);
            }
            record.is_settled = true;
            record.settlement = Settlement::new(estimate, settled, limits);
            self.count_settled(record, actual.is_none());
            let record = record.clone();
            alone.remember(self.clock.now());
            Ok(record)
        })
    }

    /// Extends a reservation that this gate alone keeps; none if it does not.
    pub(super) fn extend_alone(
        &self,
        id: ReservationId,
        ttl: Duration,
        at: Option<Timestamp>,
    ) -> Option<ExtendAnswer> {
        let (answer, permit) = self.alone.extend(id, ttl.into(), at)?;
        if let Some(permit) = permit {
            self.local.renew(permit);
        }
        Some(answer)
    }

    /// A reservation that this gate alone keeps; none if it does not.
    pub(super) fn look_alone(
        &self,
        id: ReservationId,
    ) -> Option<Result<ReservationRecord, ReservationError>> {
        self.with_alone(id, None, |alone, _| {
            alone.record.clone().ok_or(ReservationError::Unknown)
        })
    }

    /// Does something with a reservation that this gate alone keeps; none if it does not.
    fn with_alone<T>(
        &self,
        id: ReservationId,
        at: Option<Timestamp>,
        run: impl FnOnce(&mut ReservationAlone, Timestamp) -> Result<T, ReservationError>,
    ) -> Option<Result<T, ReservationError>> {
        let (mut kept, mut alone, now) = self.alone.take(id, at)?;
        if alone.until <= now {
            self.end_alone(&mut kept, id, alone);
            return Some(Err(ReservationError::Unknown));
        }
        let done = run(&mut alone, now);
        kept.insert(id, alone);
        Some(done)
    }

    /// What a reservation leaves that has ended: if it is unsettled, what its rules give back is, as of its end. That it
    /// was here is remembered for a while, so that the store is not asked about it.
    fn end_alone(&self, kept: &mut AloneBook, id: ReservationId, mut alone: ReservationAlone) {
        let Some(OpenAlone { receipt, .. }) = alone.open.take() else {
            return;
        };
        self.reservations.count(ReservationEnd::Expired);
        let mut charged = receipt.charged();
        charged.retain(|limit: &mut ChargedLimit<'_>| {
            limit.charge.scope.gives_back() || limit.charge.limit.is_concurrency()
        });
        let change = Change {
            actual: None,
            at: Some(alone.until),
            permit: receipt.permit(),
        };
        self.change_degraded(&charged, change);
        alone.record = None;
        alone.remember(self.clock.now());
        kept.insert(id, alone);
    }
}

impl ReservationAlone {
    /// Remembers by the clock how it ended.
    fn remember(&mut self, now: Timestamp) {
        self.is_supplied = false;
        self.until = now + RESULT_TTL;
    }
}
