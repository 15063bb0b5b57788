//! Reservations of this process: an estimate is charged first, and settled with the true cost by the holder of the
//! receipt or the guard. They need no record in the store, unless a rule says `unsettled: give_back`: `held_record.rs`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::{Costs, Store};
use tokio::runtime::Handle;

use super::estimates::WatchedEstimate;
use super::held_record::{RecordTerms, USUAL_TTL};
use super::settlement::Change;
use super::{Asked, Decision, Gate, Receipt, RulesInForce, SettleError, Settlement};
use crate::attributes::Attributes;
use crate::rules::{BudgetKind, FrontEnd, add_one};

/// Why nothing was reserved, and nothing was decided. A denial is not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// The cost is 0, or all costs are.
    #[error("a cost of 0 reserves nothing; to ask without taking, decide with that cost")]
    NothingToReserve,
    /// There are as many stored reservations as the store may have. Nothing was charged.
    #[error(
        "there are as many open reservations as this server may have; try again when some are settled or have expired"
    )]
    TooMany,
}

/// An estimate that was charged and is not settled yet.
///
/// Made by [`Gate::reserve`]. Dropped without being settled, what it was charged stays charged, because the work may have
/// been done, except by rules that say `unsettled: give_back`. Permits that it holds are released then.
#[must_use = "a reservation that is not settled keeps its estimate"]
pub struct ReservationGuard<'g> {
    gate: &'g Gate,
    receipt: Receipt,
    /// Whether it is not settled or cancelled yet.
    is_open: bool,
}

impl Gate {
    /// Charges an estimate of what a request will cost, exactly as [`decide`](Self::decide) does: all limits, or none.
    /// The guard settles it when the true cost is known.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tidegate::rules::RuleSet;
    /// use tidegate::{Attributes, Costs, Gate, MemoryStore};
    ///
    /// let rules = RuleSet::from_yaml("
    /// rules:
    ///   - {id: requests, per: [api_key], missing: deny, limit: 300/minute}
    ///   - {id: tokens, per: [api_key], missing: deny, unit: tokens, limit: 100/minute}
    /// ")?;
    /// let gate = Gate::new(MemoryStore::new(), rules);
    /// let mut attributes = Attributes::new();
    /// attributes.insert("api_key", "k1")?;
    ///
    /// let estimate = Costs::by_unit([("tokens", 60)])?;
    /// let guard = gate.reserve(&attributes, estimate.clone()).await?;
    /// assert!(guard.decision().is_allowed());
    /// // A second one would be more than there is.
    /// assert!(gate.reserve(&attributes, estimate).await?.decision().is_denied());
    ///
    /// // … the work is done, and took 25 tokens …
    /// let settlement = guard.settle(Costs::by_unit([("tokens", 25)])?).await?;
    /// assert_eq!(settlement.given_back(), Costs::by_unit([("tokens", 35)])?);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn reserve(
        &self,
        attributes: &Attributes<'_>,
        costs: impl Into<Costs>,
    ) -> Result<ReservationGuard<'_>, ReserveError> {
        self.reserve_for(attributes, costs, USUAL_TTL).await
    }

    /// [`reserve`](Self::reserve) for work that may take longer than 5 minutes, or whose estimate is to be given back
    /// sooner if this process ends: rules with `unsettled: give_back` get theirs back when `ttl` has passed, at most a
    /// day. While the guard lasts the reservation is extended, if there is a Tokio runtime.
    pub async fn reserve_for(
        &self,
        attributes: &Attributes<'_>,
        costs: impl Into<Costs>,
        ttl: Duration,
    ) -> Result<ReservationGuard<'_>, ReserveError> {
        let costs = costs.into();
        if costs.is_zero() {
            return Err(ReserveError::NothingToReserve);
        }
        let (rules, front_end) = (self.rules(), FrontEnd::Library);
        let asked = Asked::Costing(attributes, &costs);
        let terms = RecordTerms {
            ttl,
            ends_permits: true,
        };
        let receipt = match self.reserve_recorded(&rules, front_end, asked, terms).await {
            Some(receipt) => receipt?,
            None => self.reserve_unrecorded(&rules, front_end, asked).await,
        };
        Ok(ReservationGuard {
            gate: self,
            receipt,
            is_open: true,
        })
    }

    /// Decides a request of a front end as [`decide_by`](Self::decide_by) does, whose cost is an estimate. The receipt
    /// counts as a reservation until it is settled, given back or dropped.
    ///
    /// An error only if a rule says `unsettled: give_back` and there is no room for the record that this needs: then
    /// nothing is charged.
    pub async fn reserve_by<'a, 'b: 'a>(
        &self,
        rules: &RulesInForce,
        front_end: FrontEnd,
        asked: impl Into<Asked<'a, 'b>>,
    ) -> Result<Receipt, ReserveError> {
        let asked = asked.into();
        let terms = RecordTerms {
            ttl: USUAL_TTL,
            ends_permits: false,
        };
        let recording = self.reserve_recorded(rules, front_end, asked, terms);
        match recording.await {
            Some(reserved) => reserved,
            None => Ok(self.reserve_unrecorded(rules, front_end, asked).await),
        }
    }

    async fn reserve_unrecorded(
        &self,
        rules: &RulesInForce,
        front_end: FrontEnd,
        asked: Asked<'_, '_>,
    ) -> Receipt {
        let began = self.begin();
        let mut receipt = match &self.store {
            Store::Memory(store) => self.decide_in_memory(store, rules, asked),
            // In a box, as when it is decided.
            Store::Remote(_) => Box::pin(self.decide_over_network(rules, asked)).await,
        };
        let watched = self.observe_estimate(began, front_end, asked, &receipt);
        if receipt.decisions().is_allowed() {
            let mut is_charged = false;
            for limit in receipt.charged().iter().filter(|limit| !limit.is_shadow) {
                let cost = limit.charge.cost;
                is_charged |= cost > 0;
                limit.counts.count_budget(BudgetKind::Reserved, cost);
            }
            if is_charged {
                receipt.reservation = Some(OpenReservation::new(&self.reservations, watched));
            }
        }
        receipt
    }

    /// The reservations of this process.
    pub fn reservations(&self) -> &ReservationCounts {
        &self.reservations
    }
}

impl ReservationGuard<'_> {
    /// Whether the estimate was charged, with the details for the caller.
    pub fn decision(&self) -> &Decision {
        self.receipt.decision()
    }

    /// Replaces the estimate by the true cost: what is less is given back, what is more is charged without asking, up
    /// to a full quota. A unit that is not named keeps its estimate. Permits are released.
    ///
    /// A guard of a denied request changes nothing.
    pub async fn settle(mut self, costs: impl Into<Costs>) -> Result<Settlement, SettleError> {
        let actual = costs.into();
        self.end(Some(&actual)).await
    }

    /// Gives the estimate back, as if nothing had been spent.
    pub async fn cancel(mut self) -> Result<Settlement, SettleError> {
        self.end(None).await
    }

    async fn end(&mut self, actual: Option<&Costs>) -> Result<Settlement, SettleError> {
        if let Some(record) = self.receipt.record.take() {
            self.is_open = false;
            return self
                .gate
                .settle_record(record, actual, self.receipt.at())
                .await;
        }
        let reservation = self.receipt.reservation.take();
        let charged = self.receipt.charged();
        let change = Change {
            actual,
            at: self.receipt.at(),
            permit: self.receipt.permit(),
        };
        let settling = self
            .gate
            .settle_charged(self.receipt.estimate(), &charged, change);
        let ended = settling.await;
        self.is_open = matches!(ended, Err(SettleError::OtherKind));
        OpenReservation::note(reservation, &ended, actual);
        ended
    }
}

impl Drop for ReservationGuard<'_> {
    fn drop(&mut self) {
        let Some(permit) = self.receipt.permit().filter(|_| self.is_open) else {
            return;
        };
        self.gate.local.release(permit);
        match &self.gate.store {
            Store::Memory(store) => {
                store.release(permit);
            }
            Store::Remote(store) => {
                let store = Arc::clone(store);
                // Without a runtime they end by themselves, when their time is over.
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(async move { store.release(permit).await.is_ok() });
                }
            }
        }
    }
}

impl fmt::Debug for ReservationGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservationGuard")
            .field("decision", self.decision())
            .field("is_open", &self.is_open)
            .finish_non_exhaustive()
    }
}

/// How a reservation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReservationEnd {
    /// It was settled.
    Settled,
    /// It was given back.
    Cancelled,
    /// It ended unsettled.
    Expired,
    /// The store did not say whether it was settled.
    Failed,
    /// It was not made, because there were too many.
    Refused,
}

impl ReservationEnd {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Settled,
        Self::Cancelled,
        Self::Expired,
        Self::Failed,
        Self::Refused,
    ];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

/// The reservations of a gate: how many are open in this process, and how the others ended.
#[derive(Debug, Default)]
pub struct ReservationCounts {
    open: AtomicU64,
    /// Of those that the store should keep, and does not because it was unavailable.
    alone: AtomicU64,
    ended: [AtomicU64; ReservationEnd::ALL.len()],
}

impl ReservationCounts {
    /// How many are open in this process.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed) + self.alone.load(Ordering::Relaxed)
    }

    /// Room for one more that a gate keeps alone, if there are fewer than `most`.
    pub(super) fn take_room_alone(self: &Arc<Self>, most: u64) -> Option<AloneRoom> {
        let has_room = |alone: u64| (alone < most).then_some(alone + 1);
        let (counted, seen) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.alone.fetch_update(counted, seen, has_room);
        taken.is_ok().then(|| AloneRoom(Arc::clone(self)))
    }

    /// How many ended like this.
    pub fn ended(&self, end: ReservationEnd) -> u64 {
        self.ended[end as usize].load(Ordering::Relaxed)
    }

    /// Counts one that ended.
    pub(super) fn count(&self, end: ReservationEnd) {
        add_one(&self.ended[end as usize]);
    }
}

/// The room of a reservation that a gate keeps alone: it counts as open until this is dropped.
#[derive(Debug)]
pub(super) struct AloneRoom(Arc<ReservationCounts>);

impl Drop for AloneRoom {
    fn drop(&mut self) {
        self.0.alone.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A reservation that counts as open until this is dropped.
#[derive(Debug)]
pub(super) struct CountedOpen(Arc<ReservationCounts>);

impl CountedOpen {
    pub(super) fn new(counts: &Arc<ReservationCounts>) -> Self {
        add_one(&counts.open);
        Self(Arc::clone(counts))
    }

    /// Counts how it ended.
    pub(super) fn count(&self, end: ReservationEnd) {
        self.0.count(end);
    }
}

impl Drop for CountedOpen {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A reservation that is counted as open, and as ended when this is dropped.
#[derive(Debug)]
pub(super) struct OpenReservation {
    counted: CountedOpen,
    end: ReservationEnd,
    /// If there is an observer.
    watched: Option<WatchedEstimate>,
}

impl OpenReservation {
    fn new(counts: &Arc<ReservationCounts>, watched: Option<WatchedEstimate>) -> Self {
        Self {
            counted: CountedOpen::new(counts),
            end: ReservationEnd::Expired,
            watched,
        }
    }

    /// Counts how it ended, and what it cost; without a cost it was given back.
    pub(super) fn note<T>(
        reservation: Option<Self>,
        ended: &Result<T, SettleError>,
        actual: Option<&Costs>,
    ) {
        if let Some(mut reservation) = reservation {
            reservation.end = match ended {
                Ok(_) if actual.is_none() => ReservationEnd::Cancelled,
                Ok(_) => ReservationEnd::Settled,
                Err(SettleError::OtherKind | SettleError::Expired) => ReservationEnd::Expired,
                Err(SettleError::Store(_)) => ReservationEnd::Failed,
            };
            if let (Ok(_), Some(watched)) = (ended, reservation.watched.take()) {
                watched.settle(actual);
            }
        }
    }
}

impl Drop for OpenReservation {
    fn drop(&mut self) {
        self.counted.count(self.end);
    }
}
