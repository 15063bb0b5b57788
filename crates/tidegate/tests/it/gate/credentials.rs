//! Credentials that are there and not valid: which requests are denied for them, and what is charged then.

use tidegate::rules::{FrontEnd, RuleSet};
use tidegate::{Attributes, CredentialProblem, Gate, InvalidCredentials, MemoryStore, Reason};

use super::{NOW, decide, gate, request, rules};
use tidegate_testkit::{FailingStore, StoreState, block_on};

/// A request whose token should give `user_id` and `plan`, and is not valid.
fn refused(text: &str) -> Attributes<'_> {
    refused_for(text, CredentialProblem::Invalid)
}

fn refused_for(text: &str, problem: CredentialProblem) -> Attributes<'_> {
    let mut attributes = request(text);
    for name in ["user_id", "plan"] {
        attributes.refuse(name, problem);
    }
    attributes
}

const INVALID: Option<Reason> = Some(Reason::InvalidCredentials);

#[test]
fn a_rule_that_applies_and_reads_what_invalid_credentials_should_give_denies() {
    #[rustfmt::skip]
    let table = [
        // rule                                                                                     request             denied
        ("per: [user_id], limit: 9/minute",                                                         "path=/a",          true),
        ("per: [user_id], missing: share, limit: 9/minute",                                         "path=/a",          true),
        ("per: [user_id], missing: deny, limit: 9/minute",                                          "path=/a",          true),
        ("per: [user_id], limit: blocked",                                                          "path=/a",          true),
        ("per: [ip, user_id], limit: 9/minute",                                                     "ip=1.1.1.1",       true),
        ("per: [], limit: 9/minute, cost: {attribute: plan}",                                       "path=/a",          true),
        ("per: [api_key], limit: 9/minute",                                                         "api_key=k",        false),
        ("per: [ip], limit: 9/minute",                                                              "ip=1.1.1.1",       false),
        ("per: [], limit: 9/minute",                                                                "path=/a",          false),
        ("per: [user_id], limit: 9/minute, mode: shadow",                                           "path=/a",          false),
        // It does not apply.
        ("match: {path: /b}, per: [user_id], limit: 9/minute",                                      "path=/a",          false),
        ("match: {method: POST}, per: [user_id], limit: 9/minute",                                  "method=GET",       false),
        ("except: [{path: /a}], per: [user_id], limit: 9/minute",                                   "path=/a",          false),
        ("match: {attributes: {api_key: other}}, per: [user_id], limit: 9/minute",                  "api_key=k",        false),
        // Valid credentials might make it apply.
        ("match: {attributes: {plan: free}}, per: [ip], limit: 9/minute",                           "ip=1.1.1.1",       true),
        ("match: {attributes: {plan: free}, path: /b}, per: [ip], limit: 9/minute",                 "ip=1.1.1.1 path=/a", false),
        ("match: {when: 'attributes[\"plan\"] == \"free\"'}, per: [ip], limit: 9/minute",           "ip=1.1.1.1",       true),
        ("match: {when: 'has(attributes.plan)'}, per: [ip], limit: 9/minute",                       "ip=1.1.1.1",       true),
        ("match: {when: 'attributes.exists(k, k == \"plan\")'}, per: [ip], limit: 9/minute",         "ip=1.1.1.1",       true),
        ("match: {when: 'attributes.exists(k, k.startsWith(\"pl\"))'}, per: [ip], limit: 9/minute",  "ip=1.1.1.1",       true),
        ("match: {when: '[\"pl\"].exists(k, k + \"an\" in attributes)'}, per: [ip], limit: 9/minute", "ip=1.1.1.1",     true),
        ("match: {when: 'attributes[\"pl\" + \"an\"] == \"free\"'}, per: [ip], limit: 9/minute",   "ip=1.1.1.1",       true),
        ("match: {when: 'size(attributes) > 5'}, per: [ip], limit: 9/minute",                       "ip=1.1.1.1",       true),
        ("match: {when: 'cost > 5'}, per: [ip], limit: 9/minute",                                   "ip=1.1.1.1",       false),
        ("match: {when: 'attributes.ip == \"plan\"'}, per: [ip], limit: 9/minute",                  "ip=1.1.1.1",       false),
        // Their absence exempts from nothing.
        ("except: [{attributes: {plan: internal}}], per: [ip], limit: 9/minute",                    "ip=1.1.1.1",       true),
        ("except: [{when: '!attributes.exists(k, k.startsWith(\"pl\"))'}], per: [ip], limit: 9/minute", "ip=1.1.1.1",     true),
        ("except: [{when: '!has(attributes.plan)'}], per: [ip], limit: 9/minute",                   "ip=1.1.1.1",       true),
    ];
    for (rule, text, is_denied) in table {
        let gate = gate(&format!("- {{id: r, {rule}}}"));
        let decision = decide(&gate, &refused(text));
        let expected = INVALID.filter(|_| is_denied);
        assert_eq!(decision.reason(), expected, "{rule}");
        if is_denied {
            assert_eq!(decision.retry_after(), None, "{rule}");
            decision.count(FrontEnd::Http);
            let rules = gate.rules();
            let rule = rules.get("r").unwrap();
            assert_eq!(rule.counts().denied(Reason::InvalidCredentials), 1);
            assert!(rule.can_deny_for(Reason::InvalidCredentials));
        }
    }
}

#[test]
fn tiers_read_the_tier() {
    let gate = gate("- {id: r, per: [ip], limit: 9/minute, tiers: {pro: 99/minute}}");
    let mut attributes = request("ip=1.1.1.1");
    attributes.refuse("tier", CredentialProblem::Invalid);
    assert_eq!(decide(&gate, &attributes).reason(), INVALID);
}

#[test]
fn invalid_credentials_may_be_treated_as_missing_but_not_those_that_cannot_be_verified() {
    let rules = rules(
        "- {id: skips, per: [user_id], limit: 9/minute}
- {id: only-free, match: {attributes: {plan: free}}, per: [], limit: blocked}
- {id: exempts, except: [{when: '!has(attributes.plan)'}], per: [], limit: blocked}",
    );
    let gate =
        Gate::new(MemoryStore::new(), rules).with_invalid_credentials(InvalidCredentials::Missing);
    assert!(decide(&gate, &refused("path=/a")).is_allowed());
    let unverified = refused_for("path=/a", CredentialProblem::NoKeys);
    let denied = decide(&gate, &unverified);
    assert_eq!(denied.reason(), Some(Reason::KeysUnavailable));
    assert!(!denied.is_failed(), "the store is not to blame");
}

#[test]
fn a_value_that_is_set_later_replaces_invalid_credentials() {
    let gate = gate("- {id: r, per: [user_id], limit: 9/minute}");
    let mut attributes = refused("path=/a");
    attributes.set("user_id", "u1").unwrap();
    assert!(decide(&gate, &attributes).is_allowed());
    attributes.refuse("user_id", CredentialProblem::Invalid);
    assert_eq!(attributes.get("user_id"), None);
    assert_eq!(decide(&gate, &attributes).reason(), INVALID);
}

#[test]
fn nothing_is_charged_but_rules_that_count_by_ip_alone() {
    let gate = gate(
        "- {id: ip, per: [ip], limit: 2/minute, algorithm: fixed_window}
- {id: all, per: [], limit: 9/minute, algorithm: fixed_window}
- {id: by-path, per: [ip, path], limit: 9/minute, algorithm: fixed_window}
- {id: at-once, per: [ip], limit: 1, algorithm: concurrency}
- {id: user, per: [user_id], limit: 9/minute}
- {id: seen, per: [user_id], limit: 9/minute, mode: shadow}",
    );
    let invalid = refused("ip=1.1.1.1 path=/a");
    for left in [1, 0] {
        let denied = decide(&gate, &invalid);
        assert_eq!((denied.rule(), denied.reason()), (Some("user"), INVALID));
        assert_eq!(denied.permit(), None);
        let remaining: Vec<u64> = denied
            .limits()
            .map(|limit| limit.outcome.remaining)
            .collect();
        assert_eq!(remaining, [left, 9, 9, 1, 0, 0]);
    }
    // Guesses are limited like other requests.
    let denied = decide(&gate, &invalid);
    assert_eq!(denied.rule(), Some("ip"));
    assert_eq!(denied.reason(), Some(Reason::OverLimit));
    assert!(denied.retry_after().is_some());
    let denied = decide(&gate, &request("ip=1.1.1.1 path=/a user_id=u1"));
    assert_eq!(denied.rule(), Some("ip"));
    let other = decide(&gate, &request("ip=1.1.1.2 path=/a user_id=u1"));
    let remaining: Vec<u64> = other
        .limits()
        .map(|limit| limit.outcome.remaining)
        .collect();
    assert_eq!(remaining[..3], [1, 8, 8]);
}

#[test]
fn a_blocked_address_is_blocked_whatever_its_credentials() {
    let gate = gate(
        "- {id: user, per: [user_id], limit: 9/minute}
- {id: ip, per: [ip], limit: 9/minute, overrides: {1.1.1.1: blocked}}",
    );
    let denied = decide(&gate, &refused("ip=1.1.1.1"));
    assert_eq!(denied.reason(), Some(Reason::Blocked));
    assert_eq!(decide(&gate, &refused("ip=1.1.1.2")).reason(), INVALID);
}

#[test]
fn an_exhausted_limit_of_another_identity_does_not_hide_invalid_credentials() {
    let gate = gate(
        "- {id: key, per: [api_key], limit: 1/minute}
- {id: user, per: [user_id], limit: 9/minute}",
    );
    assert!(decide(&gate, &request("api_key=k user_id=u")).is_allowed());
    let denied = decide(&gate, &refused("api_key=k"));
    assert_eq!((denied.rule(), denied.reason()), (Some("user"), INVALID));
}

#[test]
fn a_store_that_is_gone_does_not_let_invalid_credentials_pass() {
    let store = FailingStore::default();
    store.switch(StoreState::Unreachable);
    let gate = Gate::new(
        store,
        rules(
            "- {id: ip, per: [ip], limit: 2/minute, on_store_failure: allow}
- {id: user, per: [user_id], limit: 9/minute, on_store_failure: allow}",
        ),
    );
    let denied = decide(&gate, &refused("ip=1.1.1.1"));
    assert_eq!((denied.rule(), denied.reason()), (Some("user"), INVALID));
}

#[test]
fn credentials_of_rules_and_requests_have_the_same_form() {
    let gate = gate(
        "- id: basic
  match: {attributes: {header.authorization: 'Basic dXNlcjpwYXNzMR'}}
  per: [header.authorization]
  limit: 9/minute
  overrides: {'BASIC dXNl.cjpwYXNzMQ=': 2/minute}",
    );
    for (spelling, is_allowed) in [
        ("Basic dXNlcjpwYXNzMQ==", true),
        ("basic dXNlcjpwYXNzMQ", true),
        ("Basic dX~NlcjpwYXNzMf==", false),
    ] {
        let mut attributes = Attributes::new();
        attributes.insert("header.authorization", spelling).unwrap();
        assert_eq!(decide(&gate, &attributes.at(NOW)).is_allowed(), is_allowed);
    }
    for spelling in ["Bearer KEY x", "Basic !", "Basic dQ==dQ=="] {
        let mut attributes = Attributes::new();
        attributes.insert("header.authorization", spelling).unwrap();
        assert_eq!(attributes.get("header.authorization"), None);
        let denied = decide(&gate, &attributes.at(NOW));
        assert_eq!(denied.reason(), INVALID, "{spelling}");
    }
}

#[test]
fn explain_says_that_the_credentials_are_not_valid() {
    let gate = gate("- {id: user, per: [user_id], missing: share, limit: 9/minute}");
    let attributes = refused("path=/a").at(NOW);
    let explanation = block_on(gate.explain(&attributes, &|_, value| value.to_owned()));
    assert!(explanation.rules()[0].applies());
    assert_eq!(explanation.rules()[0].key, None);
    assert_eq!(explanation.decision().reason(), INVALID);
}

#[test]
fn a_descriptor_is_found_by_credentials_that_are_not_valid_too() {
    let text = "domain: d\ndescriptors:\n- {key: authorization, rate_limit: {unit: minute, requests_per_unit: 1}}";
    for value in [&b"Bearer a b"[..], b"Basic !", b"Basic \xff"] {
        let mut attributes = Attributes::new().at(NOW);
        attributes.insert("domain", "d").unwrap();
        attributes.insert("authorization", value).unwrap();
        assert_eq!(attributes.get("authorization"), None);
        assert_eq!(attributes.iter().count(), 1);
        let again = attributes.insert("authorization", "Bearer a");
        assert!(again.is_err(), "it is given twice");
        let gate = |invalid| {
            let rules = RuleSet::from_yaml(text).unwrap();
            Gate::new(MemoryStore::new(), rules).with_invalid_credentials(invalid)
        };
        let denied = decide(&gate(InvalidCredentials::Deny), &attributes);
        assert_eq!(denied.reason(), INVALID, "{value:?}");
        let counting = gate(InvalidCredentials::Missing);
        let reasons = [(); 2].map(|()| decide(&counting, &attributes).reason());
        assert_eq!(reasons, [None, Some(Reason::OverLimit)], "{value:?}");
        attributes.set("authorization", "Bearer a").unwrap();
        let gate = gate(InvalidCredentials::Deny);
        assert!(decide(&gate, &attributes).is_allowed(), "replaced");
    }
}

#[test]
fn a_decision_names_the_attribute_that_is_refused() {
    for (rule, name) in [
        ("per: [api_key, user_id], limit: 9/minute", "user_id"),
        (
            "match: {attributes: {plan: free}}, per: [api_key], limit: 9/minute",
            "plan",
        ),
        ("per: [api_key], limit: blocked", ""),
    ] {
        let gate = gate(&format!("- {{id: r, {rule}}}"));
        let decision = decide(&gate, &refused("api_key=k"));
        let headline = decision.headline().unwrap();
        assert_eq!(headline.refused().unwrap_or_default(), name, "{rule}");
    }
}
