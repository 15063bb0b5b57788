//! Explanations: the condition that keeps a rule from applying, where its grant comes from, and exactly the
//! decision that a check then makes. Nothing is charged or counted.

use proptest::prelude::*;
use proptest::sample::select;
use tidegate::gate::{Decision, ExplainedTier, Explanation};
use tidegate::headers::HeaderSettings;
use tidegate::rules::{
    FrontEnd, GrantSource, OverrideKey, RuleSet, TemporaryOverride, TemporaryOverrides, Verdict,
};
use tidegate::{Attributes, Gate, Micros};
use tidegate_testkit::{FailingStore, block_on};

use super::{FailingGate, NOW, answered, decide, gate, left, request, rules};

/// Values of `api_key` are hidden.
fn show(name: &str, value: &str) -> String {
    if name == "api_key" {
        return format!("#{}", value.len());
    }
    value.to_owned()
}

fn explain(gate: &Gate, attributes: &Attributes<'_>) -> Explanation {
    block_on(gate.explain(attributes, &show))
}

/// The condition, what is expected and what there is.
fn failed(explanation: &Explanation) -> Option<(String, String, Option<String>)> {
    let failed = explanation.rules()[0].failed.clone()?;
    Some((failed.condition, failed.expected, failed.actual))
}

#[test]
fn the_condition_that_fails_is_named_with_what_is_expected_and_what_there_is() {
    #[rustfmt::skip]
    let table = [
        // the rule                                             the request                     condition               expected                    actual
        ("match: {path: [/a/**, /b]}",                          "path=/c",                      "path",                 "/a/**, /b",                Some("/c")),
        ("match: {path: /a}",                                   "ip=10.0.0.1",                  "path",                 "/a",                       None),
        ("match: {method: [GET, PUT]}",                         "method=POST",                  "method",               "GET, PUT",                 Some("POST")),
        ("match: {host: '*.x.com'}",                            "host=x.com",                   "host",                 "*.x.com",                  Some("x.com")),
        ("match: {ip: [10.0.0.0/8, 192.0.2.1]}",                "ip=11.0.0.1",                  "ip",                   "10.0.0.0/8, 192.0.2.1/32", Some("11.0.0.1")),
        ("match: {ip: 10.0.0.0/8}",                             "path=/",                       "ip",                   "10.0.0.0/8",               None),
        ("match: {attributes: {plan: [a, b]}}",                 "plan=c",                       "attributes.plan",      "a, b",                     Some("c")),
        ("match: {attributes: {plan: a}}",                      "path=/",                       "attributes.plan",      "a",                        None),
        ("match: {attributes: {api_key: k1}}",                  "api_key=secret",               "attributes.api_key",   "#2",                       Some("#6")),
        ("match: {when: 'attributes.plan == \"a\"'}",           "plan=b",                       "when",                 "attributes.plan == \"a\"", Some("false: plan=b")),
        ("match: {when: 'attributes.plan == \"a\"'}",           "path=/",                       "when",                 "attributes.plan == \"a\"", Some("it cannot be evaluated: plan is missing")),
        ("match: {when: 'cost > 1'}",                           "path=/",                       "when",                 "cost > 1",                 Some("false: cost=1")),
        ("match: {when: 'attributes.api_key != \"secret\"'}",   "api_key=secret",               "when",                 "attributes.api_key != \"#6\"", Some("false: api_key=#6")),
        ("except: [{path: /x}, {path: /a, method: GET}]",       "path=/a method=GET",           "except",               "not (method: GET; path: /a)", Some("method=GET, path=/a")),
        ("except: [{attributes: {api_key: secret}}]",           "api_key=secret",               "except",               "not (api_key: #6)",        Some("api_key=#6")),
        ("except: [{when: 'cost == 1'}]",                       "path=/",                       "except",               "not (when: cost == 1)",    Some("cost=1")),
        ("starts_at: 2027-01-01T00:00:00Z",                     "path=/",                       "starts_at",            "2027-01-01T00:00:00Z",     Some("2026-11-15T00:00:00Z")),
        ("expires_at: 2026-01-01T00:00:00Z",                    "path=/",                       "expires_at",           "2026-01-01T00:00:00Z",     Some("2026-11-15T00:00:00Z")),
        ("missing: skip",                                       "path=/",                       "missing",              "user_id, team",            None),
        ("missing: skip",                                       "user_id=u",                    "missing",              "team",                     None),
        // The order in which conditions are tested.
        ("match: {path: /a, method: GET, host: a.com}",         "path=/b method=PUT host=b.com", "method",              "GET",                      Some("PUT")),
    ];
    for (rule, asked, condition, expected, actual) in table {
        let per = if rule.contains("missing") {
            "[user_id, team]"
        } else {
            "[]"
        };
        let gate = gate(&format!("- {{id: r, per: {per}, limit: 5/minute, {rule}}}"));
        let explanation = explain(&gate, &request(asked));
        let expected = (
            condition.to_owned(),
            expected.to_owned(),
            actual.map(str::to_owned),
        );
        assert_eq!(failed(&explanation), Some(expected), "{rule} {asked}");
        let rule = &explanation.rules()[0];
        assert!(!rule.applies() && rule.grant.is_none() && rule.key.is_none());
        assert_eq!(explanation.limits_of(&rule.rule).count(), 0);
        assert_eq!(answered(explanation.decision()), Vec::<String>::new());
    }
}

#[test]
fn a_grant_says_where_it_comes_from_and_a_key_whom_it_counts() {
    let list = "
- id: r
  per: [api_key]
  limit: 5/minute; 100/hour
  tiers: {pro: 50/minute, free: blocked}
  overrides: {k1: 7/minute, k2: unlimited, k3: blocked}
- {id: all, per: [], limit: 9/minute}
- {id: net, per: [ip], limit: 8/minute, missing: share, overrides: {10.0.0.0/8: 3/minute}}
- {id: must, per: [user_id], limit: 8/minute, missing: deny}
";
    let gate = gate(list);
    #[rustfmt::skip]
    let table = [
        ("api_key=abcdef",              GrantSource::Limit,     "5/minute; 100/hour",   2),
        ("api_key=abcdef tier=pro",     GrantSource::Tier,      "50/minute",            1),
        ("api_key=abcdef tier=free",    GrantSource::Tier,      "blocked",              1),
        ("api_key=abcdef tier=other",   GrantSource::Limit,     "5/minute; 100/hour",   2),
        ("api_key=k1 tier=pro",         GrantSource::Override,  "7/minute",             1),
        ("api_key=k2",                  GrantSource::Override,  "unlimited",            0),
        ("api_key=k3",                  GrantSource::Override,  "blocked",              1),
    ];
    for (asked, source, text, limits) in table {
        let explanation = explain(&gate, &request(asked));
        let rule = &explanation.rules()[0];
        let grant = rule.grant.as_ref().unwrap();
        assert_eq!((grant.source, grant.text.as_str()), (source, text));
        let key = rule.key.as_ref().unwrap();
        assert!(
            key[0].0 == "api_key" && key[0].1.starts_with('#'),
            "{key:?}"
        );
        assert_eq!(explanation.limits_of(&rule.rule).count(), limits, "{asked}");
    }
    let explanation = explain(&gate, &request("ip=10.1.2.3 user_id=u"));
    let keys: Vec<_> = explanation
        .rules()
        .iter()
        .map(|rule| rule.key.clone())
        .collect();
    let pair = |name: &str, value: &str| Some(vec![(name.to_owned(), value.to_owned())]);
    let expected = [
        None,
        Some(vec![]),
        pair("ip", "10.1.2.3"),
        pair("user_id", "u"),
    ];
    assert_eq!(keys, expected);
    let grant = explanation.rules()[2].grant.clone().unwrap();
    assert_eq!(grant.source, GrantSource::Override);
    let explanation = explain(&gate, &request("path=/"));
    let shared = &explanation.rules()[2];
    assert_eq!(shared.key, Some(vec![]), "all without an address");
    let must = &explanation.rules()[3];
    assert!(must.applies() && must.key.is_none() && must.grant.is_some());
    assert_eq!(explanation.limits_of(&must.rule).count(), 1);
    assert!(explanation.decision().is_denied());
}

#[test]
fn a_temporary_override_is_named_as_such_until_it_ends() {
    let gate = gate("- {id: r, per: [user_id], limit: 5/minute, overrides: {u: blocked}}");
    let raised = TemporaryOverride {
        key: OverrideKey::Value("u".to_owned()),
        limit: "50/minute".to_owned(),
        expires_at: NOW + Micros::SECOND,
    };
    gate.replace_overrides(TemporaryOverrides::from([("r".to_owned(), vec![raised])]));
    for (at, source, text) in [
        (NOW, GrantSource::Temporary, "50/minute"),
        (NOW + Micros::SECOND, GrantSource::Override, "blocked"),
    ] {
        let asked = request("user_id=u").at(at);
        let explanation = explain(&gate, &asked);
        let grant = explanation.rules()[0].grant.clone().unwrap();
        assert_eq!((grant.source, grant.text.as_str()), (source, text));
        assert_eq!(said(explanation.decision()), said(&decide(&gate, &asked)));
    }
}

#[test]
fn an_explanation_charges_counts_and_holds_nothing() {
    let gate = gate(
        "- {id: few, per: [], limit: 2/day}
- {id: shadow, mode: shadow, per: [], limit: 1/day}
- {id: held, per: [], limit: 1, algorithm: concurrency}
- {id: condition, match: {when: 'attributes.none == \"a\"'}, per: [], limit: 1/day}
- {id: cost, per: [], limit: 99/day, cost: {attribute: bytes}}
",
    );
    let asked = request("path=/ bytes=many");
    for _ in 0..5 {
        let explanation = explain(&gate, &asked);
        let decision = explanation.decision();
        assert!(decision.is_allowed());
        assert_eq!(decision.permit(), None);
        assert_eq!(decision.rule(), Some("held"), "no permit would be left");
        assert_eq!(decision.remaining(), Some(0));
    }
    assert_eq!(left(&gate, "path=/"), [2, 1, 1, 99]);
    for rule in gate.rules().iter() {
        let counts = rule.counts();
        assert_eq!(
            counts.condition_failures(),
            u64::from(rule.id() == "condition"),
            "the peek alone"
        );
        assert_eq!(counts.unread_costs(), 0);
        for verdict in [Verdict::Denied, Verdict::ShadowDenied] {
            assert_eq!(counts.decisions(FrontEnd::Library, verdict), 0);
        }
    }
}

/// All that an answer says of a decision, but for the id of its permit.
fn said(decision: &Decision) -> impl PartialEq + std::fmt::Debug + use<> {
    let limits: Vec<_> = decision
        .limits()
        .map(|limit| {
            let missing: Vec<String> = limit.missing().map(str::to_owned).collect();
            (
                (limit.rule.id().to_owned(), limit.index, *limit.outcome),
                (limit.limit.cloned(), limit.is_shadow, limit.is_degraded),
                (limit.reason, missing),
            )
        })
        .collect();
    let headers: Vec<(String, String)> = decision
        .headers(&HeaderSettings::default())
        .map(|(name, value)| (name.to_string(), value))
        .collect();
    let verdict = (
        decision.is_allowed(),
        decision.rule().map(str::to_owned),
        decision.reason(),
        decision.delay(),
        decision.is_degraded(),
    );
    (verdict, limits, headers)
}

/// Rules of every kind.
const MENU: [&str; 20] = [
    "per: [user_id], limit: 3/minute",
    "per: [user_id], limit: 3/minute, missing: deny",
    "per: [user_id], limit: 4/minute, missing: share, algorithm: fixed_window",
    "per: [], limit: 6/minute; 20/hour, algorithm: sliding_window_log",
    "per: [], limit: 9/minute, algorithm: sliding_window_counter",
    "per: [user_id], limit: 9/hour, algorithm: sliding_window_slots",
    "per: [user_id], limit: 5/minute, algorithm: leaky_bucket",
    "per: [user_id], limit: 5/minute, max_delay: 30s",
    "per: [], limit: 2, algorithm: concurrency, lease_ttl: 90s",
    "per: [user_id], limit: 1, algorithm: concurrency, mode: shadow",
    "per: [], limit: 2/minute, mode: shadow",
    "per: [user_id], limit: 1/minute, mode: shadow, missing: deny",
    "per: [], limit: 12/minute, cost: {attribute: bytes}",
    "per: [user_id], limit: 3/minute, tiers: {pro: 30/minute, bad: blocked, free: unlimited}",
    "per: [user_id], limit: 3/minute, overrides: {u1: 2/hour, u2: unlimited, u3: blocked}",
    "match: {path: /a/**}, per: [ip], limit: 4/minute",
    "match: {path: /a/**}, except: [{attributes: {tier: pro}}], per: [], limit: 3/minute",
    "match: {when: 'cost > 1'}, per: [], limit: 7/minute",
    "match: {attributes: {tier: [pro, free]}}, per: [], limit: blocked",
    "per: [], limit: 5/minute, starts_at: 2026-11-15T00:01:00Z, expires_at: 2026-11-15T00:03:00Z",
];

/// A request: its attributes, its cost, and how long after the one before.
type Asked = (Vec<(&'static str, &'static str)>, u64, u64);

fn asked() -> impl Strategy<Value = Asked> {
    let values = (
        prop::option::weighted(0.9, select(&["u1", "u2", "u3", "u4"][..])),
        prop::option::of(select(&["pro", "bad", "free"][..])),
        prop::option::of(select(&["/a/b", "/b"][..])),
        prop::option::of(select(&["10.0.0.1", "2001:db8::1"][..])),
        prop::option::weighted(0.3, select(&["0", "5", "x", "99999999999999999999"][..])),
    );
    let cost = prop_oneof![8 => 1_u64..3, 1 => Just(0), 1 => 3_u64..30];
    let after = prop_oneof![Just(0), 1_u64..30_000_000];
    (values, cost, after).prop_map(|((user, tier, path, ip, bytes), cost, after)| {
        let all = [
            ("user_id", user),
            ("tier", tier),
            ("path", path),
            ("ip", ip),
            ("bytes", bytes),
        ];
        let known = all
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        (known.collect(), cost, after)
    })
}

fn set() -> impl Strategy<Value = RuleSet> {
    prop::collection::vec(select(&MENU[..]), 1..6).prop_map(|chosen| {
        let rule = |(index, text): (usize, &str)| format!("- {{id: r{index}, {text}}}\n");
        rules(&chosen.into_iter().enumerate().map(rule).collect::<String>())
    })
}

fn explains_what_a_check_does(gate: &Gate, timeline: &[Asked]) -> Result<(), TestCaseError> {
    let mut now = NOW;
    for (values, cost, after) in timeline {
        now = now + Micros::new(*after);
        let mut attributes = Attributes::new().at(now).with_cost(*cost);
        for (name, value) in values {
            attributes.insert(*name, *value).unwrap();
        }
        let explanation = explain(gate, &attributes);
        let decision = decide(gate, &attributes);
        prop_assert_eq!(said(explanation.decision()), said(&decision));
        let applying = explanation.rules().iter().filter(|rule| {
            let grant = rule.grant.as_ref();
            rule.applies() && grant.is_some_and(|grant| grant.text != "unlimited")
        });
        let applying: Vec<String> = applying.map(|rule| rule.rule.id().to_owned()).collect();
        let mut decided = answered(&decision);
        decided.dedup();
        prop_assert_eq!(applying, decided);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_explanation_says_what_the_check_then_does(
        rules in set(),
        timeline in prop::collection::vec(asked(), 1..20),
    ) {
        let gate = Gate::new(tidegate::MemoryStore::new(), rules);
        explains_what_a_check_does(&gate, &timeline)?;
    }
}

#[test]
fn without_the_store_an_explanation_says_what_each_rule_does_then() {
    let list = "- {id: allow, per: [], limit: 5/minute, on_store_failure: allow}
- {id: local, per: [user_id], limit: 4/minute}
- {id: shadow, mode: shadow, per: [], limit: 5/minute, on_store_failure: deny}
";
    let deny = "- {id: deny, per: [], limit: 5/minute, on_store_failure: deny}\n";
    for list in [list.to_owned(), [list, deny].concat()] {
        let gate = FailingGate::new(FailingStore::unreachable(), rules(&list)).with_instances(2);
        for turn in 0..4 {
            let asked = request("user_id=u");
            let explanation = explain(&gate, &asked);
            assert!(explanation.decision().is_degraded());
            assert_eq!(
                said(explanation.decision()),
                said(&decide(&gate, &asked)),
                "{turn}"
            );
        }
        let total: u64 = gate
            .rules()
            .iter()
            .map(|rule| rule.counts().degraded().iter().sum::<u64>())
            .sum();
        assert_eq!(
            total,
            4 * u64::try_from(gate.rules().len()).unwrap(),
            "the checks alone"
        );
    }
}

#[test]
fn an_adaptive_limit_is_explained_as_it_is_now() {
    let list = "- {id: r, per: [], algorithm: concurrency, limit: 8, adaptive: {min: 2, max: 20, target: 10ms}}";
    let gate = gate(list);
    let asked = request("path=/");
    let explanation = explain(&gate, &asked);
    let current = gate
        .rules()
        .iter()
        .next()
        .unwrap()
        .adaptive()
        .unwrap()
        .limit();
    let grant = explanation.rules()[0].grant.clone().unwrap();
    assert_eq!((grant.text, current), ("8".to_owned(), 8));
    assert_eq!(said(explanation.decision()), said(&decide(&gate, &asked)));
}

#[test]
fn rules_in_the_form_of_envoyproxy_ratelimit_are_explained_by_their_entries() {
    let text = "
domain: shop
descriptors:
  - key: path
    value: /pay
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: user
    descriptors:
      - key: path
        value: /pay*
        rate_limit: {unit: hour, requests_per_unit: 3}
";
    let gate = Gate::new(
        tidegate::MemoryStore::new(),
        RuleSet::from_yaml(text).unwrap(),
    );
    let failed = |explanation: &Explanation| -> Vec<Option<String>> {
        let rules = explanation.rules().iter();
        let line = |failed: tidegate::rules::FailedCondition| {
            format!(
                "{} {} {:?}",
                failed.condition, failed.expected, failed.actual
            )
        };
        rules.map(|rule| rule.failed.clone().map(line)).collect()
    };
    let explanation = explain(&gate, &request("domain=shop path=/pay"));
    let winner = explanation.rules()[0].rule.id();
    assert_eq!(
        failed(&explanation),
        [
            None,
            Some(format!(
                "attributes.path no more specific descriptor Some(\"the descriptor of rule {winner}\")"
            )),
            Some("attributes.user any value Some(\"path=/pay\")".to_owned()),
        ]
    );
    assert_eq!(
        said(explanation.decision()),
        said(&decide(&gate, &request("domain=shop path=/pay")))
    );
    let explanation = explain(&gate, &request("domain=shop user=u path=/other"));
    assert_eq!(
        failed(&explanation)[2],
        Some("attributes.path /pay* Some(\"/other\")".to_owned())
    );
    let explanation = explain(&gate, &request("domain=other path=/pay"));
    assert_eq!(
        failed(&explanation)[0],
        Some("attributes.domain shop Some(\"other\")".to_owned())
    );
}

#[test]
fn a_tier_that_is_not_known_is_said_with_the_tiers_that_there_are() {
    let gate = gate(
        "- {id: t, per: [user_id], limit: 3/minute, tiers: {pro: 1000/minute, all: unlimited}, overrides: {o: 5/minute}}\n- {id: n, per: [user_id], limit: 3/minute}",
    );
    let tier = |attributes: &str| {
        let explained = block_on(gate.explain(&request(attributes), &|_, value| value.to_owned()));
        let tiers = explained.rules().iter().map(|rule| rule.tier.clone());
        tiers.collect::<Vec<_>>()
    };
    let known = |tier: &str| Some(ExplainedTier::Known(tier.to_owned()));
    let each = [("pro", "1000/minute"), ("all", "unlimited")];
    let each = each.map(|(name, limit)| (name.to_owned(), limit.to_owned()));
    let unknown = Some(ExplainedTier::Unknown(each.to_vec()));
    assert_eq!(tier("user_id=u"), [unknown, None]);
    assert_eq!(tier("user_id=u tier=pro"), [known("pro"), None]);
    assert_eq!(tier("user_id=u tier=all"), [known("all"), None]);
    // The rule has no such tier, or something else decides.
    assert_eq!(tier("user_id=u tier=x"), [None, None]);
    assert_eq!(tier("user_id=o"), [None, None]);
}
