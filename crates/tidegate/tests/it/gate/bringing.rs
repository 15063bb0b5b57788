//! Limits that a caller brings: charged like those of rules, with the store and without it.

use tidegate::gate::StoreIsRemote;
use tidegate::rules::OnStoreFailure;
use tidegate::{Gate, Limit, MemoryStore, Micros};
use tidegate_core::{Charge, Scope};
use tidegate_testkit::block_on;

use super::{FailingGate, request, rules};
use tidegate_testkit::{FailingStore, StoreState};

fn gate() -> FailingGate {
    let list = "- {id: r, per: [user_id], limit: 10/minute}";
    FailingGate::new(FailingStore::default(), rules(list)).with_instances(2)
}

fn charge(gate: &FailingGate, limit: &Limit, choice: OnStoreFailure) -> (bool, u64, bool, bool) {
    let scope = Scope::new("cl.throttle");
    let charge = Charge {
        scope: &scope,
        limit,
        key: "k",
        cost: 1,
    };
    let charged = block_on(gate.charge(&charge, choice));
    let outcome = charged.outcome;
    let (is_degraded, is_failed) = (charged.is_degraded(), charged.is_failed());
    (outcome.allowed, outcome.remaining, is_degraded, is_failed)
}

#[test]
fn without_the_store_it_is_done_as_the_caller_says() {
    let limit = Limit::portable_bucket(1, Micros::DAY, 4).unwrap();
    let gate = gate();
    let ask = |choice| charge(&gate, &limit, choice);
    assert_eq!(ask(OnStoreFailure::Deny), (true, 3, false, false));
    gate.store().switch(StoreState::Unreachable);
    assert_eq!(ask(OnStoreFailure::Deny), (false, 0, true, true));
    assert_eq!(ask(OnStoreFailure::Allow), (true, 4, true, false));
    // The share of one of two is two.
    assert_eq!(ask(OnStoreFailure::Local), (true, 1, true, false));
    assert_eq!(ask(OnStoreFailure::Local), (true, 0, true, false));
    assert_eq!(ask(OnStoreFailure::Local), (false, 0, true, false));

    // What was admitted is settled before the store decides again, whatever the numbers are now.
    gate.store().switch(StoreState::Up);
    let other = Limit::portable_bucket(1, Micros::HOUR, 5).unwrap();
    assert_eq!(
        charge(&gate, &other, OnStoreFailure::Deny),
        (true, 1, false, false)
    );
    assert_eq!(gate.store().settled(), [("k".to_owned(), 2)]);
}

#[test]
fn only_a_store_in_memory_decides_without_waiting() {
    let list = "- {id: r, per: [], limit: 10/minute}";
    let in_memory = Gate::new(MemoryStore::new(), rules(list));
    let elsewhere = gate();
    let asked = request("z=1");
    assert!(in_memory.try_decide(&asked).unwrap().is_allowed());
    assert_eq!(elsewhere.try_decide(&asked).unwrap_err(), StoreIsRemote);

    let (scope, limit) = (Scope::new("own"), "1/minute".parse::<Limit>().unwrap());
    let charge = Charge {
        scope: &scope,
        limit: &limit,
        key: "k",
        cost: 1,
    };
    assert!(in_memory.try_charge(&charge).unwrap().outcome.allowed);
    assert!(!in_memory.try_charge(&charge).unwrap().outcome.allowed);
    assert_eq!(elsewhere.try_charge(&charge).unwrap_err(), StoreIsRemote);
    let sent = block_on(elsewhere.charge(&charge, OnStoreFailure::Deny));
    assert!(sent.outcome.allowed, "nothing was sent before");
}
