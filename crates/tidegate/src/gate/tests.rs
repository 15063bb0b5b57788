//! How many rules a request has to ask, however many there are, and what stores see of a limit that comes
//! with a request. The rest is in `tests/gate`.

use crate::attributes::Attributes;
use crate::credentials::InvalidCredentials;
use crate::rules::{Facts, Grant, Rule, RuleSet};

const RULES: usize = 1_000;

/// What the rule with a number matches.
type Matching = fn(usize) -> String;

/// A rule for each number, and one for every request.
fn rules(matching: Matching) -> RuleSet {
    let mut text = "rules:\n- {id: all, per: [], limit: 1/s}\n".to_owned();
    for number in 0..RULES {
        let matching = matching(number);
        let line = format!("- {{id: r{number}, match: {{{matching}}}, per: [], limit: 1/s}}\n");
        text.push_str(&line);
    }
    RuleSet::from_yaml(&text).unwrap()
}

#[test]
fn a_request_asks_few_of_many_rules() {
    #[rustfmt::skip]
    let table: [(&str, Matching, usize); 8] = [
        ("by path",                 |n| format!("path: /svc{n}/**"),                                            2),
        ("by path with a wildcard", |n| format!("path: /*/svc{n}"),                                             2),
        ("by attribute",            |n| format!("path: /svc17/**, attributes: {{tenant: t{n}}}"),               2),
        ("by host",                 |n| format!("path: /svc17/**, method: GET, host: h{n}.example.com"),        2),
        ("by the end of the host",  |n| format!("path: /svc17/**, method: GET, host: '*.h{n}.example.com'"),    2),
        ("by network",              |n| format!("path: /svc17/**, ip: 10.{}.{}.0/24", n / 256, n % 256),         2),
        ("by one of several",       |n| format!("path: [/svc{n}/**, /v2/svc{n}/**], method: [GET, PUT]"),       2),
        // Neither part alone is enough: a request asks the rules that have one part in common with it.
        ("by two together",         |n| format!("path: /svc{}/**, attributes: {{tenant: t{}}}", n / 32, n % 32),  64),
    ];
    for (name, matching, most) in table {
        let rules = rules(matching);
        let mut attributes = Attributes::new();
        let known = [
            ("path", "/svc17/svc17"),
            ("method", "GET"),
            (
                "host",
                if name.contains("end") {
                    "a.h17.example.com"
                } else {
                    "h17.example.com"
                },
            ),
            ("ip", "10.0.17.9"),
            ("tenant", "t17"),
            ("user_id", "u1"),
        ];
        for (name, value) in known {
            attributes.insert(name, value).unwrap();
        }
        let candidates = rules.candidates(&attributes);
        let matching = candidates.iter().filter(|place| {
            let rule = rules.at(**place as usize);
            rule.matches(&Facts::of(
                &attributes,
                attributes.costs(),
                InvalidCredentials::Deny,
            ))
            .is_ok()
        });
        assert_eq!(matching.count(), 2, "{name}");
        assert!(
            candidates.len() <= most,
            "{name}: {} of {RULES}",
            candidates.len()
        );
    }
}

#[test]
fn a_limit_that_comes_with_a_request_has_hashed_keys() {
    let rule = Rule::ad_hoc(Grant::Blocked);
    assert!(rule.scope().has_secret_keys());
}
