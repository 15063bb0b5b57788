//! A store that cannot answer: each rule says what happens.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{FailingGate, NOW, decide, left, request, rules};
use tidegate::rules::{FrontEnd, Verdict};
use tidegate::{Attributes, ManualClock, MemoryStore, Micros, PermitId, Retry, StoreError};
use tidegate_testkit::block_on;
use tidegate_testkit::{FailingStore, StoreState};

const ALLOW: &str = "- {id: allow, per: [], limit: 5/minute, on_store_failure: allow}\n";
const DENY: &str = "- {id: deny, per: [], limit: 5/minute, on_store_failure: deny}\n";
const LOCAL: &str = "- {id: local, per: [], limit: 2/minute}\n";
const BLOCKED: &str = "- {id: blocked, per: [], limit: blocked}\n";

fn gate(list: &str) -> FailingGate {
    FailingGate::new(FailingStore::default(), rules(list))
}

fn switch(gate: &FailingGate, is_off: bool) {
    gate.store().switch(if is_off {
        StoreState::Unreachable
    } else {
        StoreState::Up
    });
}

#[test]
fn each_rule_says_what_happens_while_the_store_fails() {
    #[rustfmt::skip]
    let table = [
        // rules                            allowed of three    headline    failed at the end
        (vec![ALLOW],                       [true, true, true],     "allow",    false),
        (vec![DENY],                        [false, false, false],  "deny",     true),
        (vec![LOCAL],                       [true, true, false],    "local",    false),
        (vec![ALLOW, LOCAL],                [true, true, false],    "local",    false),
        (vec![LOCAL, DENY],                 [false, false, false],  "deny",     true),
        (vec![ALLOW, DENY],                 [false, false, false],  "deny",     true),
        (vec![BLOCKED, DENY],               [false, false, false],  "blocked",  false),
        (vec![LOCAL, BLOCKED],              [false, false, false],  "blocked",  false),
    ];
    for (list, expected, headline, is_failed) in table {
        let list = list.concat();
        let gate = gate(&list);
        switch(&gate, true);
        let decisions = expected.map(|_| decide(&gate, &request("z=1")));
        assert_eq!(
            decisions
                .each_ref()
                .map(tidegate::gate::Decision::is_allowed),
            expected,
            "{list}"
        );
        let third = &decisions[2];
        assert!(third.is_degraded(), "{list}");
        assert_eq!(
            (third.rule(), third.is_failed()),
            (Some(headline), is_failed),
            "{list}"
        );
        switch(&gate, false);
        let admitted = expected.iter().filter(|allowed| **allowed).count() as u64;
        let asked = decide(&gate, &request("z=1").with_cost(0));
        for answer in asked
            .limits()
            .filter(|answer| answer.rule.id() != "blocked")
        {
            let settled = if answer.rule.id() == "local" {
                admitted
            } else {
                0
            };
            let outcome = answer.outcome;
            assert_eq!(outcome.limit - outcome.remaining, settled, "{list}");
            assert!(!answer.is_degraded);
        }
    }
}

#[test]
fn a_request_that_is_denied_charges_no_counter_of_this_instance() {
    let gate = gate(&[LOCAL, DENY].concat());
    switch(&gate, true);
    for _ in 0..3 {
        let decision = decide(&gate, &request("z=1"));
        let local = decision.limits().next().unwrap().outcome.remaining;
        assert_eq!(local, 2);
        let retry = decision.headline().unwrap().outcome.retry;
        assert_eq!(retry, Retry::After(tidegate::Micros::SECOND));
    }
}

#[test]
fn what_was_done_is_counted_for_each_rule_that_needed_the_store() {
    let gate = gate(&[ALLOW, DENY, LOCAL, BLOCKED].concat());
    switch(&gate, true);
    decide(&gate, &request("z=1"));
    let counted = |id: &str| gate.rules().get(id).unwrap().counts().degraded();
    assert_eq!(counted("allow"), [1, 0, 0, 0]);
    assert_eq!(counted("deny"), [0, 1, 0, 0]);
    assert_eq!(counted("local"), [0, 0, 1, 0]);
    assert_eq!(counted("blocked"), [0, 0, 0, 0], "it knows without asking");
    switch(&gate, false);
    decide(&gate, &request("z=1"));
    assert_eq!(counted("allow"), [1, 0, 0, 0]);
}

#[test]
fn a_shadow_rule_says_what_it_would_have_done_without_the_store() {
    let gate = gate(
        "- {id: allow, mode: shadow, per: [], limit: 5/minute, on_store_failure: allow}
- {id: deny, mode: shadow, per: [], limit: 5/minute, on_store_failure: deny}
- {id: local, mode: shadow, per: [], limit: 2/minute; 9/hour}
- {id: open, per: [], limit: 100/minute}",
    );
    switch(&gate, true);
    for _ in 0..3 {
        let decision = decide(&gate, &request("z=1"));
        assert!(decision.is_allowed());
        assert_eq!(decision.rule(), Some("open"));
        assert!(decision.limits().all(|answer| answer.is_degraded));
        decision.count(FrontEnd::Library);
    }
    let counted = |id: &str, verdict| {
        gate.rules()
            .get(id)
            .unwrap()
            .counts()
            .decisions(FrontEnd::Library, verdict)
    };
    assert_eq!(counted("allow", Verdict::ShadowAllowed), 3);
    assert_eq!(counted("deny", Verdict::ShadowDenied), 3);
    assert_eq!(counted("local", Verdict::ShadowAllowed), 2);
    assert_eq!(counted("local", Verdict::ShadowDenied), 1);
    assert_eq!(left(&gate, "z=1"), [5, 0, 0, 7, 97]);
}

#[test]
fn a_permit_of_this_instance_ends_here() {
    let gate = gate("- {id: r, per: [], limit: 1, algorithm: concurrency}");
    switch(&gate, true);
    let permit = decide(&gate, &request("z=1")).permit().unwrap();
    assert!(decide(&gate, &request("z=1")).is_denied());
    assert!(block_on(gate.renew(permit)).unwrap(), "without the store");
    switch(&gate, false);
    assert!(block_on(gate.renew(permit)).unwrap(), "and next to it");
    switch(&gate, true);
    assert!(block_on(gate.release(permit)).unwrap(), "without the store");
    assert!(decide(&gate, &request("z=1").at(NOW)).is_allowed());
    for asked in [
        block_on(gate.release(permit)),
        block_on(gate.renew(PermitId::random())),
    ] {
        assert!(
            matches!(asked, Err(StoreError::Unreachable(_))),
            "who cannot ask does not know"
        );
    }
    switch(&gate, false);
    assert!(!block_on(gate.release(permit)).unwrap());
}

#[test]
fn a_permit_of_the_store_is_not_released_without_it() {
    let gate = gate("- {id: r, per: [], limit: 1, algorithm: concurrency}");
    let permit = decide(&gate, &request("z=1")).permit().unwrap();
    switch(&gate, true);
    assert!(block_on(gate.release(permit)).is_err());
    assert!(block_on(gate.renew(permit)).is_err());
    switch(&gate, false);
    assert!(block_on(gate.release(permit)).unwrap());
}

#[test]
fn a_permit_that_the_store_took_in_silence_is_released_there_too() {
    let gate = gate("- {id: r, per: [], limit: 1, algorithm: concurrency}");
    gate.store().switch(StoreState::Silent);
    let decision = decide(&gate, &request("z=1"));
    assert!(decision.is_degraded());
    switch(&gate, false);
    assert!(decide(&gate, &request("z=1")).is_denied());
    assert!(block_on(gate.release(decision.permit().unwrap())).unwrap());
    assert!(decide(&gate, &request("z=1")).is_allowed());
}

#[test]
fn the_store_names_permits_and_hears_of_other_rules() {
    let gate = gate(
        "- {id: a, per: [], limit: 9/minute}
- {id: b, per: [], limit: 1, algorithm: concurrency}
- {id: c, mode: shadow, per: [], limit: 1, algorithm: concurrency}",
    );
    decide(&gate, &request("z=1").with_cost(0));
    assert!(gate.store().permits_named.lock().unwrap().is_empty());
    decide(&gate, &request("z=1"));
    assert_eq!(*gate.store().permits_named.lock().unwrap(), [2]);
    gate.replace_rules(rules(LOCAL));
    decide(&gate, &request("z=1"));
    let changed = &gate.store().rules_changed;
    assert_eq!(changed.load(Ordering::Relaxed), 1);
    assert_eq!(*gate.store().permits_named.lock().unwrap(), [2]);
}

#[test]
fn a_permit_that_the_store_took_in_silence_is_renewed_there_too() {
    let clock = ManualClock::new(NOW);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let list = "- {id: r, per: [], limit: 1, algorithm: concurrency, lease_ttl: 60s}";
    let store = FailingStore::over(Arc::new(store));
    let gate = FailingGate::with_clock(store, rules(list), clock.clone());
    gate.store().switch(StoreState::Silent);
    let permit = decide(&gate, &Attributes::new()).permit().unwrap();
    switch(&gate, false);
    clock.advance(Micros::SECOND.times(40));
    assert!(block_on(gate.renew(permit)).unwrap());
    clock.advance(Micros::SECOND.times(40));
    let decision = decide(&gate, &Attributes::new());
    assert!(!decision.is_degraded());
    assert!(decision.is_denied(), "the store holds it for 60 s more");
}

#[test]
fn a_permit_that_is_not_held_here_is_not_renewed_while_the_store_is_down() {
    let gate = gate("- {id: r, per: [], limit: 1, algorithm: concurrency}");
    switch(&gate, true);
    gate.store().is_down.store(true, Ordering::Relaxed);
    for ended in [
        block_on(gate.renew(PermitId::random())),
        block_on(gate.release(PermitId::random())),
    ] {
        assert!(matches!(ended, Err(StoreError::Unreachable(_))));
    }
}

#[test]
fn a_permit_is_held_unless_a_rule_allows_requests_without_counting_them() {
    for (on_store_failure, is_held_without) in [("allow", false), ("local", true)] {
        let gate = gate(&format!(
            "- {{id: r, per: [], limit: 9, algorithm: concurrency, on_store_failure: {on_store_failure}}}"
        ));
        let permit = || decide(&gate, &request("z=1")).permit();
        assert!(permit().is_some(), "{on_store_failure}");
        switch(&gate, true);
        assert_eq!(permit().is_some(), is_held_without, "{on_store_failure}");
    }
}
