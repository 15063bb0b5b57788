//! Limits that move: what a decision is made by, and what is learned from how requests end.

use super::{FailingGate, decide, gate, request, rules};
use tidegate::gate::Decision;
use tidegate::headers::HeaderSettings;
use tidegate::{Ended, Gate, Micros};
use tidegate_testkit::block_on;
use tidegate_testkit::{FailingStore, StoreState};

const RULE: &str = "- {id: up, per: [], algorithm: concurrency, limit: 12, adaptive: {min: 4, max: 60, target: 100ms}}";

/// Lets ten requests through, all at once, and ends them all in the same way.
fn ten(gate: &Gate, ended: Ended) {
    let decisions: Vec<Decision> = (0..10).map(|_| decide(gate, &request("z=1"))).collect();
    for decision in decisions {
        assert!(decision.is_allowed());
        decision.observe(ended);
        block_on(gate.release(decision.permit().unwrap())).unwrap();
    }
}

fn limit(gate: &Gate) -> u64 {
    gate.rules().get("up").unwrap().adaptive().unwrap().limit()
}

fn slow() -> Ended {
    Ended::Answered(Micros::from_millis(125))
}

fn fast() -> Ended {
    Ended::Answered(Micros::from_millis(10))
}

#[test]
fn a_decision_is_made_and_reported_by_its_current_limit() {
    let gate = gate(RULE);
    let before = decide(&gate, &request("z=1").with_cost(0));
    ten(&gate, fast());
    assert_eq!(limit(&gate), 15, "12 and its root");
    let after = decide(&gate, &request("z=1").with_cost(0));
    for (decision, count) in [(&before, 12), (&after, 15)] {
        let answer = decision.headline().unwrap();
        assert_eq!(
            (answer.outcome.limit, answer.outcome.remaining),
            (count, count)
        );
        assert_eq!(answer.limit.unwrap().rate().count, count);
        let headers: Vec<_> = decision.headers(&HeaderSettings::default()).collect();
        assert!(headers.contains(&("x-ratelimit-limit", count.to_string())));
    }
    let held: Vec<Decision> = (0..15).map(|_| decide(&gate, &request("z=1"))).collect();
    assert!(held.iter().all(Decision::is_allowed));
    assert!(decide(&gate, &request("z=1")).is_denied());
}

#[test]
fn holders_beyond_a_limit_that_has_fallen_keep_their_places() {
    let gate = gate(RULE);
    let held: Vec<Decision> = (0..10).map(|_| decide(&gate, &request("z=1"))).collect();
    for decision in &held {
        decision.observe(slow());
    }
    assert_eq!(limit(&gate), 9);
    assert!(
        decide(&gate, &request("z=1")).is_denied(),
        "10 of 9 are held"
    );
    for decision in &held[..2] {
        block_on(gate.release(decision.permit().unwrap())).unwrap();
    }
    assert!(
        decide(&gate, &request("z=1")).is_allowed(),
        "8 of 9 were held"
    );
}

#[test]
fn what_was_learned_stays_when_rules_are_replaced_and_the_bounds_stay() {
    let gate = gate(RULE);
    ten(&gate, Ended::Dropped);
    assert_eq!(limit(&gate), 10);
    gate.replace_rules(rules(&RULE.replace("id: up", "id: up, description: other")));
    assert_eq!(limit(&gate), 10);
    gate.replace_rules(rules(&RULE.replace("max: 60", "max: 61")));
    assert_eq!(limit(&gate), 12, "other bounds begin anew");
    gate.replace_rules(rules(
        "- {id: up, per: [], algorithm: concurrency, adaptive: {min: 30, max: 60}}",
    ));
    assert_eq!(
        limit(&gate),
        30,
        "20 where no limit is given, or the nearest bound"
    );
}

#[test]
fn no_limit_learns_from_requests_that_were_denied() {
    let gate = gate(&format!(
        "{RULE}\n- {{id: none, match: {{path: /x}}, per: [], limit: blocked}}"
    ));
    for _ in 0..100 {
        let denied = decide(&gate, &request("path=/x"));
        assert!(denied.is_denied());
        denied.observe(Ended::Dropped);
    }
    assert_eq!(limit(&gate), 12);
}

#[test]
fn exceptions_are_neither_charged_nor_learned_from() {
    let gate = gate(
        "- {id: up, per: [user], algorithm: concurrency, limit: 12, adaptive: {min: 4, max: 60}, overrides: {root: unlimited, bad: blocked}}",
    );
    for _ in 0..100 {
        decide(&gate, &request("user=root")).observe(Ended::Dropped);
        assert!(decide(&gate, &request("user=bad")).is_denied());
    }
    assert_eq!(limit(&gate), 12);
    assert!(!decide(&gate, &request("user=root")).is_observed());
    assert!(decide(&gate, &request("user=u")).is_observed());
}

#[test]
fn a_rule_that_only_counts_learns_too() {
    let gate = gate(&RULE.replace("id: up", "id: up, mode: shadow"));
    ten(&gate, fast());
    assert_eq!(limit(&gate), 15);
}

#[test]
fn without_the_store_the_share_is_that_of_the_limit_of_the_moment() {
    let gate = FailingGate::new(FailingStore::default(), rules(RULE)).with_instances(3);
    ten(&gate, fast());
    gate.store().switch(StoreState::Unreachable);
    let held: Vec<Decision> = (0..6).map(|_| decide(&gate, &request("z=1"))).collect();
    let allowed = held.iter().filter(|decision| decision.is_allowed()).count();
    assert_eq!(allowed, 5, "a third of 15");
    for decision in held.iter().filter(|decision| decision.is_allowed()) {
        for _ in 0..6 {
            decision.observe(fast());
        }
    }
    assert!(
        limit(&gate) > 15,
        "a share that is used up stands for the whole"
    );
}
