//! A file of envoyproxy/ratelimit means here what it means there.

use super::parts::{ask, bringing, descriptors, entry};
use super::{decide_parts, request};
use tidegate::gate::Part;
use tidegate::headers::HeaderSettings;
use tidegate::rules::{Grant, RuleSet, RuleSettings, Source};
use tidegate::{Gate, MemoryStore};
use tidegate_testkit::block_on;

const USERS: &str = "
domain: web
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 3}
";

/// What is left for an entry after it was charged; none if it is denied.
fn charge(gate: &Gate, part: Part<'_>) -> Option<u64> {
    let (is_allowed, parts) = ask(gate, &[part]);
    parts[0].1.filter(|_| is_allowed)
}

/// The entries with a limit of the caller.
fn brought<'a>(text: &'a str, limit: &str) -> Part<'a> {
    Part {
        grant: bringing("", limit).grant,
        ..entry(text)
    }
}

#[test]
fn a_value_that_gets_its_own_line_on_reload_continues_its_counter() {
    let gate = Gate::new(MemoryStore::new(), descriptors(USERS));
    assert_eq!(charge(&gate, entry("user=vip")), Some(2));
    let line = "  - {key: user, value: vip, rate_limit: {unit: day, requests_per_unit: 9}}\n";
    gate.replace_rules(descriptors(&format!("{USERS}{line}")));
    assert_eq!(charge(&gate, entry("user=vip")), Some(7), "1 of 9 was used");
    let line = "  - {key: user, value: v*, rate_limit: {unit: day, requests_per_unit: 5}}\n";
    gate.replace_rules(descriptors(&format!("{USERS}{line}")));
    assert_eq!(
        charge(&gate, entry("user=vip")),
        Some(2),
        "2 of 5 were used"
    );
    assert_eq!(charge(&gate, entry("user=v2")), Some(4), "each has its own");
    gate.replace_rules(descriptors(USERS));
    assert_eq!(charge(&gate, entry("user=vip")), None, "3 of 3 were used");
    // Another unit is another counter, and so is a domain.
    gate.replace_rules(descriptors(&USERS.replace("day", "week")));
    assert_eq!(charge(&gate, entry("user=vip")), Some(2));
}

#[test]
fn values_that_share_a_counter_have_one_of_their_own() {
    let line = "  - {key: user, value: bot-*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 3}}\n";
    let gate = Gate::new(MemoryStore::new(), descriptors(USERS));
    assert_eq!(charge(&gate, entry("user=bot-1")), Some(2));
    gate.replace_rules(descriptors(&format!("{USERS}{line}")));
    assert_eq!(charge(&gate, entry("user=bot-1")), Some(2));
    assert_eq!(charge(&gate, entry("user=bot-2")), Some(1));
    assert_eq!(charge(&gate, entry("user=other")), Some(2));
}

#[test]
fn a_value_with_a_star_means_the_line_with_the_same_text() {
    let lines = "
  - {key: user, value: v*, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: user, value: vip*, rate_limit: {unit: day, requests_per_unit: 7}}
";
    let gate = Gate::new(MemoryStore::new(), descriptors(&format!("{USERS}{lines}")));
    assert_eq!(charge(&gate, entry("user=vip*")), Some(6));
    assert_eq!(charge(&gate, entry("user=v*")), Some(4));
    assert_eq!(charge(&gate, entry("user=vip1")), Some(4), "the first line");
}

#[test]
fn a_limit_that_comes_with_a_request_continues_the_counter_of_the_file() {
    let two = format!(
        "{USERS}    descriptors: [{{key: path, rate_limit: {{unit: day, requests_per_unit: 4}}}}]\n"
    );
    let gate = Gate::new(MemoryStore::new(), descriptors(&two));
    assert_eq!(charge(&gate, entry("user=a")), Some(2));
    assert_eq!(charge(&gate, brought("user=a", "10/day")), Some(8));
    assert_eq!(charge(&gate, entry("user=a")), Some(0));
    assert_eq!(charge(&gate, brought("user=a", "3/day")), None);
    assert_eq!(
        charge(&gate, brought("user=a", "3/hour")),
        Some(2),
        "another unit"
    );
    assert_eq!(charge(&gate, brought("user=a path=/x", "9/day")), Some(8));
    assert_eq!(charge(&gate, entry("user=a path=/x")), Some(2));
    assert_eq!(
        charge(&gate, brought("path=/x user=a", "9/day")),
        Some(8),
        "another order"
    );
    // Neither is one that blocks counted, nor what it denies.
    let nothing = Part {
        grant: Some(Grant::Blocked),
        ..entry("user=b")
    };
    assert_eq!(charge(&gate, nothing), None);
    assert_eq!(charge(&gate, entry("user=b")), Some(2));
}

#[test]
fn a_charge_that_was_spent_is_taken_in_full() {
    let gate = Gate::new(MemoryStore::new(), descriptors(USERS));
    let spent = |part: Part<'static>| Part {
        attributes: part.attributes.with_cost(9),
        is_spent: true,
        grant: part.grant,
    };
    assert_eq!(charge(&gate, spent(entry("user=a"))), None);
    assert_eq!(charge(&gate, entry("user=a")), None, "all is taken");
    assert_eq!(charge(&gate, spent(brought("user=b", "5/day"))), None);
    assert_eq!(charge(&gate, brought("user=b", "9/day")), None);
    assert_eq!(
        charge(&gate, brought("user=b", "11/day")),
        Some(1),
        "9 were taken, more than the 5 that were granted"
    );
    // As one of several, too.
    ask(&gate, &[entry("user=c"), spent(entry("user=d"))]);
    assert_eq!(charge(&gate, entry("user=c")), Some(1));
    assert_eq!(charge(&gate, entry("user=d")), None);
}

const QUOTAS: &str = "
domain: web
descriptors:
  - key: quota
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: quota
    value: free
    quota_mode: true
    rate_limit: {unlimited: true}
  - key: watched
    quota_mode: true
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: limit
    rate_limit: {unit: day, requests_per_unit: 1}
";

#[test]
fn a_request_is_denied_when_all_of_its_quotas_are_exceeded() {
    let gate = Gate::new(MemoryStore::new(), descriptors(QUOTAS));
    for text in ["quota=used", "watched=used", "limit=used"] {
        assert!(ask(&gate, &[entry(text)]).0);
    }
    #[rustfmt::skip]
    let table = [
        (vec!["quota=used"],                    false),
        (vec!["quota=used", "quota=a"],         true),
        (vec!["quota=used", "quota=a"],         false),
        (vec!["quota=used", "other=x"],         false),
        (vec!["quota=used", "limit=b"],         false),
        (vec!["quota=used", "limit=used"],      false),
        (vec!["quota=c", "limit=used"],         false),
        // An unlimited one is no quota that could be left, one that only counts always is.
        (vec!["quota=used", "quota=free"],      false),
        (vec!["quota=used", "watched=used"],    true),
    ];
    for (asked, expected) in table {
        let parts: Vec<Part<'_>> = asked.iter().map(|text| entry(text)).collect();
        assert_eq!(ask(&gate, &parts).0, expected, "{asked:?}");
    }
}

#[test]
fn headers_do_not_tell_of_a_quota_that_is_exceeded_if_the_request_goes_on() {
    let gate = Gate::new(MemoryStore::new(), descriptors(QUOTAS));
    assert!(ask(&gate, &[entry("quota=used")]).0);
    let policies = |asked: [&str; 2]| {
        let decisions = decide_parts(&gate, &asked.map(entry));
        let mut headers = decisions.headers(&HeaderSettings::default());
        let policy = headers.find(|(name, _)| *name == "ratelimit-policy");
        policy.unwrap().1.split(',').count()
    };
    assert_eq!(policies(["quota=used", "quota=a"]), 1, "it is allowed");
    assert_eq!(policies(["quota=used", "quota=a"]), 2, "it is denied");
}

#[test]
fn a_reset_forgets_the_counter_of_the_line_that_is_meant() {
    let lines = "
  - {key: user, value: v*, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: user, value: root, rate_limit: {unit: day, requests_per_unit: 7}}
";
    let gate = Gate::new(MemoryStore::new(), descriptors(&format!("{USERS}{lines}")));
    assert_eq!(charge(&gate, entry("user=vip")), Some(4));
    assert_eq!(charge(&gate, entry("user=root")), Some(6));
    let reset = |text, rule| {
        let done = block_on(gate.reset(&request(text), rule)).ok()?;
        let [counter] = done.counters.as_slice() else {
            panic!("{done:?}")
        };
        Some((counter.rule.id().to_owned(), counter.limit, counter.used))
    };
    let (rule, limit, used) = reset("domain=web user=vip", None).unwrap();
    assert!(rule.starts_with("web.user_v-any-"), "{rule}");
    assert_eq!((limit, used), (5, 1));
    // All clients with that entry share it, so it has to be named.
    assert_eq!(reset("domain=web user=root", None), None);
    let named = reset("domain=web user=root", Some("web.user_root"));
    assert_eq!(named, Some(("web.user_root".to_owned(), 7, 1)));
}

#[test]
fn yaml_that_the_original_loads_is_loaded() {
    let text = "
domain: web
name: has no effect
descriptors:
  - key: user
    name: has no effect
    shadow_mode: off
    rate_limit: &daily
      unit: day
      requests_per_unit: 1_000
      shadow_mode: yes
  - key: team
    shadow_mode: Yes
    rate_limit:
      <<: *daily
      requests_per_unit: 0x10
  - key: vip
    rate_limit: {unlimited: True, requests_per_unit: 5}
  - key: none
    rate_limit:
";
    let gate = Gate::new(MemoryStore::new(), descriptors(text));
    let rules = gate.rules();
    let limit = |id: &str| rules.get(id).unwrap().written()["limit"].clone();
    assert_eq!(limit("web.user"), "1000/day");
    assert_eq!(limit("web.team"), "16/day");
    assert_eq!(limit("web.vip"), "unlimited");
    let written = &rules.descriptors().unwrap()[0]["descriptors"];
    assert_eq!(written[1]["rate_limit"]["unit"], "day");
    assert_eq!(written[0]["rate_limit"]["requests_per_unit"], 1000);
    assert_eq!(written[1]["shadow_mode"], true);
    assert_eq!(
        charge(&gate, entry("user=a")),
        Some(999),
        "`shadow_mode` has no effect there"
    );
    assert_eq!(charge(&gate, entry("team=a")), None, "it only counts");
}

const KINDS: &str = "
domain: web
descriptors:
  - {key: five, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: nothing, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: most, rate_limit: {unit: day, requests_per_unit: 4294967295}}
  - {key: log, rate_limit: {unit: day, requests_per_unit: 5}, tidegate: {algorithm: sliding_window_log}}
";

/// What a step of a story asks for.
#[derive(Debug, Clone, Copy)]
enum Hits {
    /// The cost of the whole call.
    OfCall(u64),
    /// A cost of its own.
    Own(u64),
}

/// The parts of each call in a table of decisions, one after the other on one gate. Of each: whether it is allowed, the
/// hits, and what was used before.
#[test]
fn codes_and_usage_by_hand() {
    use Hits::{OfCall, Own};
    const MOST: u64 = 4_294_967_295;
    #[rustfmt::skip]
    let table = [
        // entry        hits            allowed used before     of a shadow limit it would be
        ("five=a",      OfCall(3),      true,   0),
        ("five=a",      OfCall(3),      false,  3),
        ("five=a",      Own(0),         true,   3),
        ("five=a",      OfCall(2),      true,   3),
        ("five=a",      Own(0),         true,   5),
        ("five=a",      OfCall(1),      false,  5),
        ("five=a",      Own(4),         false,  5),
        ("five=a",      Own(0),         false,  9),
        ("five=a",      Own(1),         false,  9),
        ("five=a",      OfCall(1),      false,  10),
        ("five=b",      Own(5),         true,   0),
        ("five=b",      Own(0),         true,   5),
        ("watched=a",   Own(7),         false,  0),
        ("watched=a",   Own(0),         false,  7),
        ("watched=a",   OfCall(1),      false,  7),
        ("watched=b",   OfCall(6),      false,  0),
        ("watched=b",   OfCall(5),      true,   0),
        ("nothing=a",   Own(0),         true,   0),
        ("nothing=a",   OfCall(1),      false,  0),
        ("nothing=a",   Own(0),         true,   0),
        ("nothing=a",   Own(2),         false,  0),
        ("nothing=a",   Own(0),         false,  2),
        ("most=a",      OfCall(MOST),   true,   0),
        ("most=a",      OfCall(1),      false,  MOST),
        ("most=a",      Own(1),         false,  MOST),
        ("most=a",      Own((1 << 53) - 1), false, 0),
        ("most=a",      Own(0),         false,  (1 << 53) - 1),
        // It counts no more than it grants, so that one that asks for nothing needs one to be left.
        ("log=a",       Own(7),         false,  0),
        ("log=a",       Own(0),         false,  5),
    ];
    let gate = Gate::new(MemoryStore::new(), descriptors(KINDS));
    for (index, (text, hits, allowed, used)) in table.into_iter().enumerate() {
        let case = format!("{index}: {text} {hits:?}");
        let (cost, is_own) = match hits {
            OfCall(cost) => (cost, false),
            Own(cost) => (cost, true),
        };
        let part = entry(text);
        let part = Part {
            attributes: part.attributes.with_cost(cost),
            is_spent: is_own && cost > 0,
            grant: None,
        };
        let decisions = decide_parts(&gate, &[part]);
        let decision = decisions.iter().next().unwrap();
        let limit = decision.limits().next().unwrap();
        assert_eq!(limit.outcome.allowed, allowed, "{case}");
        assert_eq!((limit.hits(), limit.used_before()), (cost, used), "{case}");
        let is_shadow = text.starts_with("watched");
        assert_eq!(decision.is_allowed(), allowed || is_shadow, "{case}");
        assert!(!limit.outcome.is_remembered, "{case}");
    }
}

#[test]
fn a_budget_admits_one_request_more_than_it_pays_for() {
    let text = "
domain: web
descriptors:
  - {key: tokens, rate_limit: {unit: day, requests_per_unit: 20}}
";
    let gate = Gate::new(MemoryStore::new(), descriptors(text));
    let asking = |cost: u64| {
        let part = entry("tokens=a");
        let part = Part {
            attributes: part.attributes.with_cost(cost),
            is_spent: cost > 0,
            grant: None,
        };
        ask(&gate, &[part]).0
    };
    let mut admitted = 0;
    while asking(0) {
        admitted += 1;
        // What it cost is charged when its stream is done, also beyond the budget.
        asking(5);
    }
    assert_eq!(admitted, 20 / 5 + 1);
}

/// Rules by descriptors where a call is charged as a whole.
fn together(text: &str) -> RuleSet {
    let mut settings = RuleSettings::default();
    settings.all_or_nothing = true;
    RuleSet::read(&Source::new("rules.yaml", text), &settings).unwrap()
}

#[test]
fn a_call_may_charge_all_or_nothing() {
    let text = "
domain: web
descriptors:
  - {key: few, rate_limit: {unit: day, requests_per_unit: 1, name: few}}
  - {key: many, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: full, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: other, rate_limit: {unit: day, requests_per_unit: 9, replaces: [{name: few}]}}
";
    let gate = Gate::new(MemoryStore::new(), together(text));
    let used = |text: &'static str| {
        let asked = Part {
            attributes: entry(text).attributes.with_cost(0),
            ..entry(text)
        };
        let decisions = decide_parts(&gate, &[asked]);
        let limit = decisions.iter().next().unwrap().limits().next().unwrap();
        limit.used_before()
    };
    let all = ["few=a", "many=a", "watched=a"];
    let call = |texts: &[&'static str]| {
        let parts: Vec<Part<'_>> = texts.iter().map(|text| entry(text)).collect();
        let decisions = decide_parts(&gate, &parts);
        let used = |decision: &tidegate::gate::Decision| {
            decision.limits().next().map(|limit| limit.used_before())
        };
        let used: Vec<Option<u64>> = decisions.iter().map(used).collect();
        (decisions.is_allowed(), used)
    };
    assert_eq!(call(&all), (true, vec![Some(0), Some(0), Some(0)]));
    assert_eq!(call(&all), (false, vec![Some(1), Some(1), Some(1)]));
    assert_eq!(all.map(used), [1, 1, 1], "nothing was charged");
    // One that only counts denies nothing.
    assert!(call(&["many=a", "full=a"]).0);
    assert_eq!(used("many=a"), 2);
    // A quota that is used up denies only with the others, and the request is charged where it goes on.
    assert!(call(&["quota=a", "many=a"]).0);
    assert!(call(&["quota=a", "quota=b", "many=a"]).0);
    assert_eq!([used("quota=b"), used("many=a")], [1, 4]);
    // What is replaced denies nothing.
    assert!(call(&["few=a", "other=a"]).0);
    assert_eq!(used("other=a"), 1);
    // With a cost of its own, each is charged on its own.
    let own = Part {
        is_spent: true,
        ..entry("many=a")
    };
    assert!(!ask(&gate, &[entry("few=a"), own]).0);
    assert_eq!(used("many=a"), 5);
}

#[test]
fn every_limit_may_be_a_quota() {
    let mut settings = RuleSettings::default();
    settings.quota = true;
    let text = "
domain: web
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 2}}
";
    let rules = RuleSet::read(&Source::new("rules.yaml", text), &settings).unwrap();
    let gate = Gate::new(MemoryStore::new(), rules);
    for (expected, codes) in [
        (true, [true, true]),
        (true, [false, true]),
        (false, [false, false]),
    ] {
        let (is_allowed, parts) = ask(&gate, &[entry("a=x"), entry("b=x")]);
        assert_eq!((is_allowed, [parts[0].0, parts[1].0]), (expected, codes));
    }
    assert!(!ask(&gate, &[entry("a=x")]).0);
    // So is one that comes with a call.
    let mine = || brought("a=y", "1/day");
    assert!(ask(&gate, &[mine(), entry("b=y")]).0);
    assert!(ask(&gate, &[mine(), entry("b=y")]).0);
    assert!(!ask(&gate, &[mine(), entry("b=y")]).0);
}
