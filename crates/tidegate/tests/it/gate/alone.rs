//! Reservations that are made while the store is unavailable: kept by one instance, in its own counters.

use std::sync::Arc;
use std::time::Duration;

use super::{FailingGate, NOW, rules};
use tidegate::gate::{ReservationEnd, ReservationError, ReserveError, ReservedDecision};
use tidegate::rules::{BudgetKind, FrontEnd, ValueDigest};
use tidegate::{
    Attributes, Costs, Gate, ManualClock, MemoryStore, Micros, ReservationId, Timestamp,
};
use tidegate_testkit::{FailingStore, StoreState, block_on};

const LOCAL: &str = "- {id: local, per: [user], limit: 100/day, on_store_failure: local}";
const GIVE_BACK: &str =
    "- {id: local, per: [user], limit: 100/day, on_store_failure: local, unsettled: give_back}";

/// A gate whose store is unreachable, on a clock that the test moves.
fn clocked(list: &str) -> (FailingGate, ManualClock) {
    let clock = ManualClock::new(NOW);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let store = FailingStore::over(Arc::new(store));
    store.switch(StoreState::Unreachable);
    let gate = FailingGate::with_clock(store, rules(list), clock.clone());
    (gate, clock)
}

fn user() -> Attributes<'static> {
    let mut attributes = Attributes::new();
    attributes.insert("user", "u1").unwrap();
    attributes
}

fn try_reserve(gate: &Gate, at: Option<Timestamp>) -> Result<ReservedDecision, ReserveError> {
    let mut attributes = user().with_cost(60);
    if let Some(at) = at {
        attributes = attributes.at(at);
    }
    let ttl = Duration::from_secs(1);
    block_on(gate.reserve_stored(&gate.rules(), FrontEnd::Http, &attributes, ttl))
}

/// Reserves 60 for a second.
fn made(gate: &Gate) -> ReservationId {
    try_reserve(gate, None).unwrap().made.unwrap().id
}

fn left(gate: &Gate) -> u64 {
    let decision = block_on(gate.decide(&user().with_cost(0)));
    decision.headline().unwrap().outcome.remaining
}

fn is_unknown<T>(answer: &Result<T, ReservationError>) -> bool {
    matches!(answer, Err(ReservationError::Unknown))
}

#[test]
fn one_that_was_made_without_the_store_is_kept_by_this_instance() {
    let gate = FailingGate::new(FailingStore::unreachable(), rules(LOCAL));
    let reserve = || try_reserve(&gate, None).unwrap();
    let reserved = reserve();
    assert!(reserved.decision.is_allowed() && reserved.decision.is_degraded());
    let id = reserved.made.unwrap().id;
    assert!(reserve().decision.is_denied());
    let settled = block_on(gate.settle_reservation(id, Some(&Costs::from(25)), None)).unwrap();
    assert!(settled.is_degraded);
    assert_eq!(settled.settlement.limits()[0].given_back, 35);
    assert!(reserve().decision.is_allowed());
    let stored =
        block_on(gate.settle_reservation(ReservationId::random(), Some(&Costs::from(1)), None));
    assert!(matches!(stored, Err(ReservationError::Store(_))));
    gate.store().switch(StoreState::Up);
    let again = block_on(gate.settle_reservation(id, Some(&Costs::from(25)), None)).unwrap();
    assert_eq!(again, settled);
}

#[test]
fn what_was_really_charged_and_given_back_is_reported_and_counted() {
    let (gate, _) = clocked(LOCAL);
    let (id, actual) = (made(&gate), Costs::from(300));
    let settled = block_on(gate.settle_reservation(id, Some(&actual), None)).unwrap();
    let settled = settled.settlement;
    assert_eq!(settled.overrun(), Costs::from(240));
    let limit = &settled.limits()[0];
    assert_eq!((limit.overrun, limit.uncharged), (40, 200));
    assert_eq!(left(&gate), 0);
    let rules = gate.rules();
    let counts = rules.get("local").unwrap().counts();
    assert_eq!(counts.budget(BudgetKind::Overrun), 40);
    assert_eq!(counts.budget(BudgetKind::Uncharged), 200);

    let windows = LOCAL.replace("100/day", "100/second, algorithm: fixed_window");
    let (gate, clock) = clocked(&windows);
    let id = made(&gate);
    block_on(gate.extend_reservation(id, Duration::from_mins(1), None)).unwrap();
    clock.advance(Micros::SECOND);
    let settled = block_on(gate.settle_reservation(id, Some(&Costs::from(25)), None)).unwrap();
    assert_eq!(settled.settlement.given_back(), Costs::from(35));
    let given_back = settled.settlement.limits()[0].given_back;
    assert_eq!(given_back, 0, "its window is over");
}

#[test]
fn what_was_not_settled_is_given_back_when_it_expires() {
    let (gate, clock) = clocked(GIVE_BACK);
    let id = made(&gate);
    assert_eq!((left(&gate), gate.reservations().open()), (40, 1));
    clock.advance(Micros::SECOND);
    assert_eq!(left(&gate), 100);
    assert_eq!(gate.reservations().open(), 0);
    assert_eq!(gate.reservations().ended(ReservationEnd::Expired), 1);
    // The store is not asked about it.
    assert!(is_unknown(&block_on(gate.look_at_reservation(id))));
    assert!(is_unknown(&block_on(
        gate.settle_reservation(id, None, None)
    )));
    let extended = gate.extend_reservation(id, Duration::from_mins(1), None);
    assert!(is_unknown(&block_on(extended)));
    // Nothing is charged to the store either.
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    assert_eq!(gate.store().settled(), []);

    let (gate, clock) = clocked(GIVE_BACK);
    let id = made(&gate);
    clock.advance(Micros::SECOND);
    assert!(is_unknown(&block_on(gate.look_at_reservation(id))));
    assert_eq!(left(&gate), 100);
}

#[test]
fn times_that_are_supplied_decide_when_it_ends() {
    let (gate, clock) = clocked(GIVE_BACK);
    let at = |second| Some(NOW + Micros::from_seconds(second));
    let id = try_reserve(&gate, at(0)).unwrap().made.unwrap().id;
    clock.advance(Micros::MINUTE);
    assert!(!block_on(gate.look_at_reservation(id)).unwrap().is_settled);
    assert!(try_reserve(&gate, at(0)).unwrap().decision.is_denied());
    assert!(try_reserve(&gate, at(1)).unwrap().decision.is_allowed());
    assert!(is_unknown(&block_on(gate.look_at_reservation(id))));
}

#[test]
fn every_answer_says_that_one_instance_alone_knows_it() {
    let (gate, _) = clocked(LOCAL);
    let gate = gate.gate.with_digest(Arc::new(ValueDigest::new(b"secret")));
    let id = made(&gate);
    let extended = block_on(gate.extend_reservation(id, Duration::from_mins(1), None)).unwrap();
    assert!(extended.is_degraded);
    assert_eq!(extended.expires_at, NOW + Micros::MINUTE);
    let open = block_on(gate.look_at_reservation(id)).unwrap();
    assert!(open.is_degraded);
    let key = &open.settlement.limits()[0].key;
    assert_eq!(key[0].0, "user");
    assert_ne!(key[0].1, "u1");
    let settled = block_on(gate.settle_reservation(id, None, None)).unwrap();
    assert_eq!(&settled.settlement.limits()[0].key, key);
}

#[test]
fn too_many_are_refused_and_nothing_is_charged() {
    let (gate, clock) = clocked(GIVE_BACK);
    let gate = gate
        .gate
        .with_local_counters(MemoryStore::builder().max_reservations(1));
    let id = made(&gate);
    let refused = || matches!(try_reserve(&gate, None), Err(ReserveError::TooMany));
    assert!(refused());
    assert_eq!(left(&gate), 40);
    assert_eq!(gate.reservations().ended(ReservationEnd::Refused), 1);
    block_on(gate.settle_reservation(id, None, None)).unwrap();
    made(&gate);
    assert!(refused());
    clock.advance(Micros::SECOND);
    made(&gate);
}
