//! Stored reservations that were made: settled, extended and looked at. The id leads to the record, which names those in
//! other slots.

use std::sync::Arc;

use tidegate_core::{
    ExtendAnswer, Micros, ReservationId, SettleAnswer, SettleRequest, StoreError,
    StoredReservation, Timestamp,
};

use super::StoreInner;
use tidegate_redis_wire::keys::slot_of_permit;
use tidegate_redis_wire::wire::{HoldAnswer, KeptPart, LuaStep, StepOutcome};

impl StoreInner {
    /// Settles a reservation. The record that the id leads to decides; each part in another slot may be repeated.
    pub(super) async fn settle_reservation(
        self: &Arc<Self>,
        request: &SettleRequest<'_>,
    ) -> Result<SettleAnswer, StoreError> {
        let id = request.id;
        let of_lease = self.lent.parts(id);
        let settle = |hold: &str| LuaStep::settle_hold(hold, request, &of_lease);
        let answer = self.on_hold(settle(&self.record_of(id))).await?;
        let HoldAnswer::Record {
            mut record,
            mut parts,
            is_repeated,
            others,
        } = answer
        else {
            return match answer {
                HoldAnswer::OtherKind => Ok(SettleAnswer::OtherKind),
                HoldAnswer::OtherCost => Ok(SettleAnswer::OtherCost),
                HoldAnswer::Unknown => {
                    self.lent.forget(id);
                    Ok(SettleAnswer::Unknown)
                }
                _ => Err(unexpected()),
            };
        };
        for hold in others {
            // One that is gone has ended, or was never charged.
            if let HoldAnswer::Record { parts: more, .. } = self.on_hold(settle(&hold)).await? {
                parts.extend(more);
            }
        }
        if !is_repeated {
            for kept in &parts {
                let name = self.keys.name(kept.counter.as_bytes());
                self.forget_remembered(name);
            }
        }
        self.lent.put_back(id, &parts, self);
        fill(&mut record, parts);
        Ok(SettleAnswer::Settled {
            reservation: record,
            is_repeated,
        })
    }

    /// Lets a reservation last longer, in all slots.
    pub(super) async fn extend_reservation(
        &self,
        id: ReservationId,
        ttl: Micros,
        at: Option<Timestamp>,
    ) -> Result<ExtendAnswer, StoreError> {
        let extend = |hold: &str| LuaStep::extend_hold(hold, id, ttl, at);
        match self.on_hold(extend(&self.record_of(id))).await? {
            HoldAnswer::Until(expires_at, others) => {
                for hold in others {
                    self.on_hold(extend(&hold)).await?;
                }
                Ok(ExtendAnswer::Until(expires_at))
            }
            HoldAnswer::OtherCost => Ok(ExtendAnswer::Settled),
            HoldAnswer::Unknown => Ok(ExtendAnswer::Unknown),
            _ => Err(unexpected()),
        }
    }

    /// Reads a reservation, from all slots.
    pub(super) async fn look_at_reservation(
        &self,
        id: ReservationId,
    ) -> Result<Option<StoredReservation>, StoreError> {
        let look = |hold: &str| LuaStep::look_at_hold(hold, id);
        let HoldAnswer::Record {
            mut record,
            mut parts,
            others,
            ..
        } = self.on_hold(look(&self.record_of(id))).await?
        else {
            return Ok(None);
        };
        for hold in others {
            if let HoldAnswer::Record { parts: more, .. } = self.on_hold(look(&hold)).await? {
                parts.extend(more);
            }
        }
        fill(&mut record, parts);
        Ok(Some(record))
    }

    /// The key of the record that an id leads to.
    fn record_of(&self, id: ReservationId) -> String {
        self.keys.hold(slot_of_permit(id.permit()), id)
    }

    async fn on_hold(&self, step: LuaStep) -> Result<HoldAnswer, StoreError> {
        let deadline = self.router.deadline();
        match self.router.step(step, deadline).await?.answer {
            StepOutcome::Hold(answer) => Ok(*answer),
            _ => Err(unexpected()),
        }
    }
}

fn fill(record: &mut StoredReservation, mut parts: Vec<KeptPart>) {
    parts.sort_by_key(|kept| kept.index);
    record.parts = parts.into_iter().map(|kept| kept.part).collect();
}

fn unexpected() -> StoreError {
    StoreError::BadReply("expected a reservation".into())
}
