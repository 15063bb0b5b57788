//! A store that cannot answer: each rule says what happens.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{NOW, decide, left, request, rules};
use tidegate::rules::{FrontEnd, Verdict};
use tidegate::{Gate, LeaseId, Limit, MemoryStore, Outcome, Retry, Store, StoreError};
use tidegate_core::{Outcomes, Request, Scope};
use tidegate_testkit::block_on;

/// A store that can be switched off.
#[derive(Default)]
struct Switched {
    store: MemoryStore,
    is_off: AtomicBool,
}

impl Switched {
    fn ask<T>(&self, answer: impl FnOnce(&MemoryStore) -> T) -> Result<T, StoreError> {
        if self.is_off.load(Ordering::Relaxed) {
            return Err(StoreError::Unreachable("switched off".into()));
        }
        Ok(answer(&self.store))
    }
}

impl Store for Switched {
    async fn charge(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        self.ask(|store| store.charge(request))
    }

    async fn peek(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        self.ask(|store| store.peek(request))
    }

    async fn give_back(
        &self,
        request: &Request<'_>,
        outcomes: &[Outcome],
    ) -> Result<(), StoreError> {
        self.ask(|store| store.give_back(request, outcomes))
    }

    async fn settle(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        self.ask(|store| store.settle(request))
    }

    async fn forget(&self, scope: &Scope, limit: &Limit, key: &str) -> Result<(), StoreError> {
        self.ask(|store| store.forget(scope, limit, key))
    }

    async fn release(&self, lease: LeaseId) -> Result<bool, StoreError> {
        self.ask(|store| store.release(lease))
    }

    async fn renew(&self, lease: LeaseId) -> Result<bool, StoreError> {
        self.ask(|store| store.renew(lease))
    }
}

const ALLOW: &str = "- {id: allow, per: [], limit: 5/minute, on_store_failure: allow}\n";
const DENY: &str = "- {id: deny, per: [], limit: 5/minute, on_store_failure: deny}\n";
const LOCAL: &str = "- {id: local, per: [], limit: 2/minute}\n";
const BLOCKED: &str = "- {id: blocked, per: [], limit: blocked}\n";

fn gate(list: &str) -> Gate<Switched> {
    Gate::new(Switched::default(), rules(list))
}

fn switch(gate: &Gate<Switched>, is_off: bool) {
    gate.store().is_off.store(is_off, Ordering::Relaxed);
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
        for (answer, full) in decide(&gate, &request("z=1").with_cost(0))
            .answers()
            .zip([5, 5])
        {
            let is_blocked = answer.rule.id() == "blocked";
            assert!(
                is_blocked || answer.outcome.remaining == full.min(answer.outcome.limit),
                "{list}: the store was not charged"
            );
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
        let local = decision.answers().next().unwrap().outcome.remaining;
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
    assert_eq!(counted("allow"), [1, 0, 0]);
    assert_eq!(counted("deny"), [0, 1, 0]);
    assert_eq!(counted("local"), [0, 0, 1]);
    assert_eq!(counted("blocked"), [0, 0, 0], "it knows without asking");
    switch(&gate, false);
    decide(&gate, &request("z=1"));
    assert_eq!(counted("allow"), [1, 0, 0]);
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
        assert!(decision.answers().all(|answer| answer.is_degraded));
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
fn a_lease_of_this_instance_is_released_here() {
    let gate = gate("- {id: r, per: [], limit: 1, algorithm: concurrency}");
    switch(&gate, true);
    let lease = decide(&gate, &request("z=1")).lease().unwrap();
    assert!(decide(&gate, &request("z=1")).is_denied());
    switch(&gate, false);
    assert!(block_on(gate.release(lease)).unwrap());
    switch(&gate, true);
    assert!(decide(&gate, &request("z=1").at(NOW)).is_allowed());
    let unknown = LeaseId::random();
    assert!(
        block_on(gate.release(unknown)).is_err(),
        "who cannot ask does not know"
    );
}
