//! Reservations of front ends that have a record, because a rule gives back what is not settled. Their permits are held
//! by the request, and are not in the record.

use std::sync::Arc;

use super::{FailingGate, NOW, rules};
use tidegate::gate::{Receipt, ReservationEnd, ReserveError};
use tidegate::rules::FrontEnd;
use tidegate::{Costs, Gate, ManualClock, MemoryStore, Micros};
use tidegate_testkit::{FailingStore, StoreState, block_on};

const RULES: &str = "
- {id: slots, per: [], limit: 2, algorithm: concurrency, lease_ttl: 1h, on_store_failure: local}
- {id: seen, per: [], limit: 9, algorithm: concurrency, lease_ttl: 1h, mode: shadow, on_store_failure: local}
- {id: back, per: [], unit: tokens, limit: 100/day, unsettled: give_back, on_store_failure: local}";

/// Gates in memory, over a store, and over one that is unreachable, on clocks that the test moves.
fn gates() -> Vec<(&'static str, Gate, ManualClock)> {
    let stores = [
        ("memory", None),
        ("store", Some(StoreState::Up)),
        ("no store", Some(StoreState::Unreachable)),
    ];
    let gates = stores.map(|(name, state)| {
        let clock = ManualClock::new(NOW);
        let memory = MemoryStore::builder().clock(clock.clone()).build();
        let gate = match state {
            None => Gate::with_clock(memory, rules(RULES), clock.clone()),
            Some(state) => {
                let store = FailingStore::over(Arc::new(memory));
                store.switch(state);
                FailingGate::with_clock(store, rules(RULES), clock.clone()).gate
            }
        };
        (name, gate, clock)
    });
    gates.into()
}

fn tokens(tokens: u64) -> Costs {
    Costs::by_unit([("tokens", tokens)]).unwrap()
}

fn try_reserve(gate: &Gate, estimate: u64) -> Result<Receipt, ReserveError> {
    let attributes = tidegate::Attributes::new().with_cost(tokens(estimate));
    block_on(gate.reserve_by(&gate.rules(), FrontEnd::Gateway, &attributes))
}

fn reserve(gate: &Gate, estimate: u64) -> Receipt {
    try_reserve(gate, estimate).unwrap()
}

/// What is left of each rule, at the time of the store.
fn now_left(gate: &Gate) -> Vec<u64> {
    let decision = block_on(gate.decide(&tidegate::Attributes::new().with_cost(0)));
    let limits = decision.limits();
    limits.map(|limit| limit.outcome.remaining).collect()
}

#[test]
fn a_permit_does_not_keep_a_reservation_from_being_given_back() {
    for (store, gate, clock) in gates() {
        let receipt = reserve(&gate, 60);
        let permit = receipt.decision().permit().unwrap();
        assert_eq!(now_left(&gate), [1, 8, 40], "{store}");
        drop(receipt);
        // Without a runtime the store does not hear of it.
        clock.advance(Micros::from_seconds(300));
        assert_eq!(now_left(&gate), [1, 8, 100], "{store}");
        assert_eq!(gate.reservations().open(), 0, "{store}");
        assert!(block_on(gate.release(permit)).unwrap(), "{store}");
        assert_eq!(now_left(&gate), [2, 9, 100], "{store}");
    }
}

#[test]
fn settling_leaves_the_permit_and_giving_back_releases_it() {
    for (store, gate, _) in gates() {
        let receipt = reserve(&gate, 60);
        let permit = receipt.decision().permit().unwrap();
        let settled = block_on(gate.settle(receipt, tokens(25))).unwrap();
        assert_eq!(settled.given_back(), tokens(35), "{store}");
        assert_eq!(now_left(&gate), [1, 8, 75], "{store}");
        assert!(block_on(gate.release(permit)).unwrap(), "{store}");
        assert_eq!(gate.reservations().ended(ReservationEnd::Settled), 1);

        block_on(gate.give_back(reserve(&gate, 60))).unwrap();
        assert_eq!(now_left(&gate), [2, 9, 75], "{store}");
        assert_eq!(gate.reservations().open(), 0, "{store}");
    }
}

#[test]
fn one_that_is_denied_takes_neither_a_permit_nor_units() {
    for (store, gate, _) in gates() {
        let first = reserve(&gate, 60);
        let denied = reserve(&gate, 60);
        assert_eq!(denied.decision().rule(), Some("back"), "{store}");
        assert_eq!(now_left(&gate), [1, 8, 40], "{store}");
        let slots = denied.decision().limits().next().unwrap();
        assert_eq!(slots.outcome.remaining, 1, "{store}");
        let second = reserve(&gate, 10);
        let denied = reserve(&gate, 10);
        assert_eq!(denied.decision().rule(), Some("slots"), "{store}");
        assert_eq!(now_left(&gate), [0, 7, 30], "{store}");
        for receipt in [first, second] {
            block_on(gate.give_back(receipt)).unwrap();
        }
        assert_eq!(now_left(&gate), [2, 9, 100], "{store}");
    }
}

#[test]
fn without_room_for_a_record_nothing_is_charged() {
    let store = MemoryStore::builder().max_reservations(1).build();
    let gate = Gate::new(store, rules(RULES));
    let receipt = reserve(&gate, 60);
    let refused = try_reserve(&gate, 10);
    assert!(matches!(refused, Err(ReserveError::TooMany)));
    assert_eq!(now_left(&gate), [1, 8, 40]);
    assert_eq!(gate.reservations().ended(ReservationEnd::Refused), 1);
    block_on(gate.give_back(receipt)).unwrap();
    assert!(try_reserve(&gate, 10).is_ok());
}
