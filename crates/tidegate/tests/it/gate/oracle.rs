//! The gate finds exactly the rules that a check of every single rule finds.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Select, select, subsequence};
use tidegate_testkit::block_on;

use super::{NOW, answered, gate};
use tidegate::Attributes;

const PATHS: [&str; 11] = [
    "/", "/**", "/a", "/a/", "/a/**", "/a/*", "/*/b", "/*", "/a/b/**", "/*/*/c", "/a/b",
];
const HOSTS: [&str; 5] = ["x.com", "*.x.com", "*.com", "a.x.com", "*.a.x.com"];
const METHODS: [&str; 2] = ["GET", "PUT"];
const NETWORKS: [&str; 4] = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "2001:db8::/32"];
const VALUES: [&str; 3] = ["1", "2", "3"];

/// A rule as it is written; what is not there matches everything.
#[derive(Debug, Clone)]
struct Written {
    path: Option<Vec<&'static str>>,
    host: Option<Vec<&'static str>>,
    method: Option<Vec<&'static str>>,
    ip: Option<Vec<&'static str>>,
    plan: Option<Vec<&'static str>>,
    team: Option<Vec<&'static str>>,
    least_cost: Option<u64>,
    except: Vec<Written>,
}

#[derive(Debug, Clone)]
struct Asked {
    path: Option<&'static str>,
    host: Option<&'static str>,
    method: Option<&'static str>,
    ip: Option<&'static str>,
    plan: Option<&'static str>,
    team: Option<&'static str>,
    cost: u64,
}

fn some<const N: usize>(
    all: [&'static str; N],
) -> impl Strategy<Value = Option<Vec<&'static str>>> {
    option::weighted(0.4, subsequence(all.to_vec(), 1..=2))
}

fn one(all: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    let all: Select<&'static str> = select(all);
    option::weighted(0.8, all)
}

fn rule() -> impl Strategy<Value = Written> {
    let item = written().prop_filter("an empty item is refused", |item| {
        !parts_of(item).is_empty()
    });
    (written(), prop::collection::vec(item, 0..3))
        .prop_map(|(rule, except)| Written { except, ..rule })
}

fn written() -> impl Strategy<Value = Written> {
    let parts = (
        some(PATHS),
        some(HOSTS),
        some(METHODS),
        some(NETWORKS),
        some(VALUES),
        some(VALUES),
    );
    (parts, option::weighted(0.1, 0_u64..3)).prop_map(
        |((path, host, method, ip, plan, team), least_cost)| Written {
            path,
            host,
            method,
            ip,
            plan,
            team,
            least_cost,
            except: Vec::new(),
        },
    )
}

fn asked() -> impl Strategy<Value = Asked> {
    (
        one(&[
            "/", "/a", "/a/", "/a/b", "/a/b/c", "/b/b", "/b", "/a/c", "/x/y/c", "/ab",
        ]),
        one(&["x.com", "a.x.com", "b.a.x.com", "ax.com", "com", "y.com"]),
        one(&METHODS),
        one(&[
            "10.1.2.3",
            "10.1.9.9",
            "10.2.0.1",
            "11.0.0.1",
            "2001:db8::1",
            "2001:db9::1",
        ]),
        one(&VALUES),
        one(&VALUES),
        0_u64..3,
    )
        .prop_map(|(path, host, method, ip, plan, team, cost)| Asked {
            path,
            host,
            method,
            ip,
            plan,
            team,
            cost,
        })
}

/// Character by character, unlike the tree of segments.
fn path_fits(pattern: &str, path: &str) -> bool {
    let bare = |text: &str| text.trim_matches('/').to_owned();
    if let Some(prefix) = pattern.strip_suffix("**") {
        let (prefix, path) = (bare(prefix), bare(path));
        let depth = prefix.split('/').filter(|part| !part.is_empty()).count();
        let head: Vec<&str> = path.split('/').take(depth).collect();
        return path_fits(&prefix, &head.join("/"));
    }
    let (pattern, path) = (bare(pattern), bare(path));
    match (pattern.split_once('/'), path.split_once('/')) {
        (None, None) => pattern == path || (pattern == "*" && !path.is_empty()),
        (Some((wanted, rest)), Some((given, after))) => {
            (wanted == "*" || wanted == given) && path_fits(rest, after)
        }
        _ => false,
    }
}

fn host_fits(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(parent) => host
            .split_once('.')
            .is_some_and(|(_, above)| above == parent || host_fits(pattern, above)),
        None => pattern == host,
    }
}

/// By the beginning of the text: these networks end between two parts of an address.
fn ip_fits(network: &str, ip: &str) -> bool {
    match network {
        "10.0.0.0/8" => ip.starts_with("10."),
        "10.1.0.0/16" => ip.starts_with("10.1."),
        "2001:db8::/32" => ip.starts_with("2001:db8:"),
        single => single == ip,
    }
}

fn fits(wanted: Option<&[&str]>, given: Option<&str>, fits: impl Fn(&str, &str) -> bool) -> bool {
    match (wanted, given) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wanted), Some(given)) => wanted.iter().any(|wanted| fits(wanted, given)),
    }
}

fn applies(rule: &Written, asked: &Asked) -> bool {
    let same = |wanted: &str, given: &str| wanted == given;
    fits(rule.path.as_deref(), asked.path, path_fits)
        && fits(rule.host.as_deref(), asked.host, host_fits)
        && fits(rule.method.as_deref(), asked.method, same)
        && fits(rule.ip.as_deref(), asked.ip, ip_fits)
        && fits(rule.plan.as_deref(), asked.plan, same)
        && fits(rule.team.as_deref(), asked.team, same)
        && rule.least_cost.is_none_or(|least| asked.cost >= least)
        && !rule.except.iter().any(|item| applies(item, asked))
}

/// The parts of `match`, or of an item of `except`, as they are written.
fn parts_of(rule: &Written) -> String {
    let mut parts = Vec::new();
    let lists = [
        ("path", &rule.path),
        ("host", &rule.host),
        ("method", &rule.method),
        ("ip", &rule.ip),
    ];
    for (key, list) in lists {
        parts.extend(list.as_ref().map(|list| format!("{key}: {list:?}")));
    }
    let attributes: Vec<String> = [("plan", &rule.plan), ("team", &rule.team)]
        .into_iter()
        .filter_map(|(key, list)| Some(format!("{key}: {:?}", list.as_ref()?)))
        .collect();
    if !attributes.is_empty() {
        parts.push(format!("attributes: {{{}}}", attributes.join(", ")));
    }
    parts.extend(
        rule.least_cost
            .map(|least| format!("when: 'cost >= {least}'")),
    );
    parts.join(", ")
}

fn as_text(rules: &[Written]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (index, rule) in rules.iter().enumerate() {
        let except: Vec<String> = rule
            .except
            .iter()
            .map(|item| format!("{{{}}}", parts_of(item)))
            .collect();
        let _ = writeln!(
            text,
            "- {{id: r{index}, match: {{{}}}, except: [{}], per: [], limit: 9/minute}}",
            parts_of(rule),
            except.join(", ")
        );
    }
    if rules.is_empty() {
        "  []\n".to_owned()
    } else {
        text
    }
}

proptest! {
    #[test]
    fn the_rules_that_apply_are_those_of_a_check_one_by_one(
        rules in prop::collection::vec(rule(), 0..25),
        requests in prop::collection::vec(asked(), 1..25),
    ) {
        let gate = gate(&as_text(&rules));
        for asked in requests {
            let mut attributes = Attributes::new().at(NOW).with_cost(asked.cost);
            let known = [
                ("path", asked.path), ("host", asked.host), ("method", asked.method),
                ("ip", asked.ip), ("plan", asked.plan), ("team", asked.team),
            ];
            for (name, value) in known {
                attributes.insert(name, value.unwrap_or_default()).unwrap();
            }
            let expected: Vec<String> = rules
                .iter()
                .enumerate()
                .filter(|(_, rule)| applies(rule, &asked))
                .map(|(index, _)| format!("r{index}"))
                .collect();
            let decision = block_on(gate.decide(&attributes));
            prop_assert_eq!(answered(&decision), expected.clone(), "{:?}", asked);
            // An explanation asks each rule, without the index.
            let explanation = block_on(gate.explain(&attributes, &|_, value| value.to_owned()));
            let applying = explanation.rules().iter().filter(|rule| rule.applies());
            let applying: Vec<String> = applying.map(|rule| rule.rule.id().to_owned()).collect();
            prop_assert_eq!(applying, expected, "{:?}", asked);
        }
    }
}
