//! Other rules in force, and what is forgotten on request.

use super::{answered, decide, gate, left, request, rules};
use tidegate::gate::ResetError;
use tidegate::rules::{FrontEnd, Verdict};
use tidegate_testkit::block_on;

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
        ("z=1",                     None,           [8, 89, 7, 7, 100, 9]),
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
    let who = block_on(gate.reset(&request("user_id=u"), Some("both"))).unwrap_err();
    assert_eq!(
        who.to_string(),
        "rule `both` counts by `user_id` and `ip`; give these attributes"
    );
}
