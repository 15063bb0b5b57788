//! Requests to which a rule does not apply although it matches.

use tidegate::Attributes;
use tidegate::path::EncodedSlashes;

use super::{NOW, decide, gate, request};

#[test]
fn each_part_of_an_exception_by_hand() {
    #[rustfmt::skip]
    let table = [
        // except                                           request                             applies
        ("[]",                                              "path=/healthz",                    true),
        ("[{path: /healthz}]",                              "path=/healthz",                    false),
        ("[{path: /healthz}]",                              "path=//healthz/",                  false),
        ("[{path: /healthz}]",                              "path=/healthz/x",                  true),
        ("[{path: /healthz}]",                              "ip=10.0.0.1",                      true),
        ("[{path: /healthz}, {ip: [10.0.0.0/8]}]",          "path=/ ip=10.0.0.1",               false),
        ("[{path: /healthz}, {ip: [10.0.0.0/8]}]",          "path=/healthz ip=1.0.0.1",         false),
        ("[{path: /healthz}, {ip: [10.0.0.0/8]}]",          "path=/ ip=1.0.0.1",                true),
        ("[{path: /healthz, ip: 10.0.0.0/8}]",              "path=/healthz ip=1.0.0.1",         true),
        ("[{path: /healthz, ip: 10.0.0.0/8}]",              "path=/healthz",                    true),
        ("[{path: /healthz, ip: 10.0.0.0/8}]",              "path=/healthz ip=10.0.0.1",        false),
        ("[{method: options}]",                             "method=OPTIONS",                   false),
        ("[{host: '*.example.org'}]",                       "host=a.example.org",               false),
        ("[{host: '*.example.org'}]",                       "path=/",                           true),
        ("[{attributes: {plan: [internal]}}]",              "plan=internal",                    false),
        ("[{attributes: {plan: [internal]}}]",              "plan=free",                        true),
        ("[{when: 'cost < 2'}]",                            "path=/",                           false),
        ("[{when: 'attributes.plan == \"x\"'}]",            "plan=x",                           false),
        ("[{when: 'attributes.plan == \"x\"'}]",            "plan=y",                           true),
        ("[{when: 'attributes.plan == \"x\"'}]",            "path=/",                           true),
    ];
    for (except, text, applies) in table {
        let gate = gate(&format!(
            "- {{id: r, except: {except}, per: [], limit: blocked}}"
        ));
        let decision = decide(&gate, &request(text));
        assert_eq!(decision.is_denied(), applies, "{except} {text}");
    }
}

#[test]
fn a_path_that_a_server_may_read_as_another_one_is_not_exempt() {
    let gate = gate("- {id: r, except: [{path: /healthz}], per: [], limit: blocked}");
    #[rustfmt::skip]
    let table = [
        ("/healthz",        false),
        ("/healthz?x=%68",  false),
        ("/healt%68z",      true),
        ("/%68ealthz/",     true),
        ("/healthz;x",      true),
    ];
    for (path, applies) in table {
        let mut attributes = Attributes::new().at(NOW);
        attributes
            .insert_raw_path(path, EncodedSlashes::Keep)
            .unwrap();
        assert_eq!(decide(&gate, &attributes).is_denied(), applies, "{path}");
    }
}

#[test]
fn a_condition_of_an_exception_that_fails_does_not_hold_and_is_counted_once() {
    let gate = gate(
        "- {id: r, match: {path: /a}, per: [], limit: blocked, except: [{when: 'attributes.a == \"1\"'}, {when: 'attributes.b == \"1\"'}]}",
    );
    let failures = || gate.rules().get("r").unwrap().counts().condition_failures();
    assert!(decide(&gate, &request("path=/a")).is_denied());
    assert_eq!(failures(), 1);
    assert!(decide(&gate, &request("path=/b")).is_allowed());
    assert_eq!(failures(), 1, "`match` comes first");
    assert!(decide(&gate, &request("path=/a a=2 b=2")).is_denied());
    assert_eq!(failures(), 1);
    // The other item still exempts it.
    assert!(decide(&gate, &request("path=/a b=1")).is_allowed());
    assert_eq!(failures(), 2);
}

#[test]
fn an_exception_comes_before_a_missing_identity() {
    let gate = gate(
        "- {id: r, except: [{path: /healthz}], per: [user_id], missing: deny, limit: 5/minute}",
    );
    assert!(decide(&gate, &request("path=/healthz")).is_allowed());
    assert!(decide(&gate, &request("path=/v1")).is_denied());
}

/// A server may take such a path for another: what exempts one of the two must not exempt the other.
#[test]
fn an_exception_holds_only_if_every_reading_of_the_path_matches_it() {
    let gate =
        gate("- {id: r, except: [{path: /healthz}, {path: /static/**}], per: [], limit: 1000/day}");
    #[rustfmt::skip]
    let table = [
        ("/healthz",                true),
        ("/healthz?x=1",            true),
        ("/healthz;v=1",            false),
        ("/v1/../healthz",          false),
        ("/healthz/../v1",          false),
        ("/static/a/../b",          true),
        ("/static/../v1/orders",    false),
        ("/static/%2e%2e/v1",       false),
        ("/static/a;b",             true),
    ];
    for (path, is_exempt) in table {
        let mut attributes = Attributes::new().at(NOW);
        attributes
            .insert_raw_path(path, EncodedSlashes::Keep)
            .unwrap();
        let decision = decide(&gate, &attributes);
        assert_eq!(decision.is_unmatched(), is_exempt, "{path}");
    }
}

#[test]
fn headers_and_hosts_that_only_exceptions_read_are_known_to_front_ends() {
    let gate = gate(
        "- {id: r, per: [], limit: 5/minute, except: [{attributes: {header.x-a: '1'}}, {when: '\"header.x-b\" in attributes', ip: 10.0.0.0/8}]}",
    );
    let rules = gate.rules();
    assert_eq!(rules.header_attributes(), ["header.x-a", "header.x-b"]);
    assert!(!rules.reads_host());
    assert!(rules.has_conditions());
    let by_host = super::rules("- {id: r, per: [], limit: 5/minute, except: [{host: a}]}");
    assert!(by_host.reads_host());
}
