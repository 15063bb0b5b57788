//! The record of a reservation of this process, which it has because a rule that was charged says `unsettled: give_back`:
//! then a crash, too, gives back what was not settled.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Costs, ExtendAnswer, Micros, ReservationId, Store, StoreError};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::estimates::WatchedEstimate;
use super::kept_alone::ReservationsAlone;
use super::reserving::{CountedOpen, ReservationEnd};
use super::stored::Reserving;
use super::{Asked, Decisions, Gate, Receipt, ReserveError, RulesInForce};
use crate::rules::FrontEnd;

/// How long a record lasts unless it is extended.
pub(super) const USUAL_TTL: Duration = Duration::from_mins(5);

/// What a reservation of this process needs of its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordTerms {
    /// How long it lasts unless it is extended.
    pub(super) ttl: Duration,
    /// Whether permits are released when it is settled, as those of a record are. If not, the record does not have them.
    pub(super) ends_permits: bool,
}

/// Where a record is kept.
#[derive(Debug, Clone)]
enum RecordHome {
    InStore(Store),
    /// By the gate alone, because the store was unavailable.
    Alone(Arc<ReservationsAlone>),
}

impl RecordHome {
    /// Lets a record last for so long from now on.
    async fn extend(&self, id: ReservationId, ttl: Micros) -> Result<ExtendAnswer, StoreError> {
        match self {
            Self::InStore(store) => store.extend_reservation(id, ttl, None).await,
            Self::Alone(alone) => {
                let extended = alone.extend(id, ttl, None);
                Ok(extended.map_or(ExtendAnswer::Unknown, |(answer, _)| answer))
            }
        }
    }
}

/// The record of a reservation that this process holds, extended while it does. If it is dropped unsettled, the
/// reservation ends, and each rule's `unsettled` says what becomes of its part.
#[derive(Debug)]
pub(super) struct HeldRecord {
    pub(super) id: ReservationId,
    home: RecordHome,
    /// If it is not counted where it is kept.
    counted: Option<CountedOpen>,
    extending: Option<AbortHandle>,
    is_open: bool,
    /// If there is an observer.
    watched: Option<WatchedEstimate>,
}

impl HeldRecord {
    fn new(
        id: ReservationId,
        (home, counted): (RecordHome, Option<CountedOpen>),
        ttl: Duration,
        watched: Option<WatchedEstimate>,
    ) -> Self {
        // Without a runtime it is not extended.
        let extending = Handle::try_current().ok().map(|runtime| {
            let extending = extend(home.clone(), id, ttl);
            runtime.spawn(extending).abort_handle()
        });
        Self {
            id,
            home,
            counted,
            extending,
            is_open: true,
            watched,
        }
    }

    /// It was settled; without a cost, given back.
    pub(super) fn settle(mut self, actual: Option<&Costs>) {
        self.is_open = false;
        if let Some(watched) = self.watched.take() {
            watched.settle(actual);
        }
    }

    /// It may have been settled.
    pub(super) fn leave(mut self) {
        self.is_open = false;
    }

    /// It can no longer be settled.
    pub(super) fn expire(mut self) {
        self.is_open = false;
        self.note_expired();
    }

    fn note_expired(&mut self) {
        if let Some(counted) = &self.counted {
            counted.count(ReservationEnd::Expired);
        }
        if let Some(watched) = self.watched.take() {
            watched.expire();
        }
    }
}

/// Extends a reservation at half of its time, until it has ended.
async fn extend(home: RecordHome, id: ReservationId, ttl: Duration) {
    loop {
        tokio::time::sleep(ttl / 2).await;
        match home.extend(id, Micros::from(ttl)).await {
            Ok(ExtendAnswer::Until(_)) => {}
            // Another call may still reach the store in time.
            Err(error) if error.is_transient() => {}
            Ok(_) | Err(_) => return,
        }
    }
}

impl Drop for HeldRecord {
    fn drop(&mut self) {
        if let Some(extending) = &self.extending {
            extending.abort();
        }
        if !self.is_open {
            return;
        }
        self.note_expired();
        // To last no longer is to expire now.
        let (home, id) = (self.home.clone(), self.id);
        match &home {
            RecordHome::Alone(alone) => {
                alone.extend(id, Micros::ZERO, None);
            }
            RecordHome::InStore(Store::Memory(store)) => {
                store.extend_reservation(id, Micros::ZERO, None);
            }
            RecordHome::InStore(Store::Remote(_)) => {
                // Without a runtime it expires when its time is over.
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(async move {
                        drop(home.extend(id, Micros::ZERO).await);
                    });
                }
            }
        }
    }
}

impl Gate {
    /// Reserves with a record, if a rule that is charged gives back what is not settled. `None` if no rule does: nothing
    /// was decided.
    pub(super) async fn reserve_recorded(
        &self,
        rules: &RulesInForce,
        front_end: FrontEnd,
        asked: Asked<'_, '_>,
        terms: RecordTerms,
    ) -> Option<Result<Receipt, ReserveError>> {
        if !rules.0.gives_back() {
            return None;
        }
        // In a box, so that other reservations do not carry what a record needs.
        Box::pin(self.reserve_with_record(rules, front_end, asked, terms)).await
    }

    async fn reserve_with_record(
        &self,
        rules: &RulesInForce,
        front_end: FrontEnd,
        asked: Asked<'_, '_>,
        terms: RecordTerms,
    ) -> Option<Result<Receipt, ReserveError>> {
        let (attributes, costs) = match asked {
            Asked::Request(attributes) => (attributes, attributes.costs()),
            Asked::Costing(attributes, costs) => (attributes, costs),
            Asked::Parts(_) => return None,
        };
        if !self.matches_give_back(rules, attributes, costs) {
            return None;
        }
        let owned;
        let attributes = match asked {
            Asked::Costing(..) => {
                owned = attributes.clone().with_cost(costs.clone());
                &owned
            }
            _ => attributes,
        };
        let reserving = Reserving {
            front_end,
            attributes,
            ttl: terms.ttl,
            is_held: true,
            ends_permits: terms.ends_permits,
        };
        let reserved = self.reserve_with(rules, reserving).await;
        Some(reserved.map(|(reserved, watched)| {
            let decisions = Decisions::one(reserved.decision);
            let mut receipt = Receipt::new(decisions, attributes.time(), costs.clone());
            receipt.record = reserved.made.map(|made| {
                let home = if self.alone.has(made.id) {
                    (RecordHome::Alone(Arc::clone(&self.alone)), None)
                } else {
                    let is_remote = matches!(self.store, Store::Remote(_));
                    let counted = is_remote.then(|| CountedOpen::new(&self.reservations));
                    (RecordHome::InStore(self.store.clone()), counted)
                };
                Box::new(HeldRecord::new(made.id, home, terms.ttl, watched))
            });
            receipt
        }))
    }
}
