//! Who pays, how much, and what the answer says.

use super::{NOW, answered, decide, gate, left, request};
use std::time::Duration;

use tidegate::headers::HeaderSettings;
use tidegate::rules::{FrontEnd, Verdict};
use tidegate::{Micros, Retry};
use tidegate_testkit::block_on;

#[test]
fn an_override_comes_before_a_tier_and_a_tier_before_the_limit() {
    let gate = gate(
        "- id: r
  per: [user_id, region]
  missing: deny
  limit: 1/minute
  tiers: {pro: 10/minute, staff: unlimited, banned: blocked, 007: 7/minute}
  overrides: {vip: 100/minute, root: unlimited, bad: blocked, null: 5/minute}",
    );
    #[rustfmt::skip]
    let table = [
        ("user_id=u",               Some(1)),
        ("user_id=u tier=pro",      Some(10)),
        ("user_id=u tier=Pro",      Some(1)),
        ("user_id=u tier=007",      Some(7)),
        ("user_id=u tier=staff",    None),
        ("user_id=u tier=banned",   Some(0)),
        ("user_id=vip",             Some(100)),
        ("user_id=vip tier=staff",  Some(100)),
        ("user_id=vip tier=banned", Some(100)),
        ("user_id=root tier=banned", None),
        ("user_id=bad tier=staff",  Some(0)),
        ("user_id=null",            Some(5)),
    ];
    for (text, limit) in table {
        let decision = decide(&gate, &request(&format!("{text} region=eu")).with_cost(0));
        let headline = decision.headline().map(|answer| answer.outcome.limit);
        assert_eq!(headline, limit, "{text}");
        assert_eq!(decision.is_allowed(), limit != Some(0), "{text}");
    }
}

#[test]
fn who_is_blocked_is_denied_for_good_and_at_no_cost() {
    let gate = gate("- {id: r, per: [ip], limit: 9/minute, overrides: {203.0.113.7: blocked}}");
    for cost in [0, 1, u64::MAX] {
        let decision = decide(&gate, &request("ip=203.0.113.7").with_cost(cost));
        let outcome = decision.headline().unwrap().outcome;
        assert_eq!(
            (outcome.allowed, outcome.retry),
            (false, Retry::Never),
            "{cost}"
        );
        let names: Vec<_> = decision
            .headers(&HeaderSettings::default())
            .map(|(name, _)| name)
            .collect();
        assert!(!names.contains(&"retry-after"), "waiting does not help");
    }
}

#[test]
fn a_request_without_its_identity_is_skipped_shared_or_denied() {
    let gate = gate(
        "- {id: skip, per: [a, b], missing: skip, limit: 9/minute}
- {id: share, per: [a, b], missing: share, limit: 9/minute}
- {id: deny, match: {path: /deny}, per: [a], missing: deny, limit: 9/minute, tiers: {staff: unlimited}}",
    );
    assert_eq!(answered(&decide(&gate, &request("a=1"))), ["share"]);
    assert_eq!(answered(&decide(&gate, &request("b=1"))), ["share"]);
    assert_eq!(left(&gate, "c=1"), [7], "all share one counter");
    assert_eq!(left(&gate, "a=1 b=1"), [9, 9], "who is known does not");
    let denied = decide(&gate, &request("path=/deny b=1").with_cost(0));
    assert!(denied.is_denied());
    assert_eq!(denied.rule(), Some("deny"));
    assert!(denied.headline().unwrap().limit.is_none(), "none was asked");
    let staff = decide(&gate, &request("path=/deny b=1 tier=staff"));
    assert!(staff.is_denied(), "a tier is no identity");
    assert!(decide(&gate, &request("path=/deny a=1 tier=staff")).is_allowed());
}

#[test]
fn values_that_look_alike_when_joined_are_apart() {
    let gate =
        gate("- {id: r, per: [x, y], limit: 9/minute}\n- {id: all, per: [], limit: 100/minute}");
    let pairs = [
        "x=a:b y=c",
        "x=a y=b:c",
        "x=1:a1:b y=c",
        "x=1:a y=1:bc",
        "x=ab y=c",
        "x=a y=bc",
        "x=a,b y=c",
        "x=c y=a:b",
    ];
    for pair in pairs {
        assert_eq!(left(&gate, pair)[0], 9, "{pair}");
        decide(&gate, &request(pair));
        assert_eq!(left(&gate, pair)[0], 8, "{pair}");
    }
    assert_eq!(left(&gate, "z=1"), [92], "one counter for all");
    // The shared counter has a name that no value can have.
    let shared = super::gate("- {id: r, per: [x, y], missing: share, limit: 9/minute}");
    decide(&shared, &request("x=1"));
    assert_eq!(left(&shared, "x=0: y=0:"), [9]);
}

#[test]
fn addresses_are_counted_by_subscriber() {
    let gate = gate(
        "- {id: r, per: [ip], limit: 9/minute, overrides: {'2001:db8:0:1::9': 2/minute, '2001:db8:0:2::/64': 3/minute, '::ffff:192.0.2.1': 4/minute}}",
    );
    #[rustfmt::skip]
    let table = [
        ("ip=203.0.113.7",          "ip=::ffff:203.0.113.7",    [8]),
        ("ip=2001:db8::1",          "ip=2001:db8::ffff:1",      [8]),
        ("ip=2001:db8:0:3::1",      "ip=2001:db8:0:4::1",       [9]),
        ("ip=203.0.113.8",          "ip=203.0.113.9",           [9]),
        ("ip=2001:db8:0:1::1",      "ip=2001:db8:0:1::2",       [1]),
        ("ip=2001:db8:0:2::1",      "ip=2001:db8:0:2::2",       [2]),
        ("ip=192.0.2.1",            "ip=::ffff:192.0.2.1",      [3]),
    ];
    for (first, second, expected) in table {
        decide(&gate, &request(first));
        assert_eq!(left(&gate, second), expected, "{first} {second}");
    }
}

#[test]
fn a_cost_is_multiplied_and_an_attribute_may_tell_it() {
    let gate = gate(
        "- {id: fixed, per: [], cost: 3, limit: 1000/minute}\n- {id: given, per: [], cost: {attribute: bytes}, limit: 1000/minute}",
    );
    #[rustfmt::skip]
    let table = [
        // request           cost   fixed   given   unread
        ("a=b",             1,      3,      1,      0),
        ("bytes=10",        1,      3,      10,     0),
        ("bytes=10",        2,      6,      20,     0),
        ("bytes=0",         2,      6,      0,      0),
        ("bytes=ten",       2,      6,      2,      1),
        ("bytes=-5",        1,      3,      1,      1),
        ("bytes=+5",        1,      3,      1,      1),
        ("bytes=1.5",       1,      3,      1,      1),
        ("bytes=10",        0,      0,      0,      0),
    ];
    let unread = || gate.rules().get("given").unwrap().counts().unread_costs();
    for (text, cost, fixed, given, more) in table {
        let (before, unread_before) = (left(&gate, "z=1"), unread());
        assert!(
            decide(&gate, &request(text).with_cost(cost)).is_allowed(),
            "{text}"
        );
        let after = left(&gate, "z=1");
        assert_eq!(
            [before[0] - after[0], before[1] - after[1]],
            [fixed, given],
            "{text} {cost}"
        );
        assert_eq!(unread() - unread_before, more, "{text}");
    }
    for (bytes, cost) in [
        ("99999999999999999999999999", 1),
        ("18446744073709551615", 2),
        ("1001", 1),
    ] {
        let decision = decide(&gate, &request(&format!("bytes={bytes}")).with_cost(cost));
        assert_eq!(
            (decision.is_denied(), decision.rule()),
            (true, Some("given")),
            "{bytes}"
        );
        assert_eq!(decision.headline().unwrap().outcome.retry, Retry::Never);
    }
}

#[test]
fn a_denied_request_charges_no_rule() {
    let gate = gate(
        "- {id: wide, per: [], limit: 100/minute}
- {id: narrow, per: [user_id], missing: deny, limit: 2/minute; 50/hour}
- {id: blocked, match: {path: /no}, per: [], limit: blocked}",
    );
    for expected in [true, true, false, false] {
        assert_eq!(decide(&gate, &request("user_id=u")).is_allowed(), expected);
    }
    assert_eq!(left(&gate, "user_id=u"), [98, 0, 48]);
    let denied = decide(&gate, &request("user_id=v path=/no"));
    assert_eq!((denied.is_denied(), denied.rule()), (true, Some("blocked")));
    let said: Vec<bool> = denied
        .limits()
        .map(|answer| answer.outcome.allowed)
        .collect();
    assert_eq!(
        said,
        [true, true, true, false],
        "each limit answers for itself"
    );
    assert_eq!(
        left(&gate, "user_id=v"),
        [98, 2, 50],
        "no limit was charged"
    );
    assert!(
        decide(&gate, &request("a=b")).is_denied(),
        "an identity is missing"
    );
    assert_eq!(left(&gate, "user_id=v"), [98, 2, 50]);
}

#[test]
fn the_rule_that_decides_speaks_for_all() {
    let gate = gate(
        "- {id: wide, per: [], limit: 5/minute}
- {id: same, per: [], limit: 5/hour}
- {id: second, per: [user_id], limit: 4/second burst 1}
- {id: shadow, per: [], mode: shadow, limit: 1/minute}",
    );
    let name = |text: &str, cost: u64| {
        let decision = decide(&gate, &request(text).with_cost(cost));
        decision.headline().map(|answer| answer.name().into_owned())
    };
    assert_eq!(
        name("a=b", 0).as_deref(),
        Some("wide"),
        "the same: the order of the rules"
    );
    assert_eq!(
        name("a=b", 1).as_deref(),
        Some("same"),
        "as few left, longer to reset"
    );
    assert_eq!(
        name("user_id=u", 1).as_deref(),
        Some("second"),
        "the fewest left"
    );
    assert_eq!(
        name("user_id=u", 1).as_deref(),
        Some("second"),
        "the one that denies"
    );
    let decision = decide(&gate, &request("user_id=u").with_cost(2));
    let headline = decision.headline().unwrap();
    assert_eq!(
        (headline.rule.id(), headline.outcome.retry),
        ("second", Retry::Never)
    );
    assert_eq!(name("a=b", 3).as_deref(), Some("same"));
    assert_eq!(
        name("user_id=u", 1).as_deref(),
        Some("same"),
        "of those that deny the longest wait"
    );
}

#[test]
fn a_decision_says_what_the_rule_that_decides_said() {
    let gate = gate("- {id: r, per: [user_id], limit: 2/minute, algorithm: fixed_window}");
    let end = NOW + Micros::MINUTE;
    let first = decide(&gate, &request("user_id=u"));
    assert_eq!((first.limit(), first.remaining()), (Some(2), Some(1)));
    assert_eq!(first.reset_at(), Some(end.into()));
    assert_eq!(first.seconds_to_retry(), None, "it is allowed");
    assert_eq!(decide(&gate, &request("user_id=u")).remaining(), Some(0));
    let denied = decide(&gate, &request("user_id=u"));
    assert_eq!((denied.limit(), denied.remaining()), (Some(2), Some(0)));
    assert_eq!(denied.reset_at(), Some(end.into()));
    assert_eq!(denied.retry_after(), Some(Duration::from_mins(1)));
    assert_eq!(denied.seconds_to_retry(), Some(60));
    let unlimited = decide(&gate, &request("a=b"));
    assert_eq!((unlimited.limit(), unlimited.remaining()), (None, None));
    assert_eq!(
        (unlimited.reset_at(), unlimited.retry_after()),
        (None, None)
    );
}

#[test]
fn shadow_rules_pay_on_their_own_and_change_nothing() {
    let enforced = "- {id: wide, per: [], limit: 3/minute}\n";
    let list = format!(
        "- {{id: before, per: [], mode: shadow, limit: 1/minute}}\n{enforced}- {{id: after, per: [], mode: shadow, limit: 10/minute; 5/hour, algorithm: leaky_bucket}}
- {{id: never, per: [], mode: shadow, limit: blocked}}"
    );
    let (gate, plain) = (gate(&list), gate(enforced));
    for step in 0..6 {
        let (decision, expected) = (
            decide(&gate, &request("a=b")),
            decide(&plain, &request("a=b")),
        );
        assert_eq!(decision.is_allowed(), expected.is_allowed(), "{step}");
        assert_eq!(decision.rule(), expected.rule());
        assert_eq!(
            decision.delay(),
            Duration::ZERO,
            "the bucket that only counts delays no request"
        );
        let headers = |decision: &tidegate::gate::Decision| -> Vec<_> {
            decision.headers(&HeaderSettings::default()).collect()
        };
        assert_eq!(headers(&decision), headers(&expected), "{step}");
        decision.count(FrontEnd::Library);
    }
    assert_eq!(
        left(&gate, "a=b"),
        [0, 0, 5, 0, 0],
        "charged for what was denied, too; all its limits or none"
    );
    let counted = |id: &str| {
        Verdict::ALL.map(|verdict| {
            gate.rules()
                .get(id)
                .unwrap()
                .counts()
                .decisions(FrontEnd::Library, verdict)
        })
    };
    assert_eq!(counted("before"), [0, 0, 1, 5, 0, 0]);
    assert_eq!(counted("wide"), [3, 3, 0, 0, 0, 0]);
    assert_eq!(counted("after"), [0, 0, 5, 1, 0, 0]);
    assert_eq!(counted("never"), [0, 0, 0, 6, 0, 0]);
}

#[test]
fn one_permit_holds_all_limits_on_holders() {
    let gate = gate(
        "- {id: one, per: [user_id], limit: 2, algorithm: concurrency}
- {id: two, per: [], limit: 3, algorithm: concurrency}
- {id: rate, per: [], limit: 100/minute}",
    );
    let first = decide(&gate, &request("user_id=u"));
    let permit = first.permit().unwrap();
    assert_eq!(left(&gate, "user_id=u"), [1, 2, 99]);
    assert_eq!(
        decide(&gate, &request("user_id=u").with_cost(0)).permit(),
        None,
        "asking takes no permit"
    );
    let second = decide(&gate, &request("user_id=u")).permit().unwrap();
    assert_ne!(second, permit);
    let denied = decide(&gate, &request("user_id=u"));
    assert_eq!((denied.is_denied(), denied.permit()), (true, None));
    assert_eq!(
        left(&gate, "user_id=v"),
        [2, 1, 98],
        "the other limits were not held"
    );
    assert!(block_on(gate.release(permit)).unwrap());
    assert!(!block_on(gate.release(permit)).unwrap(), "only once");
    assert_eq!(
        left(&gate, "user_id=u"),
        [1, 2, 98],
        "what was used of a rate stays used"
    );
    assert!(block_on(gate.renew(second)).unwrap() && !block_on(gate.renew(permit)).unwrap());
    assert!(
        decide(&gate, &request("path=/x").at(NOW))
            .permit()
            .is_some()
    );
}

#[test]
fn a_permit_is_named_only_if_something_is_held_under_it() {
    let gate = gate(
        "- {id: counted, per: [], limit: 1, algorithm: concurrency, mode: shadow}
- {id: rate, per: [], limit: 100/minute}",
    );
    let permit = decide(&gate, &request("z=1")).permit().unwrap();
    let second = decide(&gate, &request("z=1"));
    assert_eq!((second.is_allowed(), second.permit()), (true, None));
    assert!(block_on(gate.release(permit)).unwrap());
    assert!(decide(&gate, &request("z=1")).permit().is_some());
}

#[test]
fn a_request_is_held_for_the_longest_delay() {
    let gate = gate(
        "- {id: one, per: [], limit: 60/minute, algorithm: leaky_bucket}
- {id: two, per: [], limit: 1/minute, max_delay: 5m}
- {id: narrow, match: {path: /a}, per: [], limit: blocked}",
    );
    assert_eq!(decide(&gate, &request("z=1")).delay(), Duration::ZERO);
    assert_eq!(
        decide(&gate, &request("z=1")).delay(),
        Duration::from_mins(1)
    );
    assert_eq!(
        decide(&gate, &request("path=/a")).delay(),
        Duration::ZERO,
        "it does not go on"
    );
}

#[test]
fn an_override_may_name_the_hash_of_a_value() {
    // What `printf %s k2 | sha256sum` says.
    let hash = "sha256:015F7E6BC5aeaf483724089e9252cc13b50951a6b69412522765cff4d780306e";
    for name in ["api_key", "user_id", "header.x-key"] {
        let gate = gate(&format!(
            "- {{id: a, per: [{name}], limit: 10/minute, overrides: {{{hash}: 100/minute, clear: 50/minute}}}}"
        ));
        let left = |value: &str| left(&gate, &format!("{name}={value}"));
        assert_eq!(left("k2"), [100]);
        assert_eq!(left("clear"), [50]);
        assert_eq!(left("k1"), [10]);
        assert_eq!(left(hash), [10]);
        assert_eq!(left(&hash.to_lowercase()), [10], "the hash is not the key");
    }
}
