//! Requests of several parts, by rules and by descriptors.

use super::{FailingGate, NOW, decide_parts, gate, left, request, rules};
use std::time::Duration;

use tidegate::gate::{Decisions, Part};
use tidegate::headers::HeaderSettings;
use tidegate::rules::{FrontEnd, Grant, RuleSet};
use tidegate::{Algorithm, Attributes, Gate, Limit, MemoryStore, Micros, Rate, Reason, Retry};
use tidegate_testkit::block_on;
use tidegate_testkit::{FailingStore, StoreState};

const RULES: &str = "
- {id: user, match: {attributes: {domain: web}}, per: [user], limit: 3/minute, algorithm: fixed_window}
- {id: team, per: [team], limit: 5/minute, algorithm: fixed_window}
- {id: seen, per: [user], limit: 1/minute, algorithm: fixed_window, mode: shadow}
";

fn part(text: &str, cost: u64) -> Part<'_> {
    Part::new(request(text).with_cost(cost))
}

fn spent(text: &str, cost: u64) -> Part<'_> {
    Part {
        is_spent: true,
        ..part(text, cost)
    }
}

pub(super) fn bringing<'a>(text: &'a str, limit: &str) -> Part<'a> {
    let rate = Rate::parse_all(limit).unwrap().remove(0);
    let limit = Limit::new(rate, Algorithm::FIXED_WINDOW).unwrap();
    Part {
        grant: Some(Grant::Limits(vec![limit])),
        ..part(text, 1)
    }
}

/// Which parts are allowed, and what each has left.
pub(super) fn ask(gate: &Gate, parts: &[Part<'_>]) -> (bool, Vec<(bool, Option<u64>)>) {
    let decisions: Decisions = decide_parts(gate, parts);
    let one = |decision: &tidegate::gate::Decision| {
        let headline = decision.headline();
        let left = headline.map(|answer| answer.outcome.remaining);
        (decision.is_allowed(), left)
    };
    (decisions.is_allowed(), decisions.iter().map(one).collect())
}

#[test]
fn parts_are_charged_together_or_not_at_all() {
    let gate = gate(RULES);
    let both = [part("domain=web user=a", 1), part("team=t", 2)];
    let whole = (true, vec![(true, Some(2)), (true, Some(3))]);
    assert_eq!(ask(&gate, &both), whole);
    let next = (true, vec![(true, Some(1)), (true, Some(1))]);
    assert_eq!(ask(&gate, &both), next);
    // The team has one left, so neither is charged; the answer of the user is its own.
    let over = (false, vec![(true, Some(1)), (false, Some(1))]);
    assert_eq!(ask(&gate, &both), over);
    assert_eq!(ask(&gate, &both), over);
    assert_eq!(left(&gate, "domain=web user=a")[0], 1);
}

#[test]
fn parts_about_one_state_are_charged_the_sum() {
    let gate = gate(RULES);
    let twice = [part("team=t", 2), part("team=t", 2)];
    let both = (true, vec![(true, Some(1)), (true, Some(1))]);
    assert_eq!(ask(&gate, &twice), both);
    let over = (false, vec![(false, Some(1)), (false, Some(1))]);
    assert_eq!(ask(&gate, &twice), over);
    let (allowed, _) = ask(&gate, &[part("team=t", 1)]);
    assert!(allowed, "what was denied was not charged");
}

#[test]
fn a_shadow_rule_is_charged_once_for_each_part() {
    let gate = gate(RULES);
    decide_parts(&gate, &[part("user=a", 1), part("user=b", 1)]);
    assert_eq!(left(&gate, "user=a"), [0]);
    assert_eq!(left(&gate, "user=b"), [0]);
}

#[test]
fn a_part_that_takes_nothing_is_denied_when_nothing_remains() {
    let gate = gate(RULES);
    let asks = [part("team=t", 0)];
    assert_eq!(ask(&gate, &asks), (true, vec![(true, Some(5))]));
    assert!(ask(&gate, &[part("team=t", 5)]).0);
    let decisions = decide_parts(&gate, &asks);
    let headline = decisions.iter().next().unwrap().headline().unwrap();
    assert_eq!(headline.outcome.remaining, 0);
    assert!(matches!(headline.outcome.retry, Retry::After(_)));
    // And the other part is not charged.
    let mixed = [part("domain=web user=a", 1), part("team=t", 0)];
    assert_eq!(
        ask(&gate, &mixed),
        (false, vec![(true, Some(3)), (false, Some(0))])
    );
    assert_eq!(left(&gate, "domain=web user=a")[0], 3);
}

/// The same rules, which settle.
fn settling() -> String {
    RULES.replace(
        "algorithm: fixed_window",
        "algorithm: fixed_window, settle: true",
    )
}

#[test]
fn what_was_spent_and_does_not_fit_is_taken_by_rules_that_settle() {
    let gate = gate(&settling());
    let (allowed, parts) = ask(&gate, &[spent("team=t", 4)]);
    assert!(allowed && parts == [(true, Some(1))]);
    let (allowed, parts) = ask(&gate, &[spent("team=t", 4)]);
    assert!(!allowed && parts == [(false, Some(0))]);
    assert_eq!(left(&gate, "team=t"), [0]);
    // At the end of a stream every charge is spent: one that is over keeps no other from counting.
    let parts = [spent("domain=web user=a", 2), spent("team=t", 1)];
    assert!(!ask(&gate, &parts).0);
    assert_eq!(left(&gate, "domain=web user=a")[0], 1);
    // Next to one that is not, what fits is not charged with a request that does not go on.
    let parts = [spent("domain=web user=a", 1), part("team=t", 1)];
    assert!(!ask(&gate, &parts).0);
    assert_eq!(left(&gate, "domain=web user=a")[0], 1);
}

/// A bucket of 100 with 50 left, and a part that spent 80: what was left is gone, so the same 80 need 48 seconds.
#[test]
fn the_wait_of_a_part_that_was_settled_is_that_after_it() {
    let list = "- {id: bytes, per: [team], limit: 100/minute, settle: true}";
    waits_after_settling(&gate(list));
    waits_after_settling(&FailingGate::new(FailingStore::default(), rules(list)));
    waits_after_settling(&FailingGate::new(FailingStore::unreachable(), rules(list)));
}

fn waits_after_settling(gate: &Gate) {
    let ask = |seconds: u64, cost: u64| {
        let mut part = spent("team=t", cost);
        part.attributes = part.attributes.at(NOW + Micros::from_seconds(seconds));
        decide_parts(gate, &[part])
    };
    assert!(ask(0, 50).is_allowed());
    let denied = ask(0, 80);
    assert!(!denied.is_allowed());
    let first = denied.iter().next().unwrap();
    assert_eq!(first.retry_after(), Some(Duration::from_secs(48)));
    assert!(ask(48, 80).is_allowed());
}

/// Such a part takes nothing, so it does not matter that it was not spent.
#[test]
fn what_was_spent_is_taken_next_to_a_part_that_only_asks() {
    let gate = gate(&settling());
    let parts = [
        spent("domain=web user=a", 2),
        spent("team=t", 6),
        part("team=u", 0),
    ];
    assert!(!ask(&gate, &parts).0);
    assert_eq!(left(&gate, "domain=web user=a")[0], 1);
}

/// The store denies it, and is gone when it is asked to take what is left. What it may have taken is not counted here.
#[tokio::test]
async fn what_was_spent_is_owed_if_the_store_certainly_did_not_take_it() {
    let list = "
- {id: bytes, per: [user], limit: 5/minute, settle: true}
- {id: requests, per: [user], limit: 100/minute}";
    for (state, waiting) in [
        (StoreState::Up, 0),
        (StoreState::Unreachable, 1),
        (StoreState::Silent, 0),
    ] {
        let gate = FailingGate::new(FailingStore::answering(0), rules(list));
        let parts = [spent("user=a", 9)];
        let rules = gate.rules();
        let deciding = gate.decide_by(&rules, FrontEnd::Grpc, &parts[..]);
        let fail = async {
            gate.store().switch(state);
            gate.store().answers.add_permits(1);
        };
        let (receipt, ()) = tokio::join!(deciding, fail);
        assert!(receipt.decision().is_denied());
        assert!(!receipt.decision().is_degraded());
        assert_eq!(gate.unreconciled().waiting, waiting, "{state:?}");
    }
}

#[test]
fn what_was_spent_and_does_not_fit_takes_nothing_without_settle() {
    let gate = gate(RULES);
    assert!(ask(&gate, &[spent("team=t", 4)]).0);
    let over = (false, vec![(false, Some(1))]);
    assert_eq!(ask(&gate, &[spent("team=t", 4)]), over);
    assert_eq!(left(&gate, "team=t"), [1]);
    let parts = [spent("domain=web user=a", 2), spent("team=t", 4)];
    assert!(!ask(&gate, &parts).0);
    assert_eq!(left(&gate, "domain=web user=a")[0], 3);
    // A limit of the caller is no rule that settles either.
    let brought = || Part {
        is_spent: true,
        attributes: request("team=u").with_cost(2),
        ..bringing("", "3/minute")
    };
    for _ in 0..2 {
        ask(&gate, &[brought()]);
    }
    let one = Part {
        attributes: request("team=u"),
        ..brought()
    };
    assert!(ask(&gate, &[one]).0, "one of three is left");
}

#[test]
fn each_rule_settles_for_itself() {
    let list = "
- {id: requests, per: [user], limit: 2/minute, algorithm: fixed_window}
- {id: bytes, per: [user], limit: 100/minute, algorithm: fixed_window, settle: true}
- {id: seen, per: [user], limit: 50/minute, algorithm: fixed_window, mode: shadow, settle: true}
";
    let gate = gate(list);
    assert!(!ask(&gate, &[spent("user=a", 70)]).0);
    assert_eq!(left(&gate, "user=a"), [2, 30, 0]);
}

#[test]
fn a_limit_that_is_brought_stands_in_the_place_of_the_rules() {
    let gate = gate(RULES);
    let mine = || bringing("domain=web user=a", "1/minute");
    let both = [mine(), part("team=t", 1)];
    assert_eq!(
        ask(&gate, &both),
        (true, vec![(true, Some(0)), (true, Some(4))])
    );
    assert_eq!(
        ask(&gate, &both),
        (false, vec![(false, Some(0)), (true, Some(4))])
    );
    assert_eq!(left(&gate, "team=t"), [4], "all or nothing");
    assert_eq!(
        left(&gate, "domain=web user=a")[0],
        3,
        "the rule was not asked"
    );
    let other = bringing("domain=web user=b", "1/minute");
    assert!(ask(&gate, &[other]).0, "each descriptor has its own");
}

#[test]
fn parts_go_on_without_the_store_as_their_rules_say() {
    let list = "
- {id: a, per: [a], limit: 2/minute, settle: true}
- {id: b, per: [b], limit: 4/minute, on_store_failure: deny}
";
    let gate = FailingGate::new(FailingStore::default(), rules(list));
    gate.store().switch(StoreState::Unreachable);
    let parts = [part("a=1", 1), part("b=1", 1)];
    let decisions = decide_parts(&gate, &parts);
    assert!(!decisions.is_allowed() && decisions.is_failed());
    for expected in [true, true, false] {
        assert_eq!(
            ask(&gate, &[part("a=1", 1)]).0,
            expected,
            "nothing was charged before"
        );
    }
    assert!(
        !ask(&gate, &[part("a=1", 0)]).0,
        "asked of this instance alone"
    );
    let spends = [spent("a=2", 5)];
    assert!(!ask(&gate, &spends).0);
    assert!(
        !ask(&gate, &[part("a=2", 1)]).0,
        "settled by this instance alone"
    );
}

#[test]
fn headers_tell_of_all_parts() {
    let gate = gate(RULES);
    let parts = [part("domain=web user=a", 1), part("team=t", 1)];
    let decisions = decide_parts(&gate, &parts);
    let headers: Vec<_> = decisions.headers(&HeaderSettings::default()).collect();
    let of = |name: &str| {
        headers
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(of("x-ratelimit-remaining"), "2");
    let policy = of("ratelimit-policy");
    assert!(
        policy.contains("\"user\"") && policy.contains("\"team\""),
        "{policy}"
    );
}

pub(super) fn descriptors(text: &str) -> RuleSet {
    RuleSet::from_yaml(text).unwrap()
}

const DESCRIPTORS: &str = "
domain: web
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 2, name: everybody}
  - key: user
    value: vip
    rate_limit: {unlimited: true}
  - key: user
    value: guest
  - key: user
    value: bot-*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 1, name: bots}
  - key: path
    value: /a*
    rate_limit: {unit: hour, requests_per_unit: 1}
    descriptors:
      - key: user
        rate_limit:
          unit: second
          requests_per_unit: 3
          replaces: [{name: everybody}]
  - key: quota
    value: one
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: quota
    value: two
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 2}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: none
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: generic_key
    value: a
    descriptors:
      - key: generic_key
        value: b
        rate_limit: {unit: YEAR, requests_per_unit: 9}
  - key: bucket
    rate_limit: {unit: minute, requests_per_unit: 60}
    tidegate: {algorithm: token_bucket, burst: 3}
";

pub(super) fn entry(text: &str) -> Part<'_> {
    let mut attributes = Attributes::new().at(NOW);
    attributes.push("domain", "web");
    for pair in text.split_whitespace() {
        let (name, value) = pair.split_once('=').unwrap();
        attributes.push(name, value);
    }
    Part::new(attributes)
}

#[test]
fn each_descriptor_is_charged_on_its_own() {
    let gate = Gate::new(MemoryStore::new(), descriptors(DESCRIPTORS));
    #[rustfmt::skip]
    let story = [
        // asked                                    allowed parts
        (vec!["user=a"],                            true,   vec![(true, Some(1))]),
        (vec!["user=a", "path=/abc"],               true,   vec![(true, Some(0)), (true, Some(0))]),
        (vec!["user=a", "user=b"],                  false,  vec![(false, Some(0)), (true, Some(1))]),
        (vec!["user=a", "user=b"],                  false,  vec![(false, Some(0)), (true, Some(0))]),
        (vec!["user=vip"],                          true,   vec![(true, None)]),
        (vec!["user=guest"],                        true,   vec![(true, None)]),
        (vec!["user=bot-1"],                        true,   vec![(true, Some(0))]),
        (vec!["user=bot-2"],                        false,  vec![(false, Some(0))]),
        (vec!["path=/xyz"],                         true,   vec![(true, None)]),
        (vec!["path=/a2"],                          true,   vec![(true, Some(0))]),
        (vec!["path=/a2 user=a"],                   true,   vec![(true, Some(2))]),
        (vec!["path=/a2 user=a", "user=a"],         true,   vec![(true, Some(1)), (true, None)]),
        (vec!["path=/a2 user=a more=1"],            true,   vec![(true, None)]),
        (vec!["quota=one", "quota=two"],            true,   vec![(true, Some(0)), (true, Some(1))]),
        (vec!["quota=one", "quota=two"],            true,   vec![(false, Some(0)), (true, Some(0))]),
        (vec!["quota=one", "quota=two"],            false,  vec![(false, Some(0)), (false, Some(0))]),
        (vec!["quota=one"],                         false,  vec![(false, Some(0))]),
        (vec!["watched=1"],                         true,   vec![(true, None)]),
        (vec!["watched=1"],                         true,   vec![(true, None)]),
        (vec!["none=1"],                            false,  vec![(false, Some(0))]),
        (vec!["generic_key=a generic_key=b"],       true,   vec![(true, Some(8))]),
        (vec!["generic_key=b generic_key=a"],       true,   vec![(true, None)]),
        (vec!["generic_key=a"],                     true,   vec![(true, None)]),
        (vec!["bucket=x"],                          true,   vec![(true, Some(2))]),
        (vec!["unknown=x"],                         true,   vec![(true, None)]),
    ];
    for (asked, allowed, expected) in story {
        let parts: Vec<Part<'_>> = asked.iter().map(|text| entry(text)).collect();
        assert_eq!(ask(&gate, &parts), (allowed, expected), "{asked:?}");
    }
    assert!(gate.rules().is_unlimited(&entry("user=vip").attributes));
    assert!(!gate.rules().is_unlimited(&entry("user=guest").attributes));
}

#[test]
fn the_reason_is_that_of_the_part_that_denies_and_not_of_a_quota() {
    let gate = Gate::new(MemoryStore::new(), descriptors(DESCRIPTORS));
    let mut large = entry("quota=one");
    large.attributes = large.attributes.with_cost(5);
    let decide = |parts: &[Part<'_>]| decide_parts(&gate, parts).reason();
    assert_eq!(
        decide(std::slice::from_ref(&large)),
        Some(Reason::TooExpensive)
    );
    let parts = [entry("user=a"), large, entry("quota=two")];
    assert_eq!([decide(&parts), decide(&parts)], [None, None]);
    let parts = [parts[0].clone(), parts[1].clone(), entry("quota=three")];
    assert_eq!(decide(&parts), Some(Reason::OverLimit));
}

#[test]
fn a_descriptor_is_written_as_a_rule_is_and_where_it_stands() {
    let rules = descriptors(DESCRIPTORS);
    let rule = rules.get("web.user").unwrap();
    let expected = r#"{"id":"web.user","per":["user"],"limit":"2/minute","algorithm":"fixed_window","domain":"web","descriptor":[{"key":"user"}],"rate_limit":{"unit":"minute","requests_per_unit":2,"name":"everybody"}}"#;
    assert_eq!(rule.written().to_string(), expected);
    assert_eq!(
        rules.get("web.user_vip").unwrap().written()["limit"],
        "unlimited"
    );
}

#[test]
fn another_domain_has_no_limits_not_even_those_that_are_brought() {
    let two = format!("{DESCRIPTORS}---\ndomain: other\ndescriptors: []\n");
    let gate = Gate::new(MemoryStore::new(), descriptors(&two));
    for (domain, expected) in [("web", Some(0)), ("other", Some(0)), ("unknown", None)] {
        let mut asked = bringing("", "1/minute");
        asked.attributes.push("domain", domain);
        asked.attributes.push("user", "a");
        assert_eq!(
            ask(&gate, &[asked]),
            (true, vec![(true, expected)]),
            "{domain}"
        );
    }
}

#[test]
fn attributes_in_their_order_are_a_descriptor_too() {
    let gate = Gate::new(MemoryStore::new(), descriptors(DESCRIPTORS));
    for (text, expected) in [
        ("domain=web path=/a user=x", vec![3]),
        ("path=/a user=x", vec![3]),
        ("user=x path=/a", vec![]),
        ("domain=else user=x", vec![]),
    ] {
        assert_eq!(left(&gate, text), expected, "{text}");
    }
    assert!(ask(&gate, &[part("user=x", 1)]).0);
    block_on(gate.reset(&request("domain=web user=x"), None)).unwrap();
    assert_eq!(left(&gate, "user=x"), [2]);
}
