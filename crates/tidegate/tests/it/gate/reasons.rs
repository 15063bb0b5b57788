//! Why a request is denied: as each limit says, and as the rule that decided says.

use tidegate::rules::{FrontEnd, Verdict};
use tidegate::{Gate, MemoryStore, Micros, Reason};

use super::{FailingGate, NOW, decide, gate, request, rules};
use tidegate_testkit::{FailingStore, StoreState};

/// The reasons of all limits, and what is missing, in the order of the rules.
fn reasons(decision: &tidegate::gate::Decision) -> Vec<(Option<Reason>, Vec<&str>)> {
    let answers = decision.limits();
    answers
        .map(|answer| (answer.reason, answer.missing().collect()))
        .collect()
}

#[test]
fn each_reason_by_hand() {
    #[rustfmt::skip]
    let table = [
        // rule                                                                     request     reason                          missing
        ("per: [], limit: 5/minute",                                                "a=b",      None,                           vec![]),
        ("per: [], limit: blocked",                                                 "a=b",      Some(Reason::Blocked),          vec![]),
        ("per: [u], limit: 5/minute, overrides: {x: blocked}",                      "u=x",      Some(Reason::Blocked),          vec![]),
        ("per: [u], limit: 5/minute, tiers: {t: blocked}",                          "u=x tier=t", Some(Reason::Blocked),        vec![]),
        ("per: [u], missing: deny, limit: 5/minute",                                "a=b",      Some(Reason::MissingAttribute), vec!["u"]),
        ("per: [u, ip, w], missing: deny, limit: 5/minute",                         "ip=1.1.1.1", Some(Reason::MissingAttribute), vec!["u", "w"]),
        ("per: [u], missing: deny, limit: unlimited",                               "a=b",      Some(Reason::MissingAttribute), vec!["u"]),
        // Who is blocked would not be let in with the attribute either.
        ("per: [u], missing: deny, limit: blocked",                                 "a=b",      Some(Reason::Blocked),          vec![]),
        ("per: [], limit: 5/minute, cost: 6",                                       "a=b",      Some(Reason::TooExpensive),     vec![]),
        ("per: [], limit: 5, algorithm: concurrency, cost: 6",                      "a=b",      Some(Reason::TooExpensive),     vec![]),
        ("per: [], limit: 5/minute, cost: {attribute: bytes}",                      "bytes=7",  Some(Reason::TooExpensive),     vec![]),
    ];
    for (rule, text, reason, missing) in table {
        let gate = gate(&format!("- {{id: r, {rule}}}"));
        let decision = decide(&gate, &request(text));
        assert_eq!(decision.reason(), reason, "{rule}");
        assert_eq!(reasons(&decision), [(reason, missing)], "{rule}");
        decision.count(FrontEnd::Http);
        let rules = gate.rules();
        let counts = rules.get("r").unwrap().counts();
        for known in Reason::ALL {
            assert_eq!(
                counts.denied(known),
                u64::from(Some(known) == reason),
                "{rule}"
            );
        }
        if let Some(reason) = reason {
            assert!(rules.get("r").unwrap().can_deny_for(reason), "{rule}");
        }
    }
}

#[test]
fn a_limit_that_is_used_up_is_over_the_limit_with_every_algorithm() {
    for algorithm in [
        "token_bucket",
        "leaky_bucket",
        "fixed_window",
        "sliding_window_log",
        "sliding_window_counter",
        "sliding_window_slots",
        "concurrency",
    ] {
        let limit = match algorithm {
            "concurrency" => "2",
            _ => "2/minute",
        };
        let gate = gate(&format!(
            "- {{id: r, per: [], limit: {limit}, algorithm: {algorithm}}}"
        ));
        let reasons = [(); 3].map(|()| decide(&gate, &request("a=b")).reason());
        assert_eq!(
            reasons,
            [None, None, Some(Reason::OverLimit)],
            "{algorithm}"
        );
    }
}

#[test]
fn each_limit_says_its_own_reason_and_the_rule_that_decided_speaks() {
    let gate = gate(
        "- {id: a, per: [], limit: 1/minute}
- {id: b, per: [u], missing: deny, limit: 9/minute}
- {id: c, per: [], limit: 9/minute}
- {id: d, per: [], limit: 1/minute, mode: shadow}",
    );
    assert!(decide(&gate, &request("u=1")).is_allowed());
    let denied = decide(&gate, &request("a=b"));
    let said: Vec<Option<Reason>> = denied.limits().map(|answer| answer.reason).collect();
    let over = Some(Reason::OverLimit);
    assert_eq!(said, [over, Some(Reason::MissingAttribute), None, over]);
    // Waiting never helps against the second.
    assert_eq!(denied.rule(), Some("b"));
    assert_eq!(denied.reason(), Some(Reason::MissingAttribute));
    denied.count(FrontEnd::Grpc);
    let rules = gate.rules();
    let denied = |id: &str, reason| rules.get(id).unwrap().counts().denied(reason);
    assert_eq!(denied("a", Reason::OverLimit), 1);
    assert_eq!(denied("b", Reason::MissingAttribute), 1);
    assert_eq!(denied("c", Reason::OverLimit), 0);
    // A rule that only counts denies nothing.
    assert_eq!(denied("d", Reason::OverLimit), 0);
    let shadow = rules.get("d").unwrap();
    assert_eq!(
        shadow
            .counts()
            .decisions(FrontEnd::Grpc, Verdict::ShadowDenied),
        1
    );
    assert!(!shadow.can_deny_for(Reason::OverLimit));
}

#[test]
fn of_equal_waits_the_order_of_the_rules_decides_who_speaks() {
    // Both deny for ever, and their states become whole at different times.
    let list = "- {id: first, per: [], limit: 2/minute}\n- {id: second, per: [], limit: 2/hour}";
    let gate = gate(list);
    assert!(decide(&gate, &request("a=b")).is_allowed());
    let denied = decide(&gate, &request("a=b").with_cost(3));
    assert_eq!(denied.rule(), Some("first"));
    assert_eq!(denied.reason(), Some(Reason::TooExpensive));
    let list =
        "- {id: x, per: [u], missing: deny, limit: 1/minute}\n- {id: y, per: [], limit: blocked}";
    let denied = decide(&super::gate(list), &request("a=b"));
    assert_eq!(denied.rule(), Some("x"));
    assert_eq!(denied.reason(), Some(Reason::MissingAttribute));
}

#[test]
fn a_rule_with_several_limits_counts_one_denial_with_the_longest_wait() {
    let gate = gate("- {id: r, per: [], limit: 2/minute; 3/hour}");
    let denied = decide(&gate, &request("a=b").with_cost(3));
    let said: Vec<Option<Reason>> = denied.limits().map(|answer| answer.reason).collect();
    assert_eq!(said, [Some(Reason::TooExpensive), None]);
    denied.count(FrontEnd::Http);
    let rules = gate.rules();
    let counts = rules.get("r").unwrap().counts();
    assert_eq!(counts.denied(Reason::TooExpensive), 1);
    assert_eq!(counts.decisions(FrontEnd::Http, Verdict::Denied), 1);
}

#[test]
fn a_store_that_cannot_answer_is_the_reason_only_if_the_rule_denies_for_it() {
    let away = |list: &str, instances| {
        let gate = FailingGate::new(FailingStore::default(), rules(list)).with_instances(instances);
        gate.store().switch(StoreState::Unreachable);
        gate
    };
    let deny = away(
        "- {id: r, per: [], limit: 5/minute, on_store_failure: deny}",
        1,
    );
    let denied = decide(&deny, &request("a=b"));
    assert_eq!(denied.reason(), Some(Reason::StoreUnavailable));
    assert!(denied.is_failed());

    // This instance's share of the limit is used up.
    let local = away("- {id: r, per: [], limit: 4/minute}", 2);
    let reasons = [(); 3].map(|()| decide(&local, &request("a=b")).reason());
    assert_eq!(reasons, [None, None, Some(Reason::OverLimit)]);
    // More than the share can ever grant, and no more than the limit.
    let later = request("a=b").at(NOW + Micros::from_seconds(600));
    let denied = decide(&local, &later.clone().with_cost(3));
    assert_eq!(denied.reason(), Some(Reason::StoreUnavailable));
    let denied = decide(&local, &later.with_cost(5));
    assert_eq!(denied.reason(), Some(Reason::TooExpensive));

    let blocked = away(
        "- {id: r, per: [], limit: blocked, on_store_failure: deny}",
        1,
    );
    let denied = decide(&blocked, &request("a=b"));
    assert_eq!(denied.reason(), Some(Reason::Blocked));
}

#[test]
fn without_memory_for_permits_only_what_needs_one_and_would_be_allowed_is_denied_for_it() {
    let list = "\
- {id: held, match: {attributes: {a: hold}}, per: [k], limit: 1, algorithm: concurrency, lease_ttl: 1h}
- {id: rate, match: {attributes: {a: rate}}, per: [], limit: 3/minute}
- {id: tried, match: {attributes: {a: rate}}, per: [k], limit: 1, algorithm: concurrency, mode: shadow}";
    let store = MemoryStore::builder().max_memory(64 << 10).build();
    let gate = Gate::new(store, rules(list));
    let hold = |key: u32| decide(&gate, &request(&format!("a=hold k={key}"))).reason();
    let refused = (0..10_000).map(hold).find(Option::is_some);
    assert_eq!(refused, Some(Some(Reason::StoreUnavailable)));
    assert_eq!(hold(0), Some(Reason::OverLimit), "the key holds its permit");

    // The shadow rule has no memory for its permit; the rate is charged as always, and its counter is kept.
    for left in [2, 1, 0] {
        let decision = decide(&gate, &request("a=rate k=x"));
        let answers = decision.limits();
        let answers: Vec<_> = answers
            .map(|answer| (answer.outcome.remaining, answer.reason))
            .collect();
        assert_eq!(answers, [(left, None), (0, Some(Reason::StoreUnavailable))]);
    }
    let decision = decide(&gate, &request("a=rate k=x"));
    assert_eq!(decision.reason(), Some(Reason::OverLimit));
}
