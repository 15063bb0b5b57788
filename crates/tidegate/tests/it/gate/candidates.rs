//! Candidates and rollouts: what is asked, what decides, what is counted.

use std::sync::Arc;

use super::{FailingGate, NOW, answered, decide, gate, left, request, rules};
use tidegate::gate::Decision;
use tidegate::headers::HeaderSettings;
use tidegate::rules::{
    CandidateChange, FrontEnd, OverrideKey, RuleSet, TemporaryOverride, TemporaryOverrides,
    ValueDigest, Verdict,
};
use tidegate::{Attributes, Costs, Gate, ManualClock, MemoryStore, Micros};
use tidegate_testkit::{FailingStore, StoreState, block_on};

/// What each limit said: whether it is the candidate's, whether it only counts, whether it allows.
fn said(decision: &Decision) -> Vec<(bool, bool, bool)> {
    let limits = decision.limits();
    limits
        .map(|limit| (limit.is_candidate(), limit.is_shadow, limit.outcome.allowed))
        .collect()
}

/// What a client sees of a decision.
fn seen(decision: &Decision) -> String {
    let headers: Vec<_> = decision.headers(&HeaderSettings::default()).collect();
    format!(
        "{} {:?} {:?} {:?} {:?} {:?} {:?} {headers:?}",
        decision.is_allowed(),
        decision.rule(),
        decision.limit(),
        decision.remaining(),
        decision.reset_at(),
        decision.seconds_to_retry(),
        decision.delay(),
    )
}

fn counted(gate: &Gate, id: &str) -> [u64; 6] {
    let rules = gate.rules();
    let counts = rules.get(id).unwrap().counts();
    Verdict::ALL.map(|verdict| counts.decisions(FrontEnd::Library, verdict))
}

fn changes(gate: &Gate, id: &str) -> [u64; 2] {
    let rules = gate.rules();
    let counts = rules.get(id).unwrap().counts();
    CandidateChange::ALL.map(|change| counts.changes(change))
}

#[test]
fn a_candidate_is_charged_whatever_the_limit_says_and_decides_nothing() {
    let gate = gate("- {id: a, per: [u], limit: 3/minute, candidate: 2/minute}\n");
    let plain = super::gate("- {id: a, per: [u], limit: 3/minute}\n");
    let expected = [
        [(false, false, true), (true, true, true)],
        [(false, false, true), (true, true, true)],
        [(false, false, true), (true, true, false)],
        [(false, false, false), (true, true, false)],
    ];
    for (step, expected) in expected.iter().enumerate() {
        let (tried, alone) = (
            decide(&gate, &request("u=1")),
            decide(&plain, &request("u=1")),
        );
        assert_eq!(said(&tried), expected, "{step}");
        assert_eq!(seen(&tried), seen(&alone), "{step}");
        tried.count(FrontEnd::Library);
    }
    assert_eq!(counted(&gate, "a"), [3, 1, 0, 0, 2, 2]);
    assert_eq!(changes(&gate, "a"), [1, 0]);
    assert_eq!(left(&gate, "u=1"), [0, 0], "counters of their own");
    assert_eq!(left(&gate, "u=2"), [3, 2]);
}

#[test]
fn a_larger_candidate_allows_what_the_limit_denies() {
    let gate = gate("- {id: a, per: [u], limit: 1/minute, candidate: 3/minute}\n");
    for _ in 0..4 {
        decide(&gate, &request("u=1")).count(FrontEnd::Library);
    }
    assert_eq!(counted(&gate, "a"), [1, 3, 0, 0, 3, 1]);
    assert_eq!(changes(&gate, "a"), [0, 2]);
}

#[test]
fn a_candidate_is_asked_only_where_it_changes_the_grant() {
    let gate = gate(
        "- {id: a, per: [u], limit: 10/minute, tiers: {pro: 20/minute, free: 5/minute}, overrides: {x: unlimited, y: blocked, z: 7/minute},
   candidate: {limit: 10/minute, tiers: {pro: 30/minute, free: 5/minute, new: 1/minute}, overrides: {x: 4/minute, y: unlimited, z: 7/minute, w: blocked}}}\n",
    );
    #[rustfmt::skip]
    let table: [(&str, &[u64], bool); 9] = [
        ("u=1",             &[10],      true),
        ("u=1 tier=pro",    &[20, 30],  true),
        ("u=1 tier=free",   &[5],       true),
        ("u=1 tier=new",    &[10, 1],   true),
        ("u=1 tier=none",   &[10],      true),
        ("u=x",             &[4],       true),
        ("u=y",             &[0],       false),
        ("u=z tier=pro",    &[7],       true),
        ("u=w",             &[10, 0],   true),
    ];
    for (text, limits, is_allowed) in table {
        let decision = decide(&gate, &request(text));
        let granted: Vec<u64> = decision.limits().map(|limit| limit.outcome.limit).collect();
        assert_eq!(
            (&granted[..], decision.is_allowed()),
            (limits, is_allowed),
            "{text}"
        );
    }
    let unlimited = decide(&gate, &request("u=x"));
    assert!(unlimited.headline().is_none() && unlimited.is_unmatched());
    let blocked = decide(&gate, &request("u=y"));
    blocked.count(FrontEnd::Library);
    assert_eq!(
        counted(&gate, "a"),
        [0, 1, 0, 0, 1, 0],
        "an unlimited candidate allows"
    );
    assert_eq!(changes(&gate, "a"), [0, 1]);
    for _ in 0..5 {
        decide(&gate, &request("u=x")).count(FrontEnd::Library);
    }
    // Two of four were used above.
    assert_eq!(
        counted(&gate, "a"),
        [0, 1, 0, 0, 3, 3],
        "what is unlimited is not counted"
    );
    assert_eq!(changes(&gate, "a"), [3, 1]);
}

#[test]
fn a_temporary_override_beats_the_candidate() {
    let gate = gate("- {id: a, per: [u], limit: 10/minute, candidate: 1/minute, rollout: 100%}\n");
    let raised = TemporaryOverride {
        key: OverrideKey::Value("1".to_owned()),
        limit: "5/minute".to_owned(),
        expires_at: NOW + Micros::HOUR,
    };
    gate.replace_overrides(TemporaryOverrides::from([("a".to_owned(), vec![raised])]));
    assert_eq!(left(&gate, "u=1"), [5]);
    assert_eq!(left(&gate, "u=2"), [10, 1]);
}

const FORMS: [(&str, &str, &str); 9] = [
    ("token_bucket", "6/minute burst 3", "4/minute burst 2"),
    (
        "leaky_bucket, shape: false",
        "6/minute burst 3",
        "4/minute burst 2",
    ),
    ("leaky_bucket", "6/minute burst 3", "4/minute burst 2"),
    ("fixed_window", "6/minute", "4/minute"),
    (
        "fixed_window, anchor: first_request",
        "6/minute",
        "4/minute",
    ),
    ("sliding_window_log", "6/minute", "4/minute"),
    (
        "sliding_window_counter",
        "6/minute; 30/10 minutes",
        "4/minute; 25/10 minutes",
    ),
    ("sliding_window_slots, slots: 6", "6/minute", "4/minute"),
    ("concurrency, lease_ttl: 20s", "3", "2"),
];

/// A rule with the fields of each case.
fn one(algorithm: &str, fields: &str) -> Gate {
    gate(&format!(
        "- {{id: a, per: [u], algorithm: {algorithm}, {fields}}}\n"
    ))
}

#[test]
fn shadow_rollout_and_enforcement_agree_with_every_algorithm() {
    for (algorithm, limit, candidate) in FORMS {
        let tried = one(
            algorithm,
            &format!("limit: {limit}, candidate: {candidate}"),
        );
        let rolled = one(
            algorithm,
            &format!("limit: {limit}, candidate: {candidate}, rollout: 100%"),
        );
        let out = one(
            algorithm,
            &format!("limit: {limit}, candidate: {candidate}, rollout: 0%"),
        );
        let enforced = one(algorithm, &format!("limit: {candidate}"));
        let shadow = one(algorithm, &format!("limit: {candidate}, mode: shadow"));
        let old = one(algorithm, &format!("limit: {limit}"));
        let old_shadow = one(algorithm, &format!("limit: {limit}, mode: shadow"));
        let mut denied = [0, 0];
        for step in 0..200_u64 {
            let at = NOW + Micros::from_millis(step * 3_700 % 9_000 + step * 2_900);
            let (user, cost) = (step % 3 % 2, if step % 7 == 0 { 2 } else { 1 });
            let asked = |gate: &Gate| {
                let mut attributes = Attributes::new().at(at).with_cost(cost);
                attributes.insert("u", user.to_string()).unwrap();
                decide(gate, &attributes)
            };
            let of = |decision: &Decision, is_candidate: bool| -> Vec<String> {
                let limits = decision.limits();
                let limits = limits.filter(|limit| limit.is_candidate() == is_candidate);
                limits.map(|limit| format!("{:?}", limit.outcome)).collect()
            };
            let (tried, rolled, out) = (asked(&tried), asked(&rolled), asked(&out));
            let (enforced, shadow) = (asked(&enforced), asked(&shadow));
            let (old, old_shadow) = (asked(&old), asked(&old_shadow));
            let name = format!("{algorithm} {step}");
            assert_eq!(of(&enforced, false), of(&rolled, true), "{name}");
            assert_eq!(seen(&enforced), seen(&rolled), "{name}");
            assert_eq!(seen(&old), seen(&tried), "{name}");
            assert_eq!(seen(&old), seen(&out), "{name}");
            assert_eq!(of(&old, false), of(&tried, false), "{name}");
            assert_eq!(of(&tried, true), of(&out, true), "{name}");
            // A permit is held only while the request goes on, so what is allowed depends on what decides.
            if !algorithm.starts_with("concurrency") {
                assert_eq!(of(&shadow, false), of(&tried, true), "{name}");
                assert_eq!(of(&shadow, false), of(&enforced, false), "{name}");
                assert_eq!(of(&old_shadow, false), of(&rolled, false), "{name}");
            }
            denied[0] += usize::from(old.is_denied());
            denied[1] += usize::from(enforced.is_denied());
        }
        assert!(
            denied[0] > 5 && denied[1] > denied[0],
            "{algorithm}: {denied:?}"
        );
    }
}

#[test]
fn a_candidate_may_have_another_algorithm_and_keeps_the_rest_of_its_rule() {
    let gate = gate(
        "- {id: a, match: {path: /x}, per: [u], limit: 5/minute, cost: 2, candidate: {algorithm: fixed_window, anchor: first_request}}\n",
    );
    assert!(decide(&gate, &request("u=1 path=/y")).is_unmatched());
    let decision = decide(&gate, &request("u=1 path=/x"));
    let algorithms: Vec<_> = decision
        .limits()
        .map(|limit| (limit.limit.unwrap().algorithm().name(), limit.cost()))
        .collect();
    assert_eq!(algorithms, [("token_bucket", 2), ("fixed_window", 2)]);
}

#[test]
fn several_rules_with_candidates_are_one_request() {
    let gate = gate(
        "- {id: a, per: [u], limit: 2/minute, candidate: 1/minute}
- {id: b, per: [], limit: 9/minute, candidate: 8/minute}
- {id: c, per: [], limit: 9/minute, mode: shadow, candidate: 1/minute}\n",
    );
    for _ in 0..4 {
        decide(&gate, &request("u=1")).count(FrontEnd::Library);
    }
    let decision = decide(&gate, &request("u=1").with_cost(0));
    assert_eq!(answered(&decision), ["a", "a", "b", "b", "c", "c"]);
    // Two were denied by `a`; shadow rules and candidates count them all.
    assert_eq!(left(&gate, "u=1"), [0, 0, 7, 4, 5, 0]);
    assert_eq!(counted(&gate, "a"), [2, 2, 0, 0, 1, 3]);
    assert_eq!(counted(&gate, "b"), [4, 0, 0, 0, 4, 0]);
    assert_eq!(counted(&gate, "c"), [0, 0, 4, 0, 1, 3]);
}

#[test]
fn a_rollout_without_a_candidate_enforces_the_rule_for_its_keys() {
    let list = |share: &str| format!("- {{id: a, per: [u], limit: 1/minute, rollout: {share}}}\n");
    let digest = ValueDigest::new(b"secret");
    let gate_of = |share: &str| gate(&list(share)).with_digest(Arc::new(digest.clone()));
    for share in ["0%", "30%", "100%"] {
        let gate = gate_of(share);
        let rollout: tidegate::rules::KeyShare = share.parse().unwrap();
        let mut expected = [0; 6];
        for user in 0..200 {
            let text = format!("u={user}");
            for allowed in [true, false] {
                let decision = decide(&gate, &request(&text));
                decision.count(FrontEnd::Library);
                let is_in = rollout.has(digest.cohort("a", &user.to_string()));
                assert_eq!(
                    said(&decision),
                    [(false, !is_in, allowed)],
                    "{share} {user}"
                );
                assert_eq!(decision.is_allowed(), allowed || !is_in, "{share} {user}");
                expected[usize::from(!is_in) * 2 + usize::from(!allowed)] += 1;
            }
        }
        assert_eq!(counted(&gate, "a"), expected, "{share}");
    }
}

#[test]
fn a_rollout_is_the_same_on_every_instance_and_raising_it_takes_no_key_out() {
    let list = |share: &str| {
        format!(
            "- {{id: a, per: [u, v], limit: 9/minute, candidate: 1/minute, rollout: {share}}}\n"
        )
    };
    let digest = || Arc::new(ValueDigest::new(b"secret"));
    let cohort = |gate: &Gate| -> Vec<u32> {
        let is_in = |user: &u32| {
            let decision = decide(gate, &request(&format!("u={user} v=x")).with_cost(0));
            said(&decision)[1] == (true, false, true)
        };
        (0..2_000).filter(is_in).collect()
    };
    let gate = gate(&list("10%")).with_digest(digest());
    let first = cohort(&gate);
    assert!((150..250).contains(&first.len()), "{}", first.len());
    let other = super::gate(&list("10%")).with_digest(digest());
    assert_eq!(cohort(&other), first);
    gate.replace_rules(rules(&list("25%")));
    let raised = cohort(&gate);
    assert!(first.iter().all(|user| raised.contains(user)));
    assert!((430..570).contains(&raised.len()), "{}", raised.len());
    gate.replace_rules(rules(&list("10%")));
    assert_eq!(cohort(&gate), first);
    let another_secret = super::gate(&list("10%")).with_digest(Arc::new(ValueDigest::new(b"x")));
    assert_ne!(cohort(&another_secret), first);
    let another_rule = list("10%").replace("id: a", "id: b");
    assert_ne!(
        cohort(&super::gate(&another_rule).with_digest(digest())),
        first
    );
}

#[test]
fn keys_in_the_rollout_get_the_candidate_and_their_limit_only_counts() {
    let gate = gate("- {id: a, per: [u], limit: 3/minute, candidate: 1/minute, rollout: 100%}\n");
    for step in 0..4 {
        let decision = decide(&gate, &request("u=1"));
        decision.count(FrontEnd::Library);
        let expected = [(false, true, step < 3), (true, false, step < 1)];
        assert_eq!(said(&decision), expected, "{step}");
        assert_eq!(decision.limit(), Some(1));
        assert_eq!(decision.rule(), Some("a"));
    }
    assert_eq!(
        counted(&gate, "a"),
        [1, 3, 0, 0, 1, 3],
        "nothing is in shadow that is replaced"
    );
    assert_eq!(changes(&gate, "a"), [2, 0]);
}

#[test]
fn a_reset_clears_the_candidate() {
    let gate = gate(
        "- {id: a, per: [u], limit: 3/minute, candidate: {limit: 2/minute, algorithm: fixed_window}}\n",
    );
    for _ in 0..2 {
        decide(&gate, &request("u=1"));
    }
    assert_eq!(left(&gate, "u=1"), [1, 0]);
    let reset = block_on(gate.reset(&request("u=1"), None)).unwrap();
    assert_eq!(reset.counters.len(), 1);
    assert_eq!(left(&gate, "u=1"), [3, 2]);
}

#[test]
fn without_the_store_a_candidate_says_nothing_unless_it_decides() {
    let list = "- {id: a, per: [u], limit: 5/minute, candidate: 1/minute}
- {id: b, per: [u], limit: 5/minute, candidate: 1/minute, rollout: 100%, on_store_failure: deny}\n";
    for (state, limits) in [
        (StoreState::Up, &["a", "a", "b", "b"][..]),
        (StoreState::Unreachable, &["a", "b"]),
    ] {
        let gate = FailingGate::new(FailingStore::default(), rules(list));
        gate.store().switch(state);
        let decision = decide(&gate, &request("u=1"));
        decision.count(FrontEnd::Library);
        assert_eq!(answered(&decision), limits);
        let is_up = state == StoreState::Up;
        assert_eq!(decision.is_allowed(), is_up);
        assert_eq!(counted(&gate, "a"), [1, 0, 0, 0, u64::from(is_up), 0]);
        let candidate = [u64::from(is_up), u64::from(!is_up)];
        assert_eq!(
            counted(&gate, "b"),
            [candidate, [0, 0], candidate].concat()[..]
        );
        assert_eq!(changes(&gate, "b"), [0, 0]);
    }
}

#[test]
fn over_a_remote_store_candidates_are_asked_together_with_their_limits() {
    let list = "- {id: a, per: [u], limit: 5/minute, candidate: 1/minute}\n";
    let gate = FailingGate::new(FailingStore::default(), rules(list));
    for step in 0..3 {
        let decision = decide(&gate, &request("u=1"));
        assert_eq!(
            said(&decision),
            [(false, false, true), (true, true, step < 1)]
        );
    }
}

#[test]
fn what_a_candidate_was_charged_is_settled_and_given_back_on_its_own() {
    let gate = gate(
        "- {id: a, per: [u], unit: tokens, limit: 100/minute, candidate: 20/minute, algorithm: fixed_window}\n",
    );
    let cost = |tokens| Costs::by_unit([("tokens", tokens)]).unwrap();
    let reserve = |tokens| {
        let attributes = request("u=1").with_cost(cost(tokens));
        super::decide_with_receipt(&gate, &attributes)
    };
    let settled = block_on(gate.settle(reserve(15), cost(5))).unwrap();
    let given: Vec<_> = settled
        .limits()
        .iter()
        .map(|limit| (limit.is_candidate, limit.is_shadow, limit.given_back))
        .collect();
    assert_eq!(given, [(false, false, 10), (true, true, 10)]);
    let left = || left_of(&gate);
    assert_eq!(left(), [95, 15]);
    // The candidate denies it and is charged nothing, so there is nothing to settle.
    let settled = block_on(gate.settle(reserve(30), cost(40))).unwrap();
    assert_eq!(settled.limits().len(), 1);
    assert_eq!(left(), [55, 15]);
    block_on(gate.give_back(reserve(10))).unwrap();
    assert_eq!(left(), [55, 15]);
}

fn left_of(gate: &Gate) -> Vec<u64> {
    let asked = request("u=1").with_cost(Costs::by_unit([("tokens", 0)]).unwrap());
    let decision = decide(gate, &asked);
    decision
        .limits()
        .map(|limit| limit.outcome.remaining)
        .collect()
}

#[test]
fn a_request_that_is_denied_outright_asks_no_candidate() {
    let gate = gate("- {id: a, per: [u], missing: deny, limit: 3/minute, candidate: 2/minute}\n");
    let decision = decide(&gate, &request("z=1"));
    assert_eq!(said(&decision), [(false, false, false)]);
    let clock = ManualClock::new(NOW);
    let shared =
        rules("- {id: a, per: [u], missing: share, limit: 3/minute, candidate: 2/minute}\n");
    let gate = Gate::with_clock(MemoryStore::new(), shared, clock);
    assert_eq!(left(&gate, "z=1"), [3, 2]);
}

#[test]
fn a_candidate_is_explained_and_nothing_is_charged() {
    let gate = gate(
        "- {id: a, per: [u], limit: 3/minute, candidate: 2/minute, rollout: 100%}
- {id: b, per: [u], limit: unlimited, candidate: 2/minute}
- {id: c, per: [u], limit: 3/minute}\n",
    );
    let explanation = block_on(gate.explain(&request("u=1"), &|_, value| value.to_owned()));
    let explained = |index: usize| {
        let rule = &explanation.rules()[index];
        let candidate = rule.candidate.as_ref();
        let shown = candidate.map(|candidate| {
            let limits = explanation.limits_of(&candidate.rule);
            let limits: Vec<u64> = limits.map(|limit| limit.outcome.remaining).collect();
            (candidate.grant.text.clone(), candidate.decides, limits)
        });
        let own = explanation.limits_of(&rule.rule).count();
        let rollout = rule
            .rollout
            .map(|(share, is_in)| (share.to_string(), is_in));
        (own, shown, rollout)
    };
    let two = |decides| Some(("2/minute".to_owned(), decides, vec![1]));
    assert_eq!(
        explained(0),
        (1, two(true), Some(("100%".to_owned(), true)))
    );
    assert_eq!(explained(1), (0, two(false), None));
    assert_eq!(explained(2), (1, None, None));
    assert_eq!(left(&gate, "u=1"), [3, 2, 2, 3]);
}

#[test]
fn a_new_candidate_and_its_promotion_keep_the_counters_of_the_limit() {
    let gate = gate("- {id: a, per: [u], limit: 10/minute}\n");
    decide(&gate, &request("u=1"));
    let with = "- {id: a, per: [u], limit: 10/minute, candidate: 5/minute}\n";
    gate.replace_rules(rules(with));
    decide(&gate, &request("u=1"));
    assert_eq!(left(&gate, "u=1"), [8, 4]);
    let rule = RuleSet::from_yaml(&format!("rules:\n{with}")).unwrap();
    let promoted = rule.get("a").unwrap().promoted().unwrap();
    let promoted =
        RuleSet::from_yaml(&serde_json::json!({"rules": [promoted]}).to_string()).unwrap();
    gate.replace_rules(promoted);
    assert_eq!(left(&gate, "u=1"), [3]);
}
