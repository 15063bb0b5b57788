//! What stored reservations took from the pools of this instance: settled here while the lease lasts, it goes back there.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tidegate_core::ReservationId;
use tidegate_redis_wire::plan::Plan;
use tidegate_redis_wire::wire::KeptPart;

use super::StoreInner;
use super::taken::TakenUnits;

/// How many reservations there are at least before those are looked for whose leases have ended.
const FEW: usize = 1_024;

/// The reservations whose units may go back into pools.
#[derive(Default)]
pub(super) struct LentUnits(Mutex<LentTable>);

#[derive(Default)]
struct LentTable {
    reservations: HashMap<ReservationId, SmallVec<[LentState; 1]>, foldhash::fast::RandomState>,
    /// How many there may be before they are looked through.
    most: usize,
}

/// Units of one state.
struct LentState {
    units: TakenUnits,
    /// The charges that they pay: numbers of parts of the reservation.
    parts: SmallVec<[u64; 1]>,
}

impl LentUnits {
    /// Remembers what a reservation took for the first of its plans.
    pub(super) fn lend(
        &self,
        id: ReservationId,
        plan: &Plan<'_>,
        taken: impl Iterator<Item = TakenUnits>,
    ) {
        let lent = taken.map(|units| {
            let state = units.state();
            let charges = plan.charges.iter().enumerate();
            let of_state = charges.filter(|(_, planned)| planned.state.name == state);
            LentState {
                parts: of_state.map(|(index, _)| index as u64).collect(),
                units,
            }
        });
        let lent: SmallVec<[LentState; 1]> = lent.collect();
        if lent.is_empty() {
            return;
        }
        let mut table = self.0.lock();
        if table.reservations.len() >= table.most {
            let can_go_back = |lent: &LentState| lent.units.can_go_back(0);
            table
                .reservations
                .retain(|_, lent| lent.iter().any(can_go_back));
            table.most = FEW.max(2 * table.reservations.len());
        }
        table.reservations.insert(id, lent);
    }

    /// The numbers of the parts whose units can go back into their pools now.
    pub(super) fn parts(&self, id: ReservationId) -> Vec<u64> {
        let table = self.0.lock();
        let lent = table.reservations.get(&id).into_iter().flatten();
        let lent = lent.filter(|lent| lent.units.can_go_back(0));
        lent.flat_map(|lent| lent.parts.iter().copied()).collect()
    }

    /// Forgets a reservation that has ended.
    pub(super) fn forget(&self, id: ReservationId) {
        self.0.lock().reservations.remove(&id);
    }

    /// Puts back what a reservation, which is settled, does not need. Of calls that are repeated, one does so.
    pub(super) fn put_back(
        &self,
        id: ReservationId,
        settled: &[KeptPart],
        inner: &Arc<StoreInner>,
    ) {
        let lent = self.0.lock().reservations.remove(&id);
        for LentState { units, parts } in lent.into_iter().flatten() {
            let of_state = settled.iter().filter(|kept| parts.contains(&kept.index));
            let unused: u64 = of_state.map(|kept| kept.for_lease).sum();
            if unused > 0 {
                units.give_back(unused, inner);
            }
        }
    }
}
