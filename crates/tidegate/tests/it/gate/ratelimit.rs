//! A file of envoyproxy/ratelimit means here what it means there.

use super::parts::{ask, bringing, descriptors, entry};
use super::{decide_parts, request};
use tidegate::gate::Part;
use tidegate::headers::HeaderSettings;
use tidegate::rules::Grant;
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
fn a_charge_that_was_spent_takes_what_is_left() {
    let gate = Gate::new(MemoryStore::new(), descriptors(USERS));
    let spent = |part: Part<'static>| Part {
        attributes: part.attributes.with_cost(9),
        is_spent: true,
        grant: part.grant,
    };
    assert_eq!(charge(&gate, spent(entry("user=a"))), None);
    assert_eq!(charge(&gate, entry("user=a")), None, "all is taken");
    assert_eq!(charge(&gate, spent(brought("user=b", "5/day"))), None);
    assert_eq!(
        charge(&gate, brought("user=b", "6/day")),
        Some(0),
        "5 were taken"
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
