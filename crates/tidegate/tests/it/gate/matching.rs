//! Which rules apply to a request.

use super::{NOW, answered, decide, gate, request, rules};
use std::time::Duration;

use tidegate::{Gate, ManualClock, MemoryStore, Micros};

#[test]
fn each_part_of_match_by_hand() {
    #[rustfmt::skip]
    let table = [
        // match                                    request                                     applies
        ("{}",                                      "",                                         true),
        ("{path: /v1/**}",                          "path=/v1",                                 true),
        ("{path: /v1/**}",                          "path=/v1/users?x=1",                       true),
        ("{path: /v1/**}",                          "path=/v2/../v1//users",                    true),
        ("{path: /v1/**}",                          "path=/%76%31/users",                       true),
        ("{path: /v1/**}",                          "path=/v10",                                false),
        ("{path: /v1/**}",                          "user_id=u1",                               false),
        ("{path: [/a, /b/*]}",                      "path=/b/7",                                true),
        ("{path: [/a, /b/*]}",                      "path=/b",                                  false),
        ("{path: /a}",                              "path=/a/",                                 true),
        ("{path: /a}",                              "path=/a;v=1/",                             true),
        ("{method: [get, POST]}",                   "method=GET",                               true),
        ("{method: [get, POST]}",                   "method=post",                              true),
        ("{method: [get, POST]}",                   "method=PUT",                               false),
        // Servers answer HEAD by the handler of GET.
        ("{method: [get, POST]}",                   "method=head",                              true),
        ("{method: GET, path: /a}",                 "method=HEAD path=/a",                      true),
        ("{method: HEAD}",                          "method=GET",                               false),
        ("{method: POST}",                          "method=HEAD",                              false),
        ("{host: API.example.com}",                 "host=api.EXAMPLE.com:8443",                true),
        ("{host: api.example.com}",                 "host=api.example.com.",                    true),
        ("{host: '*.example.org'}",                 "host=a.b.example.org",                     true),
        ("{host: '*.example.org'}",                 "host=example.org",                         false),
        ("{host: '*.example.org'}",                 "host=badexample.org",                      false),
        ("{ip: 10.0.0.0/8}",                        "ip=10.255.0.1",                            true),
        ("{ip: 10.0.0.0/8}",                        "ip=::ffff:10.1.2.3",                       true),
        ("{ip: '::ffff:10.0.0.0/104'}",             "ip=10.1.2.3",                              true),
        ("{ip: [192.0.2.1, 2001:db8::/32]}",        "ip=2001:db8::1",                           true),
        ("{ip: [192.0.2.1, 2001:db8::/32]}",        "ip=192.0.2.2",                             false),
        ("{ip: 0.0.0.0/0}",                         "ip=2001:db8::1",                           false),
        ("{ip: 0.0.0.0/0}",                         "path=/",                                   false),
        ("{attributes: {plan: [free, pro]}}",       "plan=pro",                                 true),
        ("{attributes: {plan: [free, pro]}}",       "plan=Pro",                                 false),
        ("{attributes: {plan: free, a: b}}",        "plan=free",                                false),
        ("{attributes: {plan: free, a: b}}",        "a=b plan=free",                            true),
        ("{attributes: {header.x-beta: 1}}",        "header.X-Beta=1",                          true),
        ("{attributes: {ip: 2001:DB8::1}}",         "ip=2001:db8:0::1",                         true),
        ("{attributes: {method: get}}",             "method=Get",                               true),
        ("{attributes: {path: /a//b}}",             "path=/a/b",                                true),
        ("{when: 'attributes.plan == \"free\"'}",   "plan=free",                                true),
        ("{when: 'attributes.plan == \"free\"'}",   "plan=pro",                                 false),
        ("{when: 'cost > 1'}",                      "plan=pro",                                 false),
        ("{path: /a, method: GET, host: h, ip: 1.1.1.1, attributes: {a: b}, when: 'cost == 1'}",
                                                    "path=/a method=GET host=h ip=1.1.1.1 a=b", true),
        ("{path: /a, method: GET, host: h, ip: 1.1.1.1, attributes: {a: b}, when: 'cost == 2'}",
                                                    "path=/a method=GET host=h ip=1.1.1.1 a=b", false),
        ("{path: /a, method: GET, host: h, ip: 1.1.1.2, attributes: {a: b}}",
                                                    "path=/a method=GET host=h ip=1.1.1.1 a=b", false),
        ("{path: /a, method: GET, host: g, ip: 1.1.1.1, attributes: {a: b}}",
                                                    "path=/a method=GET host=h ip=1.1.1.1 a=b", false),
        ("{path: /a, method: PUT, host: h, ip: 1.1.1.1, attributes: {a: b}}",
                                                    "path=/a method=GET host=h ip=1.1.1.1 a=b", false),
    ];
    for (matching, text, applies) in table {
        let gate = gate(&format!(
            "- {{id: r, match: {matching}, per: [], limit: 9/minute}}"
        ));
        let decision = decide(&gate, &request(text));
        assert_eq!(
            answered(&decision).len(),
            usize::from(applies),
            "{matching} {text}"
        );
    }
}

#[test]
fn a_request_that_no_rule_is_about_is_allowed() {
    for list in [
        "  []",
        "- {id: r, match: {path: /a}, per: [], limit: blocked}",
    ] {
        let decision = decide(&gate(&format!("{list}\n")), &request("path=/b"));
        assert!(decision.is_allowed() && !decision.is_degraded());
        assert_eq!((decision.rule(), decision.permit()), (None, None));
        assert_eq!(decision.delay(), Duration::ZERO);
        assert!(decision.is_unmatched());
        assert_eq!(
            decision
                .headers(&tidegate::headers::HeaderSettings::default())
                .count(),
            0
        );
    }
}

#[test]
fn a_condition_that_fails_does_not_match_and_is_counted() {
    let gate = gate(
        "- {id: r, match: {path: /a, when: 'attributes[\"region\"] == \"eu\"'}, per: [], limit: blocked}",
    );
    let failures = || gate.rules().get("r").unwrap().counts().condition_failures();
    assert!(decide(&gate, &request("path=/a")).is_allowed());
    assert_eq!(failures(), 1);
    assert!(decide(&gate, &request("path=/b")).is_allowed());
    assert_eq!(failures(), 1, "the other parts of `match` come first");
    assert!(decide(&gate, &request("path=/a region=eu")).is_denied());
    assert!(decide(&gate, &request("path=/a region=us")).is_allowed());
    assert_eq!(failures(), 1);
}

#[test]
fn a_rule_starts_exactly_at_its_start() {
    let list = "- {id: r, per: [], limit: blocked, starts_at: 2026-11-15T00:00:00Z, expires_at: 2026-11-15T02:00:00+01:00}";
    let supplied = gate(list);
    let hour = Micros::from_seconds(3_600);
    #[rustfmt::skip]
    let table = [
        (NOW - Micros::new(1),          true),
        (NOW,                           false),
        (NOW + hour - Micros::new(1),   false),
        (NOW + hour,                    true),
    ];
    for (at, allowed) in table {
        let decision = decide(&supplied, &request("a=b").at(at));
        assert_eq!(decision.is_allowed(), allowed, "{at:?}");
    }

    let clock = ManualClock::new(NOW - Micros::new(1));
    let gate = Gate::with_clock(MemoryStore::new(), rules(list), clock.clone());
    let attributes = tidegate::Attributes::new();
    assert!(decide(&gate, &attributes).is_allowed());
    clock.advance(Micros::new(1));
    assert!(decide(&gate, &attributes).is_denied());
    // The time of the request counts, not that of the clock.
    let early = attributes.at(NOW - Micros::new(1));
    assert!(decide(&gate, &early).is_allowed());
}

#[test]
fn a_rule_ends_exactly_at_its_end() {
    let list = "- {id: r, per: [], limit: blocked, expires_at: 2026-11-15T00:00:00Z}";
    assert_eq!(NOW.as_micros() % 1_000_000, 0);
    let end = tidegate::Timestamp::from_seconds(1_794_700_800);
    assert_eq!(end, NOW, "2026-11-15 00:00:00 UTC");
    let supplied = gate(list);
    let before = request("a=b").at(NOW - Micros::new(1));
    assert!(decide(&supplied, &before).is_denied());
    assert!(decide(&supplied, &request("a=b")).is_allowed());

    let clock = ManualClock::new(NOW - Micros::new(1));
    let gate = Gate::with_clock(MemoryStore::new(), rules(list), clock.clone());
    let attributes = tidegate::Attributes::new();
    assert!(decide(&gate, &attributes).is_denied());
    clock.advance(Micros::new(1));
    assert!(decide(&gate, &attributes).is_allowed());
}
