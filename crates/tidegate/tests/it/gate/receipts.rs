//! What was charged, given back or settled when the request is done.

use super::{FailingGate, NOW, decide_with_receipt, gate, left, request, rules};
use std::time::Duration;

use tidegate::gate::Part;
use tidegate::rules::FrontEnd;
use tidegate::{Gate, Micros};
use tidegate_testkit::block_on;
use tidegate_testkit::{FailingStore, StoreState};

/// Every way to count requests.
const COUNTING: [&str; 6] = [
    "fixed_window",
    "sliding_window_log",
    "sliding_window_counter",
    "sliding_window_slots",
    "token_bucket",
    "leaky_bucket, shape: false",
];

fn by(algorithm: &str) -> String {
    format!("- {{id: r, per: [user_id], limit: 100/hour, algorithm: {algorithm}}}")
}

fn give_back(gate: &Gate, text: &str, cost: u64) {
    let receipt = decide_with_receipt(gate, &request(text).with_cost(cost));
    block_on(gate.give_back(receipt)).unwrap();
}

fn settle(gate: &Gate, text: &str, cost: u64, real: u64) {
    let receipt = decide_with_receipt(gate, &request(text).with_cost(cost));
    block_on(gate.settle(receipt, real)).unwrap();
}

#[test]
fn what_is_given_back_was_never_taken() {
    for algorithm in COUNTING {
        let gate = gate(&by(algorithm));
        super::decide(&gate, &request("user_id=u").with_cost(5));
        give_back(&gate, "user_id=u", 7);
        assert_eq!(left(&gate, "user_id=u"), [95], "{algorithm}");
    }
}

#[test]
fn what_is_settled_replaces_the_cost() {
    #[rustfmt::skip]
    let table = [
        // charged  real    left
        (1,         1,      99),
        (1,         30,     70),
        (30,        1,      99),
        (30,        0,      100),
        (0,         12,     88),
        (1,         1_000,  0),
        (1,         u64::MAX, 0),
    ];
    for algorithm in COUNTING {
        for (charged, real, remaining) in table {
            let gate = gate(&by(algorithm));
            settle(&gate, "user_id=u", charged, real);
            let name = format!("{algorithm}: {charged} became {real}");
            assert_eq!(left(&gate, "user_id=u"), [remaining], "{name}");
        }
    }
}

/// What others were charged since the reset stays charged.
#[test]
fn nothing_is_given_back_or_settled_for_less_after_a_reset() {
    let delayed = "- {id: r, per: [user_id], limit: 60/hour, max_delay: 1h}".to_owned();
    let by =
        |algorithm| format!("- {{id: r, per: [user_id], limit: 60/hour, algorithm: {algorithm}}}");
    let lists = COUNTING.map(by).into_iter().chain([delayed]);
    for list in lists {
        let gate = gate(&list);
        if list.contains("max_delay") {
            super::decide(&gate, &request("user_id=u").with_cost(60));
        }
        let receipts =
            [10, 10].map(|cost| decide_with_receipt(&gate, &request("user_id=u").with_cost(cost)));
        block_on(gate.reset(&request("user_id=u"), None)).unwrap();
        let others = request("user_id=u").at(NOW + Micros::SECOND).with_cost(50);
        assert!(super::decide(&gate, &others).is_allowed(), "{list}");
        let [given_back, settled] = receipts;
        block_on(gate.give_back(given_back)).unwrap();
        block_on(gate.settle(settled, 1)).unwrap();
        assert_eq!(left(&gate, "user_id=u"), [10], "{list}");
    }
}

/// Nor from what the store is to hear of what was admitted without it.
#[test]
fn what_was_admitted_without_the_store_is_not_given_back_after_a_reset() {
    let store = FailingStore::default();
    let gate = FailingGate::new(store, rules("- {id: r, per: [user_id], limit: 60/hour}"));
    gate.store().switch(StoreState::Unreachable);
    let receipt = decide_with_receipt(&gate, &request("user_id=u").with_cost(10));
    gate.store().switch(StoreState::Up);
    block_on(gate.reset(&request("user_id=u"), None)).unwrap();
    gate.store().switch(StoreState::Unreachable);
    let others = request("user_id=u").at(NOW + Micros::SECOND).with_cost(50);
    assert!(super::decide(&gate, &others).is_allowed());
    block_on(gate.give_back(receipt)).unwrap();
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    assert_eq!(left(&gate, "user_id=u"), [10]);
}

#[test]
fn a_rule_multiplies_what_is_settled() {
    let gate = gate(
        "
- {id: three, per: [], limit: 100/hour, cost: 3}
- {id: bytes, per: [], limit: 1000/hour, cost: {attribute: bytes}}
- {id: shadow, per: [], limit: 10/hour, mode: shadow}",
    );
    settle(&gate, "bytes=10", 2, 5);
    assert_eq!(left(&gate, ""), [85, 950, 5]);
}

#[test]
fn of_a_denied_request_only_shadows_are_given_back() {
    let gate = gate(
        "
- {id: small, per: [], limit: 1/hour}
- {id: shadow, per: [], limit: 10/hour, mode: shadow}",
    );
    give_back(&gate, "", 2);
    assert_eq!(left(&gate, ""), [1, 10]);
    super::decide(&gate, &request("").with_cost(2));
    settle(&gate, "", 2, 5);
    assert_eq!(left(&gate, ""), [1, 3]);
}

#[test]
fn a_permit_is_given_back_and_not_settled() {
    let gate = gate(
        "
- {id: places, per: [], limit: 3, algorithm: concurrency, lease_ttl: 20s}
- {id: others, per: [], limit: 5, algorithm: concurrency, lease_ttl: 10s, mode: shadow}",
    );
    let receipt = decide_with_receipt(&gate, &request(""));
    assert_eq!(
        receipt.decision().permit_ttl(),
        Some(Duration::from_secs(10))
    );
    assert_eq!(left(&gate, ""), [2, 4]);
    block_on(gate.give_back(receipt)).unwrap();
    assert_eq!(left(&gate, ""), [3, 5]);
    settle(&gate, "", 1, 2);
    assert_eq!(left(&gate, ""), [2, 4]);
}

#[test]
fn what_was_taken_without_the_store_is_given_back_without_it() {
    let gate = FailingGate::new(FailingStore::default(), rules(&by("fixed_window")));
    gate.store().switch(StoreState::Unreachable);
    super::decide(&gate, &request("user_id=u").with_cost(5));
    give_back(&gate, "user_id=u", 7);
    assert_eq!(left(&gate, "user_id=u"), [95]);
    give_back(&gate, "user_id=v", 7);
    settle(&gate, "user_id=w", 4, 3);
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    for (user, remaining) in [("u", 95), ("v", 100), ("w", 97)] {
        assert_eq!(
            left(&gate, &format!("user_id={user}")),
            [remaining],
            "{user}"
        );
    }
}

#[test]
fn what_is_settled_without_the_store_reaches_it_later() {
    let gate = FailingGate::new(FailingStore::default(), rules(&by("fixed_window")));
    let attributes = request("user_id=u").at(NOW);
    let receipt = decide_with_receipt(&gate, &attributes);
    gate.store().switch(StoreState::Unreachable);
    assert!(block_on(gate.settle(receipt, 40)).is_err());
    assert_eq!(gate.unreconciled().waiting, 1);
    gate.store().switch(StoreState::Up);
    block_on(gate.reconcile());
    assert_eq!(left(&gate, "user_id=u"), [60]);
}

#[test]
fn each_part_of_a_request_is_given_back_once_and_only_if_it_was_charged() {
    let gate = gate(&by("fixed_window"));
    let users = ["user_id=a", "user_id=b", "user_id=c"];
    for user in users {
        super::decide(&gate, &request(user).with_cost(5));
    }
    let parts = [1, 2, 0].into_iter().zip(users);
    let parts: Vec<Part<'_>> = parts
        .map(|(cost, user)| Part::new(request(user).with_cost(cost)))
        .collect();
    let rules = gate.rules();
    let receipt = block_on(gate.decide_by(&rules, FrontEnd::Grpc, &parts[..]));
    assert_eq!(users.map(|user| left(&gate, user)[0]), [94, 93, 95]);
    block_on(gate.give_back(receipt)).unwrap();
    assert_eq!(users.map(|user| left(&gate, user)[0]), [95, 95, 95]);
}
