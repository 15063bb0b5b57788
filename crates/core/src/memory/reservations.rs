//! Stored reservations: made, settled, extended and looked at.

use smallvec::SmallVec;

use super::MemoryStore;
use super::adjusting::AdjustTask;
use super::reservation_book::{BookedPart, BookedReservation, BookedReservations};
use super::slot::KeyHash;
use crate::algorithm::HeldPermits;
use crate::limit::{Algorithm, Limit, MIN_WINDOW};
use crate::outcome::{Outcome, Outcomes};
use crate::permit::PermitId;
use crate::reservation::{
    Adjusted, ExtendAnswer, LONGEST_RESERVATION, MadeReservation, RESULT_TTL, ReservationId,
    ReservationPart, ReserveRequest, Reserved, ReservedCharge, SettleAnswer, SettleRequest,
    StoredReservation, cost_of_part,
};
use crate::store::{Charge, Request};
use crate::time::{Micros, Timestamp};

/// How many reservations that have ended a new one removes.
const FORGOTTEN_PER_NEW: usize = 4;

impl MemoryStore {
    /// Charges, and keeps a record: [`RemoteStore::reserve`](crate::RemoteStore::reserve) without the future.
    pub fn reserve(&self, request: &ReserveRequest<'_>) -> Reserved {
        let now = self.time(request.at);
        self.forget_ended(request.at.is_some(), now, FORGOTTEN_PER_NEW);
        let mut charged = request.groups.iter().flat_map(|group| group.iter());
        let is_charged = charged.any(|reserved| reserved.charge.cost > 0);
        if is_charged && !self.takes_room_for_reservation(request.at.is_some(), now) {
            return Reserved::TooMany;
        }
        let mut outcomes: SmallVec<[Outcomes; 1]> = SmallVec::new();
        let mut taken: SmallVec<[(&ReservedCharge<'_>, Outcome); 4]> = SmallVec::new();
        let mut is_made = true;
        for (index, group) in request.groups.iter().enumerate() {
            // Nothing holds a permit for a request that is denied.
            let permit = is_made.then_some(request.id.permit());
            let answer = self.charge_group(group, request.ttl, (request.at, permit));
            let is_allowed = answer.iter().all(|outcome| outcome.allowed);
            if index == 0 {
                is_made = is_allowed;
            }
            if is_made && is_allowed {
                let parts = group.iter().zip(answer.iter().copied());
                taken.extend(parts.filter(|(reserved, _)| reserved.charge.cost > 0));
            }
            outcomes.push(answer);
        }
        if !is_made || taken.is_empty() {
            if is_charged {
                self.reservations.leave_room();
            }
            return Reserved::Decided {
                outcomes,
                made: None,
            };
        }
        let expires_at = now + request.ttl;
        let mut kept = self.reservations.lock();
        let parts = taken
            .iter()
            .map(|(reserved, outcome)| self.part(&mut kept, reserved, outcome));
        let booked = BookedReservation {
            created_at: now,
            expires_at,
            is_supplied: request.at.is_some(),
            estimate: request.estimate.clone(),
            settled: None,
            parts: parts.collect(),
        };
        self.put(&mut kept, request.id, booked);
        Reserved::Decided {
            outcomes,
            made: Some(MadeReservation {
                id: request.id,
                expires_at,
            }),
        }
    }

    fn charge_group(
        &self,
        group: &[ReservedCharge<'_>],
        ttl: Micros,
        (at, permit): (Option<Timestamp>, Option<PermitId>),
    ) -> Outcomes {
        // A permit ends with its reservation.
        let shortened = |limit: &Limit| match limit.algorithm() {
            Algorithm::Concurrency { lease_ttl } if lease_ttl > ttl => {
                let lease_ttl = ttl.max(MIN_WINDOW);
                Limit::new(limit.rate(), Algorithm::Concurrency { lease_ttl }).ok()
            }
            _ => None,
        };
        let limits: SmallVec<[Option<Limit>; 4]> = group
            .iter()
            .map(|reserved| shortened(reserved.charge.limit))
            .collect();
        let charges: SmallVec<[Charge<'_>; 4]> = group
            .iter()
            .zip(&limits)
            .map(|(reserved, limit)| Charge {
                limit: limit.as_ref().unwrap_or(reserved.charge.limit),
                ..reserved.charge
            })
            .collect();
        if charges.is_empty() {
            return Outcomes::new();
        }
        self.charge(&Request {
            charges: &charges,
            at,
            permit,
        })
    }

    fn part(
        &self,
        kept: &mut BookedReservations,
        reserved: &ReservedCharge<'_>,
        outcome: &Outcome,
    ) -> BookedPart {
        let charge = &reserved.charge;
        BookedPart {
            hash: self.hasher.hash(charge),
            limit: kept.limit(charge.limit),
            cost: charge.cost,
            charged_at: outcome.at,
            delay: outcome.delay,
            gives_back: charge.scope.gives_back(),
            unit: reserved.unit.clone(),
            unit_cost: reserved.unit_cost,
            label: reserved.label.into(),
            settled: charge.cost,
            adjusted: Adjusted::default(),
        }
    }

    /// Settles a reservation: [`RemoteStore::settle_reservation`](crate::RemoteStore::settle_reservation) without the
    /// future.
    pub fn settle_reservation(&self, request: &SettleRequest<'_>) -> SettleAnswer {
        let now = self.time(request.at);
        let mut kept = self.reservations.lock();
        let Some(booked) = self.live(&mut kept, request.id, (request.at, now)) else {
            return SettleAnswer::Unknown;
        };
        let (estimate, actual) = (&booked.estimate, request.actual);
        let Some(cost) = estimate.replaced_by(actual) else {
            return SettleAnswer::OtherKind;
        };
        let cost_of =
            |part: &BookedPart| cost_of_part((&part.unit, part.unit_cost), part.cost, actual);
        if let Some((settled, _)) = &booked.settled {
            let is_same = |part: &BookedPart| part.settled == cost_of(part);
            if *settled != cost || !booked.parts.iter().all(is_same) {
                return SettleAnswer::OtherCost;
            }
            return SettleAnswer::Settled {
                reservation: stored(request.id, booked),
                is_repeated: true,
            };
        }
        let at = request.at.or_else(|| own_time(booked));
        let now = at.unwrap_or(now);
        let Some(mut booked) = self.take(&mut kept, request.id) else {
            return SettleAnswer::Unknown;
        };
        for part in &mut booked.parts {
            part.settled = cost_of(part);
            part.adjusted = self.adjust_part(request.id, part, part.settled, (at, now));
        }
        // By the time by which it would have ended.
        let settled_at = if booked.is_supplied {
            now
        } else {
            self.stripes.now()
        };
        booked.settled = Some((cost, settled_at + RESULT_TTL));
        let reservation = stored(request.id, &booked);
        self.reservations.leave_room();
        self.put(&mut kept, request.id, booked);
        SettleAnswer::Settled {
            reservation,
            is_repeated: false,
        }
    }

    /// Lets a reservation last longer: [`RemoteStore::extend_reservation`](crate::RemoteStore::extend_reservation)
    /// without the future.
    pub fn extend_reservation(
        &self,
        id: ReservationId,
        ttl: Micros,
        at: Option<Timestamp>,
    ) -> ExtendAnswer {
        let now = self.time(at);
        let mut kept = self.reservations.lock();
        let Some(booked) = self.live(&mut kept, id, (at, now)) else {
            return ExtendAnswer::Unknown;
        };
        if booked.settled.is_some() {
            return ExtendAnswer::Settled;
        }
        let at = at.or_else(|| own_time(booked));
        let now = at.unwrap_or(now);
        let Some(mut booked) = self.take(&mut kept, id) else {
            return ExtendAnswer::Unknown;
        };
        let expires_at = (now + ttl).min(booked.created_at + LONGEST_RESERVATION);
        booked.expires_at = expires_at;
        let shared = self.stripes.shared();
        for part in &booked.parts {
            let lasts = match part.limit.algorithm() {
                Algorithm::Concurrency { lease_ttl } => lease_ttl.min(expires_at.since(now)),
                _ => continue,
            };
            let renew = |permits: &mut HeldPermits| permits.renew_for(id.permit(), lasts, now);
            let mut stripe = self.stripes.of(part.hash).lock();
            if !stripe.with_permits(part.hash, renew, shared) {
                shared.permits.remove(id.permit(), part.hash);
            }
        }
        self.put(&mut kept, id, booked);
        ExtendAnswer::Until(expires_at)
    }

    /// A reservation: [`RemoteStore::look_at_reservation`](crate::RemoteStore::look_at_reservation) without the future.
    pub fn look_at_reservation(&self, id: ReservationId) -> Option<StoredReservation> {
        let now = self.time(None);
        let mut kept = self.reservations.lock();
        let booked = self.live(&mut kept, id, (None, now))?;
        Some(stored(id, booked))
    }

    /// Whether the permit is that of a reservation, which alone ends it.
    pub(super) fn is_reserved(&self, permit: PermitId) -> bool {
        let (open, ..) = self.reservations.counts();
        let id = ReservationId::from_u128(permit.as_u128());
        open > 0 && self.reservations.lock().get(id).is_some()
    }

    /// The reservation, unless it has ended.
    fn live<'k>(
        &self,
        kept: &'k mut BookedReservations,
        id: ReservationId,
        (at, now): (Option<Timestamp>, Timestamp),
    ) -> Option<&'k BookedReservation> {
        let booked = kept.get(id)?;
        // One that brought its time ends by such times alone, another by the clock alone. Invariant: no time that was
        // supplied since it was made is at or past the end of one that is left, because `end_due` takes those out.
        let passed = match (booked.is_supplied, at) {
            (true, at) => at,
            (false, None) => Some(now),
            (false, Some(_)) => Some(self.stripes.now()),
        };
        if passed.is_some_and(|passed| booked.ends_at() <= passed) {
            let booked = self.take(kept, id)?;
            self.end(id, &booked);
            return None;
        }
        kept.get(id)
    }

    /// Ends reservations that have ended until `now`, which it returns: those that change a counter, and of those that
    /// brought their time all. So one has ended for good if any time since it was made was past its end, also for calls
    /// that bring an earlier time or none.
    #[cold]
    pub(super) fn end_due(&self, is_supplied: bool, now: Timestamp) -> Timestamp {
        let mut kept = self.reservations.lock();
        while let Some((id, booked)) = kept.pop_ended(is_supplied, now, !is_supplied) {
            self.uncount(&booked);
            self.end(id, &booked);
        }
        self.reservations.note_due(&kept);
        now
    }

    /// Removes some reservations that have ended until `now`.
    pub(super) fn forget_ended(&self, is_supplied: bool, now: Timestamp, most: usize) {
        let mut kept = self.reservations.lock();
        for _ in 0..most {
            let Some((id, booked)) = kept.pop_ended(is_supplied, now, false) else {
                break;
            };
            self.uncount(&booked);
            self.end(id, &booked);
        }
        self.reservations.note_due(&kept);
    }

    /// What a reservation leaves that has ended: nothing if it was settled; else what is to be given back is, as of its
    /// end, and its permits are released.
    fn end(&self, id: ReservationId, booked: &BookedReservation) {
        if booked.settled.is_some() {
            return;
        }
        self.reservations.count_expired();
        let end = booked.expires_at;
        for part in &booked.parts {
            if part.gives_back || part.limit.is_concurrency() {
                self.adjust_part(id, part, 0, (Some(end), end));
            }
        }
    }

    /// Gives back nothing of what reservations have charged to a key that was reset and had no state.
    pub(super) fn void_parts(&self, hash: KeyHash) {
        if self.reservations.counts().0 == 0 {
            return;
        }
        let kept = self.reservations.lock();
        let parts = kept.iter().flat_map(|(_, booked)| &booked.parts);
        let charged = parts.filter(|part| part.hash == hash);
        if let Some(last) = charged.map(|part| part.charged_at).max() {
            self.stripes.shared().resets.add(hash, last);
        }
    }

    fn adjust_part(
        &self,
        id: ReservationId,
        part: &BookedPart,
        actual: u64,
        (at, now): (Option<Timestamp>, Timestamp),
    ) -> Adjusted {
        let task = AdjustTask {
            hash: part.hash,
            limit: &part.limit,
            cost: part.cost,
            charged_at: part.charged_at,
            delay: part.delay,
            actual,
            permit: Some(id.permit()),
        };
        self.adjust_one(&task, at, now).0
    }

    /// Whether one more reservation may be made, which is counted then.
    fn takes_room_for_reservation(&self, is_supplied: bool, now: Timestamp) -> bool {
        if !self.has_room_for_permit() {
            return false;
        }
        if self.reservations.take_room() {
            return true;
        }
        self.forget_ended(is_supplied, now, usize::MAX);
        self.reservations.take_room()
    }

    /// Adds a reservation, or the same one again after a change.
    pub(super) fn put(
        &self,
        kept: &mut BookedReservations,
        id: ReservationId,
        booked: BookedReservation,
    ) {
        self.stripes.shared().count_record(booked.bytes());
        kept.insert(id, booked);
        self.reservations.note_due(kept);
    }

    /// Takes a reservation out.
    fn take(&self, kept: &mut BookedReservations, id: ReservationId) -> Option<BookedReservation> {
        let booked = kept.remove(id)?;
        self.uncount(&booked);
        self.reservations.note_due(kept);
        Some(booked)
    }

    fn uncount(&self, booked: &BookedReservation) {
        self.stripes.shared().uncount_record(booked.bytes());
    }
}

/// The time of a reservation that brought one.
fn own_time(booked: &BookedReservation) -> Option<Timestamp> {
    booked.is_supplied.then_some(booked.created_at)
}

fn stored(id: ReservationId, booked: &BookedReservation) -> StoredReservation {
    let part = |part: &BookedPart| ReservationPart {
        label: part.label.clone(),
        unit: part.unit.clone(),
        limit: part.limit.capacity(),
        reserved: part.cost,
        settled: part.settled,
        adjusted: part.adjusted,
    };
    StoredReservation {
        id,
        created_at: booked.created_at,
        expires_at: booked.expires_at,
        estimate: booked.estimate.clone(),
        settled: booked.settled.as_ref().map(|(cost, _)| cost.clone()),
        parts: booked.parts.iter().map(part).collect(),
    }
}
