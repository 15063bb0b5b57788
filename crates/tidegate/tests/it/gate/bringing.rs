//! Limits that a caller brings: charged like those of rules, with the store and without it.

use tidegate::rules::OnStoreFailure;
use tidegate::{Gate, Limit, Micros};
use tidegate_core::{Charge, Scope};
use tidegate_testkit::block_on;

use super::rules;
use tidegate_testkit::{FailingStore, StoreState};

fn gate() -> Gate<FailingStore> {
    let list = "- {id: r, per: [user_id], limit: 10/minute}";
    Gate::new(FailingStore::default(), rules(list)).with_instances(2)
}

fn charge(
    gate: &Gate<FailingStore>,
    limit: &Limit,
    choice: OnStoreFailure,
) -> (bool, u64, bool, bool) {
    let scope = Scope::new("cl.throttle");
    let charge = Charge {
        scope: &scope,
        limit,
        key: "k",
        cost: 1,
    };
    let charged = block_on(gate.charge(&charge, choice).wait());
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
