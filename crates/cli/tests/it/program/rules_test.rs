//! `tidegate rules test` and `tidegate explain --rules`: rules on a virtual server, in CI or at a desk.

use std::fs;

use super::support::{CommandRun, tidegate};
use crate::server::ProgramFolder;

const RULES: &str = "rules:
  - {id: login, match: {path: /login}, per: [ip], limit: 6/minute burst 2}
  - {id: per-key, match: {path: /v1/**}, per: [api_key], missing: deny, limit: 100/minute}
";
const GOOD: &str = "cases:
  - name: two logins pass
    at: 2026-03-01T12:00:00Z
    attributes: {path: /login, ip: 203.0.113.7}
    repeat: 2
    expect: {allowed: true, rule: login, remaining: 0, reason: null, retry_after: 0}
  - name: the third does not
    attributes: {path: /login/, ip: 203.0.113.7}
    expect: {allowed: false, rule: login, reason: over_limit, retry_after: 10}
  - name: after ten seconds one passes
    at: +10s
    attributes: {path: /login, ip: 203.0.113.7}
    expect: {allowed: true, remaining: 0}
  - name: at a Unix time
    at: 1772366420.5
    attributes: {path: /login, ip: 203.0.113.7}
    expect: {allowed: true}
  - name: nothing but the key is compared
    attributes: {path: /v1/orders}
    expect: {allowed: false, reason: missing_attribute, retry_after: null}
  - name: no rule
    attributes: {path: /health}
    expect: {allowed: true, rule: null, remaining: null}
";
const DIFFERENT: &str = "rules:
  - {id: all, per: [], limit: 1/second}
cases:
  - name: first
    attributes: {path: /a}
    cost: 2
    expect:
      allowed: true
      reason: null
  - attributes: {path: /a}
    expect: {allowed: true, remaining: 7, rule: other}
";
const UNITS: &str = "rules:
  - {id: requests, per: [], limit: 2/minute}
  - {id: tokens, per: [], unit: tokens, limit: 100/minute}
cases:
  - {costs: {tokens: 60}, expect: {allowed: true, rule: requests, remaining: 1}}
  - {costs: {tokens: 60}, expect: {allowed: false, rule: tokens, remaining: 40}}
  - {costs: {requests: 0}, expect: {allowed: true, rule: null}}
";
const BAD_UNITS: &str = "rules: [{id: all, per: [], limit: 2/minute}]
cases:
  - {cost: 1, costs: {tokens: 1}, expect: {allowed: true}}
  - {costs: {Tokens: 1}, expect: {allowed: true}}
  - {costs: {tokens: -1}, expect: {allowed: true}}
";
const BAD: &str = "cases:
  - nam: typo
    at: yesterday
    attributes: {ip: nowhere}
    expect: {alowed: true}
  - at: 2020-01-01T00:00:00Z
    repeat: 0
    expect: {reason: too_many, retry_after: soon}
";

fn run(arguments: &[&str]) -> CommandRun {
    let directory = tempfile::tempdir().unwrap();
    let files = [
        ("rules.yaml", RULES),
        ("good.yaml", GOOD),
        ("different.yaml", DIFFERENT),
        ("bad.yaml", BAD),
        ("units.yaml", UNITS),
        ("bad-units.yaml", BAD_UNITS),
        (
            "broken-rules.yaml",
            "rules: [{id: a, per: [ip], limit: many}]\n",
        ),
    ];
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    tidegate(directory.path(), arguments, "")
}

#[test]
fn cases_that_hold_end_with_zero() {
    let run = run(&["rules", "test", "good.yaml", "--rules", "rules.yaml"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert_eq!(run.stdout, "good.yaml: 6 cases, all hold\n");
}

#[test]
fn differences_have_file_line_expected_and_came() {
    let plain = run(&["rules", "test", "different.yaml"]);
    assert_eq!(plain.code, Some(1), "{}", plain.stderr);
    insta::assert_snapshot!(plain.whole());
    let json = run(&["rules", "test", "different.yaml", "--json"]);
    assert_eq!(json.code, Some(1));
    insta::assert_snapshot!(json.stdout);
}

#[test]
fn cases_may_have_costs_by_unit() {
    let good = run(&["rules", "test", "units.yaml"]);
    assert_eq!(good.code, Some(0), "{}{}", good.stdout, good.stderr);
    let bad = run(&["rules", "test", "bad-units.yaml"]);
    assert_eq!(bad.code, Some(2), "{}", bad.stdout);
    for expected in [
        "bad-units.yaml:3:22: field `cases[0].costs`: write `cost` or `costs`, not both",
        "bad-units.yaml:4:13: field `cases[1].costs`: `Tokens` cannot be a unit",
        "bad-units.yaml:5:22: field `cases[2].costs.tokens`: this must be a whole number from 0",
    ] {
        assert!(
            bad.stderr.contains(expected),
            "no {expected} in {}",
            bad.stderr
        );
    }
}

#[test]
fn mistakes_of_a_file_are_shown_where_they_are() {
    let run = run(&["rules", "test", "bad.yaml", "--rules", "rules.yaml"]);
    assert_eq!(run.code, Some(2), "{}", run.stdout);
    insta::assert_snapshot!(run.whole());
}

#[test]
fn the_other_files_are_tested_if_one_cannot_be() {
    let several = [
        "rules",
        "test",
        "none.yaml",
        "different.yaml",
        "good.yaml",
        "--rules",
        "rules.yaml",
    ];
    let several = run(&several);
    assert_eq!(several.code, Some(2));
    assert!(
        several.stdout.contains("good.yaml: 6 cases, all hold"),
        "{}",
        several.stdout
    );
    assert!(
        several
            .stderr
            .contains("different.yaml: it has rules of its own"),
        "{}",
        several.stderr
    );
    let without = run(&["rules", "test", "good.yaml"]);
    assert_eq!(without.code, Some(2));
    assert!(
        without.stderr.contains("no rules to test"),
        "{}",
        without.stderr
    );
    let broken = run(&["rules", "test", "good.yaml", "--rules", "broken-rules.yaml"]);
    assert_eq!(broken.code, Some(2));
    assert!(
        broken.stderr.contains("broken-rules.yaml:1:"),
        "{}",
        broken.stderr
    );
}

#[test]
fn a_request_is_explained_by_a_file() {
    let request = [
        "-a",
        "path=/v1/x",
        "-a",
        "api_key=secret-key",
        "--timestamp",
        "1772366400",
    ];
    let arguments = [&["explain", "--rules", "rules.yaml"], &request[..]].concat();
    let explained = run(&arguments);
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    assert!(
        !explained.stdout.contains("secret-key"),
        "{}",
        explained.stdout
    );
    assert!(
        explained.stdout.contains("per-key applies\n"),
        "{}",
        explained.stdout
    );
    assert!(
        explained.stdout.contains("login does not apply\n"),
        "{}",
        explained.stdout
    );
    let denied = run(&["explain", "--rules", "rules.yaml", "-a", "path=/v1/x"]);
    assert_eq!(denied.code, Some(1), "{}", denied.stdout);
    let broken = run(&[
        "explain",
        "--rules",
        "broken-rules.yaml",
        "-a",
        "path=/v1/x",
    ]);
    assert_eq!(broken.code, Some(2));
    assert!(
        broken.stderr.contains("broken-rules.yaml:1:"),
        "{}",
        broken.stderr
    );
    let bad = run(&["explain", "--rules", "rules.yaml", "-a", "ip=nowhere"]);
    assert_eq!(bad.code, Some(2), "{}", bad.stdout);
}

#[test]
fn a_file_is_explained_as_a_server_explains_it() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let server = folder.serve(&["--rules", "rules.yaml", "--trust-timestamps"]);
    let address = format!("http://{}", server.address);
    for request in [
        &["-a", "path=/login", "-a", "ip=203.0.113.7"][..],
        &["-a", "path=/v1/x"],
        &["-a", "path=/other", "--cost", "3"],
    ] {
        for form in [&[][..], &["--json"]] {
            let request = [request, &["--timestamp", "1772366400.25"], form].concat();
            let online = [&["explain", "--server", &address], &request[..]].concat();
            let offline = [&["explain", "--rules", "rules.yaml"], &request[..]].concat();
            let (online, offline) = (folder.run(&online), folder.run(&offline));
            assert_eq!(online.stderr, "");
            assert_eq!((online.code, online.stdout), (offline.code, offline.stdout));
        }
    }
}
