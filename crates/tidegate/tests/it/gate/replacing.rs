//! Other rules in force, and what is forgotten on request.

use std::sync::Arc;

use super::{FailingGate, NOW, answered, decide, gate, left, request, rules};
use tidegate::gate::{ResetCounter, ResetError};
use tidegate::rules::{
    FrontEnd, OverrideKey, Rule, RuleSet, TemporaryOverride, TemporaryOverrides, ValueDigest,
    Verdict,
};
use tidegate::{Ended, Gate, MemoryStore, Micros};
use tidegate_testkit::{FailingStore, StoreState, block_on};

/// One override of rule `r` for the user `u`, which ends a second from now.
fn override_of(limit: &str) -> TemporaryOverrides {
    let one = TemporaryOverride {
        key: OverrideKey::Value("u".to_owned()),
        limit: limit.to_owned(),
        expires_at: NOW + Micros::SECOND,
    };
    TemporaryOverrides::from([("r".to_owned(), vec![one])])
}

#[test]
fn temporary_overrides_stay_when_rules_are_replaced() {
    let gate = gate("- {id: r, per: [user_id], limit: 5/minute}");
    let old = gate.rules();
    decide(&gate, &request("user_id=u")).count(FrontEnd::Http);
    gate.replace_overrides(override_of("9/minute"));
    assert_eq!(left(&gate, "user_id=u"), [8], "what was used stays used");
    assert_eq!(left(&gate, "user_id=v"), [5]);
    let asked = request("user_id=u");
    let deciding = gate.decide_by(&old, FrontEnd::Library, &asked);
    let decision = block_on(deciding).into_decision();
    let limit = decision.headline().unwrap().outcome.limit;
    assert_eq!(
        limit, 5,
        "a request is decided by the rules that it was read by"
    );

    gate.replace_rules(rules(
        "- {id: r, per: [user_id], limit: 6/minute, mode: shadow}",
    ));
    assert_eq!(left(&gate, "user_id=u"), [7]);
    gate.replace_rules(rules("- {id: other, per: [user_id], limit: 6/minute}"));
    assert_eq!(
        left(&gate, "user_id=u"),
        [6],
        "without its rule it has no effect"
    );
    gate.replace_rules(rules("- {id: r, per: [user_id], limit: 6/minute}"));
    assert_eq!(left(&gate, "user_id=u"), [7]);
    gate.replace_overrides(TemporaryOverrides::new());
    assert_eq!(left(&gate, "user_id=u"), [4]);
    let rules = gate.rules();
    let counted = rules.get("r").unwrap().counts();
    let counted = counted.decisions(FrontEnd::Http, Verdict::Allowed);
    assert_eq!(counted, 0, "the rule was gone in between");
}

#[test]
fn temporary_overrides_hold_without_the_store_and_in_a_reset() {
    let gate = FailingGate::new(
        FailingStore::default(),
        rules("- {id: r, per: [user_id], limit: 2/minute}"),
    );
    gate.store().switch(StoreState::Unreachable);
    let allowed = |gate: &FailingGate| {
        let all = (0..20).filter(|_| decide(gate, &request("user_id=u")).is_allowed());
        all.count()
    };
    assert_eq!(allowed(&gate), 2);
    gate.replace_overrides(override_of("6/minute"));
    assert_eq!(allowed(&gate), 4, "at once, and less what was used");
    gate.replace_overrides(override_of("blocked"));
    assert_eq!(allowed(&gate), 0);

    let gate = super::gate("- {id: r, per: [user_id], limit: 2/minute}");
    gate.replace_overrides(override_of("6/hour"));
    decide(&gate, &request("user_id=u"));
    let reset = block_on(gate.reset(&request("user_id=u"), None)).unwrap();
    let counters: Vec<_> = reset
        .counters
        .iter()
        .map(|one| (one.limit, one.used))
        .collect();
    assert_eq!(counters, [(6, 1)]);
    assert_eq!(left(&gate, "user_id=u"), [6]);
}

#[test]
fn a_reset_of_a_blocked_client_reports_that_nothing_is_granted() {
    let gate = gate("- {id: r, per: [user_id], limit: 2/minute, tiers: {pro: 1000/minute}}");
    decide(&gate, &request("user_id=u"));
    gate.replace_overrides(override_of("blocked"));
    assert_eq!(reported(&gate, "user_id=u", None).0, [entry("r", 0, 1)]);
    let blocked = |gate: &Gate| {
        let reset = block_on(gate.reset(&request("user_id=u tier=pro"), None)).unwrap();
        let one = |one: &ResetCounter| (one.limit, one.used, one.grant.clone());
        reset.counters.iter().map(one).collect::<Vec<_>>()
    };
    let nothing_used = [(0, 0, "blocked".to_owned())];
    assert_eq!(blocked(&gate), nothing_used, "also if nothing was used");
    gate.replace_overrides(override_of("unlimited"));
    assert_eq!(blocked(&gate), []);
    gate.replace_overrides(TemporaryOverrides::new());
    assert_eq!(blocked(&gate), [(1000, 0, "1000/minute".to_owned())]);
}

#[test]
fn a_client_has_used_something_or_nothing() {
    let gate = gate(
        "- {id: a, per: [user_id], limit: 2/minute, tiers: {pro: 9/hour}}\n- {id: b, per: [user_id, ip], limit: 2/minute}",
    );
    let has_used = |attributes: &str, attribute: &str, rule: Option<&str>| {
        block_on(gate.has_used(&request(attributes), attribute, rule)).unwrap()
    };
    decide(&gate, &request("user_id=u tier=pro"));
    assert!(has_used("user_id=u", "user_id", None), "of another tier");
    assert!(has_used("user_id=u", "user_id", Some("a")));
    assert!(!has_used("user_id=u", "user_id", Some("b")));
    assert!(!has_used("user_id=u", "ip", None));
    assert!(!has_used("user_id=v", "user_id", None));
    decide(&gate, &request("user_id=v ip=10.0.0.1"));
    assert!(has_used("user_id=v ip=10.0.0.1", "ip", None));
    assert!(!has_used("user_id=v ip=10.0.0.2", "ip", None));
}

/// A program may hold on to its rules, and put the same values in force again.
#[test]
fn rules_that_the_program_keeps_lose_nothing_when_they_are_replaced() {
    let bounds = "{min: 1, max: 50, target: 10ms}";
    let kept: Vec<Arc<Rule>> = rules(&format!(
        "- {{id: a, per: [], limit: 10/minute}}\n- {{id: up, per: [], algorithm: concurrency, limit: 20, adaptive: {bounds}}}",
    ))
    .iter()
    .map(Arc::clone)
    .collect();
    let set = || RuleSet::from_rules(kept.clone()).unwrap();
    let gate = Gate::new(MemoryStore::new(), set());
    for _ in 0..200 {
        let decision = decide(&gate, &request("z=1").with_cost(0));
        decision.count(FrontEnd::Http);
        decision.observe(Ended::Dropped);
    }
    let known = || {
        let rules = gate.rules();
        let counts = rules.get("a").unwrap().counts();
        let limit = rules.get("up").unwrap().adaptive().unwrap().limit();
        (counts.decisions(FrontEnd::Http, Verdict::Allowed), limit)
    };
    let before = known();
    assert!(before.0 == 200 && before.1 < 20, "{before:?}");
    gate.replace_rules(set());
    assert_eq!(known(), before);
    assert!(
        kept.iter()
            .zip(gate.rules().iter())
            .all(|(kept, rule)| *kept == *rule)
    );
}

#[test]
fn other_rules_go_on_with_what_was_used_and_counted() {
    let gate = gate("- {id: a, per: [], limit: 10/minute}\n- {id: b, per: [], limit: 10/minute}");
    for _ in 0..4 {
        decide(&gate, &request("z=1")).count(FrontEnd::Http);
    }
    let old = decide(&gate, &request("z=1").with_cost(0));
    gate.replace_rules(rules(
        "- {id: c, per: [], limit: 9/minute}\n- {id: a, description: changed, per: [], limit: 20/minute}",
    ));
    assert_eq!(
        left(&gate, "z=1"),
        [9, 16],
        "a changed limit keeps what was used"
    );
    let counted = |id: &str| {
        gate.rules()
            .get(id)
            .unwrap()
            .counts()
            .decisions(FrontEnd::Http, Verdict::Allowed)
    };
    assert_eq!((counted("a"), counted("c")), (4, 0));
    assert_eq!(
        answered(&old),
        ["a", "b"],
        "a decision keeps the rules that made it"
    );
    gate.replace_rules(rules("- {id: a, per: [], limit: 3/minute}"));
    assert!(decide(&gate, &request("z=1")).is_denied());
    gate.replace_rules(rules("- {id: b, per: [], limit: 10/minute}"));
    assert_eq!(
        (left(&gate, "z=1"), counted("b")),
        (vec![6], 0),
        "gone, and back again"
    );
}

#[test]
fn a_reset_forgets_what_these_attributes_have_used() {
    let list = "- {id: user, match: {path: /v1/**}, per: [user_id], limit: 9/minute; 90/hour, tiers: {pro: 50/day}}
- {id: both, per: [user_id, ip], limit: 9/minute}
- {id: ip, per: [ip], limit: 9/minute}
- {id: all, per: [], limit: 100/minute}
- {id: share, per: [key], missing: share, limit: 9/minute}";
    let everything = "path=/v1 user_id=u ip=2001:db8::1";
    let used = || {
        let gate = gate(list);
        decide(&gate, &request(everything));
        decide(
            &gate,
            &request("path=/v1 user_id=u ip=2001:db8::1 tier=pro"),
        );
        gate
    };
    let full = || used();
    assert_eq!(left(&full(), everything), [8, 89, 7, 7, 98, 7]);

    #[rustfmt::skip]
    let table = [
        // attributes               rule            left after
        ("user_id=u",               None,           [9, 90, 7, 7, 98, 7]),
        ("user_id=v",               None,           [8, 89, 7, 7, 98, 7]),
        ("ip=2001:db8::2",          None,           [8, 89, 7, 9, 98, 7]),
        ("user_id=u ip=2001:db8::2", None,          [9, 90, 9, 9, 98, 7]),
        ("user_id=u",               Some("user"),   [9, 90, 7, 7, 98, 7]),
        ("z=1",                     Some("all"),    [8, 89, 7, 7, 100, 7]),
        ("z=1",                     Some("share"),  [8, 89, 7, 7, 98, 9]),
    ];
    for (attributes, rule, expected) in table {
        let gate = used();
        block_on(gate.reset(&request(attributes), rule)).unwrap();
        assert_eq!(left(&gate, everything), expected, "{attributes} {rule:?}");
    }
    let gate = used();
    let tier = "path=/v1 user_id=u ip=2001:db8::1 tier=pro";
    assert_eq!(left(&gate, tier)[0], 49);
    block_on(gate.reset(&request("user_id=u"), Some("user"))).unwrap();
    assert_eq!(left(&gate, tier)[0], 50, "of every tier");
    let unknown = block_on(gate.reset(&request("z=1"), Some("none")));
    assert!(matches!(unknown, Err(ResetError::NoSuchRule { .. })));
    let unnamed = block_on(gate.reset(&request("userid=u"), None)).unwrap_err();
    assert_eq!(
        unnamed.to_string(),
        "these attributes name no counter; the rules count by `ip`, `key`, `user_id`; a counter that all clients share is reset only if `rule` names its rule"
    );
    let who = block_on(gate.reset(&request("user_id=u"), Some("both"))).unwrap_err();
    assert_eq!(
        who.to_string(),
        "rule `both` counts by `user_id` and `ip`; give these attributes"
    );
}

/// What a reset reports: rule, limit, what was used; and what it ignored.
fn reported(
    gate: &Gate,
    attributes: &str,
    rule: Option<&str>,
) -> (Vec<(String, u64, u64)>, Vec<String>) {
    let reset = block_on(gate.reset(&request(attributes), rule)).unwrap();
    let counters = reset.counters.iter();
    let counters = counters.map(|one| (one.rule.id().to_owned(), one.limit, one.used));
    (counters.collect(), reset.ignored)
}

fn entry(rule: &str, limit: u64, used: u64) -> (String, u64, u64) {
    (rule.to_owned(), limit, used)
}

#[test]
fn a_reset_reports_what_was_used_of_each_limit() {
    let gate = gate(
        "- {id: user, match: {path: /v1/**}, per: [user_id], limit: 9/minute; 90/hour, tiers: {pro: 50/minute}, expires_at: 1990-01-01T00:00:00Z}
- {id: window, per: [user_id], limit: 5/hour, algorithm: fixed_window}
- {id: held, per: [user_id], limit: 4, algorithm: concurrency}
- {id: all, per: [], limit: 100/minute}
- {id: share, per: [key], missing: share, limit: 9/minute}",
    );
    let attributes = "user_id=u path=/v2";
    for _ in 0..3 {
        decide(&gate, &request(attributes));
    }
    // Whatever the rule matches, and whether it has expired.
    let expected = [
        entry("user", 9, 0),
        entry("user", 90, 0),
        entry("window", 5, 3),
        entry("held", 4, 3),
    ];
    let (counters, ignored) = reported(&gate, "user_id=u usr=x tier=free", None);
    assert_eq!(counters, expected);
    assert_eq!(ignored, ["usr"]);
    let (counters, ignored) = reported(&gate, "user_id=u", None);
    assert!(
        counters.iter().all(|(_, _, used)| *used == 0),
        "{counters:?}"
    );
    assert!(ignored.is_empty());
    assert_eq!(reported(&gate, "", Some("all")).0, [entry("all", 100, 3)]);
    assert_eq!(
        reported(&gate, "user=x", Some("share")).0,
        [entry("share", 9, 3)]
    );
}

#[test]
fn a_reset_reports_what_another_tier_has_used() {
    let gate = gate(
        "- {id: user, per: [user_id], limit: 10/hour, algorithm: fixed_window, tiers: {pro: 500/hour, day: 1000/day, free: unlimited}}",
    );
    let use_as = |tier: &str| {
        let text = format!("user_id=u tier={tier}");
        for _ in 0..40 {
            decide(&gate, &request(&text));
        }
    };
    use_as("pro");
    use_as("day");
    // The hour is counted once for all tiers; the day is a counter of its own.
    let expected = [entry("user", 10, 40), entry("user", 1_000, 40)];
    assert_eq!(reported(&gate, "user_id=u", None).0, expected);
    assert_eq!(reported(&gate, "user_id=u", None).0, [entry("user", 10, 0)]);
    use_as("pro");
    assert_eq!(
        reported(&gate, "user_id=u tier=pro", None).0,
        [entry("user", 500, 40)]
    );
    assert_eq!(reported(&gate, "user_id=u tier=free", None).0, []);
}

#[test]
fn an_override_by_digest_is_for_the_value_that_has_it() {
    let digest = Arc::new(ValueDigest::new(b"secret"));
    let one = TemporaryOverride {
        key: OverrideKey::Digest(digest.of("k1")),
        limit: "9/minute".to_owned(),
        expires_at: NOW + Micros::SECOND,
    };
    let gate = gate("- {id: r, per: [api_key], limit: 5/minute}").with_digest(digest);
    gate.replace_overrides(TemporaryOverrides::from([("r".to_owned(), vec![one])]));
    assert_eq!(left(&gate, "api_key=k1"), [9]);
    assert_eq!(left(&gate, "api_key=k2"), [5]);
}

#[test]
fn a_reset_that_names_no_counter_says_what_rules_count_by() {
    let text = |list: &str| {
        let error = block_on(gate(list).reset(&request("z=1"), None)).unwrap_err();
        error.to_string()
    };
    let rest = "a counter that all clients share is reset only if `rule` names its rule";
    assert_eq!(
        text("- {id: r, per: [], limit: 9/minute}"),
        format!("these attributes name no counter, because no rule counts by any; {rest}")
    );
    assert_eq!(
        text("- {id: r, per: [user_id, ip], limit: 9/minute}"),
        format!("these attributes name no counter; the rules count by `ip`, `user_id`; {rest}")
    );
}
