//! The plan of a request, computed once: the key of each charge with its hash and cluster slot, and the total cost per
//! state. Steps, hints and leases are built from it.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::algorithm::Form;
use tidegate_core::{Charge, Limit, Micros, PermitId, Request, Scope, Timestamp};

use crate::keys::{RedisKeys, StateKey};

/// Indexes of charges whose states share a slot.
pub type SlotGroup = SmallVec<[usize; 4]>;

/// A request, or a part of one, with the keys of its charges.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Its charges, in their order.
    pub charges: SmallVec<[PlannedCharge<'a>; 4]>,
    /// The time of the request, if it brings one.
    pub at: Option<Timestamp>,
    /// The id under which permits of concurrency limits are held.
    pub permit: Option<PermitId>,
}

/// A charge and its state.
#[derive(Debug, Clone)]
pub struct PlannedCharge<'a> {
    /// The charge.
    pub charge: Charge<'a>,
    /// The key of the state that it pays from.
    pub state: StateKey,
    /// The total cost of all charges of the plan on this state.
    pub total: u64,
    /// The index of the plan's first charge on this state.
    pub first: usize,
}

impl<'a> Plan<'a> {
    /// The plan of a request.
    pub fn new(keys: &RedisKeys, request: &Request<'a>) -> Self {
        let mut charges: SmallVec<[PlannedCharge<'a>; 4]> =
            SmallVec::with_capacity(request.charges.len());
        for charge in request.charges {
            let state = keys.state_key(charge);
            let is_same = |other: &PlannedCharge<'_>| other.state.name == state.name;
            let same = charges.iter().position(is_same);
            let first = same.unwrap_or(charges.len());
            charges.push(PlannedCharge {
                charge: *charge,
                state,
                total: charge.cost,
                first,
            });
            if same.is_some() {
                let total = charges[first].total.saturating_add(charge.cost);
                let on_state = charges.iter_mut().filter(|other| other.first == first);
                on_state.for_each(|other| other.total = total);
            }
        }
        Self {
            charges,
            at: request.at,
            permit: request.permit,
        }
    }

    /// The plan with these of its charges: all or none of those on one state.
    #[must_use]
    pub fn part(&self, indexes: &[usize]) -> Self {
        let first_of = |charge: &PlannedCharge<'_>| {
            let is_same = |index: &usize| self.charges[*index].first == charge.first;
            indexes.iter().position(is_same).unwrap_or_default()
        };
        let charges = indexes.iter().map(|index| {
            let charge = &self.charges[*index];
            let first = first_of(charge);
            PlannedCharge {
                first,
                ..charge.clone()
            }
        });
        Self {
            charges: charges.collect(),
            ..*self
        }
    }

    /// The slot of its first state.
    pub fn slot(&self) -> u16 {
        self.charges.first().map_or(0, |charge| charge.state.slot)
    }

    /// Its charges by slot.
    pub fn by_slot(&self) -> SmallVec<[SlotGroup; 2]> {
        let mut groups: SmallVec<[SlotGroup; 2]> = SmallVec::new();
        for (index, charge) in self.charges.iter().enumerate() {
            let is_same =
                |group: &&mut SlotGroup| self.charges[group[0]].state.slot == charge.state.slot;
            match groups.iter_mut().find(is_same) {
                Some(group) => group.push(index),
                None => groups.push(SlotGroup::from_slice(&[index])),
            }
        }
        groups
    }

    /// The states of concurrency limits, with the lifetime of their permits, for a register in another slot.
    pub fn permits(&self) -> Vec<(Arc<str>, Micros)> {
        let permit = |charge: &PlannedCharge<'_>| match charge.charge.limit.form() {
            Form::Concurrency(form) if charge.total > 0 => {
                Some((Arc::clone(&charge.state.key), form.lease_ttl()))
            }
            _ => None,
        };
        self.charges.iter().filter_map(permit).collect()
    }
}

impl PlannedCharge<'_> {
    /// Whether it counts requests in progress.
    pub fn is_concurrency(&self) -> bool {
        matches!(self.charge.limit.form(), Form::Concurrency(_))
    }
}

/// An owned copy of a state and its limit, for tasks that outlive the request.
#[derive(Debug, Clone)]
pub struct OwnedState {
    /// The limit.
    pub limit: Limit,
    scope: Scope,
    key: Box<str>,
    /// The key of the state.
    pub state: StateKey,
}

impl OwnedState {
    /// The state of a planned charge.
    pub fn from_planned(planned: &PlannedCharge<'_>) -> Self {
        Self {
            limit: planned.charge.limit.clone(),
            scope: planned.charge.scope.clone(),
            key: planned.charge.key.into(),
            state: planned.state.clone(),
        }
    }

    /// A plan that charges `cost` to this state.
    pub fn plan(&self, cost: u64) -> Plan<'_> {
        let charge = Charge {
            scope: &self.scope,
            limit: &self.limit,
            key: &self.key,
            cost,
        };
        let planned = PlannedCharge {
            charge,
            state: self.state.clone(),
            total: cost,
            first: 0,
        };
        Plan {
            charges: SmallVec::from_iter([planned]),
            at: None,
            permit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeySecret, SecretFrom, slot_of};

    #[test]
    fn charges_on_one_state_are_added_up_and_stay_together() {
        let keys = RedisKeys::new(None, KeySecret::new(SecretFrom::Public));
        let (one, two) = (Scope::new("one"), Scope::new("two"));
        let limit: Limit = "10/minute".parse().unwrap();
        let charge = |scope, key, cost| Charge {
            scope,
            limit: &limit,
            key,
            cost,
        };
        let charges = [
            charge(&one, "a", 1),
            charge(&two, "b", 2),
            charge(&one, "a", 3),
            charge(&two, "a", 4),
            charge(&one, "a", u64::MAX),
        ];
        let plan = Plan::new(&keys, &Request::new(&charges));
        let read = |plan: &Plan<'_>| -> Vec<(u64, usize)> {
            let charges = plan.charges.iter();
            charges.map(|charge| (charge.total, charge.first)).collect()
        };
        let all = u64::MAX;
        assert_eq!(read(&plan), [(all, 0), (2, 1), (all, 0), (4, 3), (all, 0)]);
        assert_eq!(&*plan.charges[3].state.key, "tg:{a}:two:tb:1m");
        let groups = plan.by_slot();
        assert_eq!(groups[0].as_slice(), [0, 2, 3, 4]);
        assert_eq!(groups[1].as_slice(), [1]);
        let part = plan.part(&[1, 2, 4, 3]);
        assert_eq!(read(&part), [(2, 0), (all, 1), (all, 1), (4, 3)]);
        assert_eq!(part.slot(), slot_of("b"));
    }
}
