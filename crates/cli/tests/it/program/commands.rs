//! The commands against a server that plays its part: what is asked, what is said, how it ends.

use std::path::Path;

use super::support::{CommandRun, serving, tidegate};

const RULES: &str = r#"{"version": 7, "rules": [
    {"id": "per-ip", "per": ["ip"], "limit": "10/second"},
    {"id": "per-user", "per": ["user_id"], "limit": "100/minute", "missing": "deny"}]}"#;
const CHANGED: &str = "rules:\n  - {id: new, per: [], limit: 5/second}\n  - {id: per-ip, per: ip, limit: 20/second}\n";
const SAME: &str = "rules:\n  - {id: per-ip, per: ip, limit: {requests: 10, window: 1s}}\n";
const STALE: (&str, &str) = (
    "412 Precondition Failed",
    r#"{"detail": "the rules have changed"}"#,
);
const NO_RULE: &str = r#"{"allowed": true, "rule": null, "limit": null, "remaining": null, "reset_time": null,
    "retry_after": null, "delay": null, "degraded": null, "lease": null, "limits": []}"#;
const DENIED: &str = r#"{"allowed": false, "rule": "per-ip", "limit": 10, "remaining": 0,
    "reset_time": 1794770001, "retry_after": 0.1, "delay": 0, "degraded": true, "lease": null, "limits": [{}],
    "reason": "over_limit"}"#;

/// Runs a command against these answers. What it left, with the address left out, and what it asked.
fn run(line: &str, input: &str, answers: &[(&str, &str)]) -> (CommandRun, Vec<String>) {
    let (address, asked) = serving(answers);
    let mut arguments: Vec<&str> = line.split(' ').collect();
    arguments.extend(["--server", &address]);
    let mut run = tidegate(Path::new("."), &arguments, input);
    run.stdout = run.stdout.replace(&address, "URL");
    run.stderr = run.stderr.replace(&address, "URL");
    (run, asked.join().unwrap())
}

#[test]
fn the_program_says_its_version() {
    let run = tidegate(Path::new("."), &["--version"], "");
    assert_eq!(
        run.stdout,
        concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn a_check_sends_what_it_was_given() {
    let line = "check --attr ip=1.2.3.4 --attr path=/a=b --cost 2 --timestamp 1794770000.25";
    let (run, asked) = run(line, "", &[("429 Too Many Requests", DENIED)]);
    insta::assert_snapshot!(run.whole());
    let body = asked[0].split_once("\r\n\r\n").unwrap().1;
    let expected =
        r#"{"attributes":{"ip":"1.2.3.4","path":"/a=b"},"cost":2,"timestamp":1794770000.25}"#;
    assert_eq!(body, expected);
}

#[test]
fn a_check_without_a_rule_says_what_rules_look_at() {
    let answers = [("200 OK", NO_RULE), ("200 OK", RULES)];
    let (run, _) = run("check --attr userid=u1", "", &answers);
    insta::assert_snapshot!(run.whole());
}

#[test]
fn an_attribute_that_no_rule_uses_is_named_although_a_rule_applied() {
    let answers = [("429 Too Many Requests", DENIED), ("200 OK", RULES)];
    let line = "check --token t -a ip=1.2.3.4 -a path=/x -a userid=u1";
    let (run, asked) = run(line, "", &answers);
    assert_eq!(run.code, Some(1), "{}", run.whole());
    assert_eq!(
        run.stderr,
        "no rule uses the attribute `userid`; did you mean `user_id`?\n"
    );
    assert_eq!(asked.len(), 2, "{asked:?}");
}

#[test]
fn unreadable_rules_do_not_spoil_an_answer() {
    let answers = [("200 OK", NO_RULE), ("403 Forbidden", "{}")];
    let (run, _) = run("check", "", &answers);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "allowed\n"));
    assert_eq!(run.stderr, "no rule limits this request\n");
}

#[test]
fn an_explanation_ends_as_a_check_would() {
    let explained = |allowed: bool| {
        let decision = format!(
            r#"{{"allowed": {allowed}, "rule": "few", "limit": 1, "remaining": 0, "limits": []}}"#
        );
        let failed = r#"{"condition": "path", "expected": "/v1/**", "actual": "/\u202ea"}"#;
        format!(
            r#"{{"rules": [{{"rule": "r", "applies": false, "failed": {failed}, "grant": null, "key": null, "limits": []}}], "decision": {decision}, "headers": {{}}}}"#
        )
    };
    for (allowed, code) in [(true, 0), (false, 1)] {
        let (run, asked) = run(
            "explain -a path=/a --cost 2",
            "",
            &[("200 OK", &explained(allowed))],
        );
        assert_eq!(run.code, Some(code), "{}", run.whole());
        assert!(
            asked[0].contains("/v1/explain") && asked[0].contains("\"cost\":2"),
            "{asked:?}"
        );
        // Clients choose what is printed.
        assert!(
            run.stdout
                .contains("is /\\u{202e}a, the rule expects /v1/**"),
            "{}",
            run.stdout
        );
    }
    let (failed, _) = run(
        "explain",
        "",
        &[("403 Forbidden", r#"{"detail": "no scope"}"#)],
    );
    assert_eq!(failed.code, Some(2), "{}", failed.whole());
}

#[test]
fn a_client_and_a_raw_request_are_asked_for_as_they_are_given() {
    let answer = r#"{"rules": [], "attributes": {}, "decision": {"allowed": true}, "headers": {}}"#;
    let body = |line: &str| {
        let (run, asked) = run(line, "", &[("200 OK", answer)]);
        assert_eq!(run.code, Some(0), "{}", run.whole());
        asked[0].split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    #[rustfmt::skip]
    let table = [
        ("explain carl",                  r#"{"cost":1,"client":"carl"}"#),
        ("explain carl --rule per-user",  r#"{"cost":1,"client":"carl","rule":"per-user"}"#),
        ("explain --url /x",              r#"{"cost":1,"request":{"url":"/x","headers":{}}}"#),
        ("explain --url /x --method PUT -H a:b -H a:c --header d:e=f:g --address ::1 --cost 2",
            r#"{"cost":2,"request":{"url":"/x","headers":{"a":["b","c"],"d":["e=f:g"]},"method":"PUT","address":"::1"}}"#),
    ];
    for (line, expected) in table {
        let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
        let body: serde_json::Value = serde_json::from_str(&body(line)).unwrap();
        assert_eq!(body, expected, "{line}");
    }
    let (_, asked) = run("reset u1 --rule r", "", &[("200 OK", r#"{"reset": []}"#)]);
    let body = asked[0].split_once("\r\n\r\n").unwrap().1;
    assert_eq!(body, r#"{"client":"u1","rule":"r"}"#);
    let none = r#"{"denied": [], "instances": []}"#;
    let line = "denied --rule per-user --key a/b&c --limit 7";
    let (denied, asked) = run(line, "", &[("200 OK", none)]);
    assert_eq!(
        (denied.code, denied.stderr.as_str()),
        (Some(0), "no denied request was seen\n")
    );
    let expected = "GET /v1/denied?limit=7&rule=per%2Duser&key=a%2Fb%26c ";
    assert!(asked[0].starts_with(expected), "{}", asked[0]);
}

#[test]
fn could_not_decide_is_denied_and_not_ready_is_an_error() {
    let (decided, _) = run("check --json", "", &[("503 Service Unavailable", DENIED)]);
    assert_eq!(decided.code, Some(1), "{}", decided.whole());
    assert!(
        decided.stdout.contains("\"degraded\": true"),
        "{}",
        decided.stdout
    );
    let answers = [("503 Service Unavailable", r#"{"detail": "not ready"}"#)];
    let (failed, _) = run("check --json", "", &answers);
    insta::assert_snapshot!(failed.whole());
}

#[test]
fn apply_merges_and_begins_again_when_others_were_faster() {
    let answers = [
        ("200 OK", RULES),
        STALE,
        ("200 OK", RULES),
        ("200 OK", r#"{"version": 8, "rules": []}"#),
    ];
    let (run, asked) = run("rules apply -f -", CHANGED, &answers);
    insta::assert_snapshot!(run.whole());
    assert!(asked[3].starts_with("PUT /v1/rules "), "{}", asked[3]);
    assert!(
        asked[3].to_lowercase().contains("if-match: \"7\"\r\n"),
        "{}",
        asked[3]
    );
    insta::assert_snapshot!("apply_body", asked[3].split_once("\r\n\r\n").unwrap().1);
}

#[test]
fn apply_gives_up_after_five_retries() {
    let answers: Vec<_> = [("200 OK", RULES), STALE]
        .into_iter()
        .cycle()
        .take(12)
        .collect();
    let (run, _) = run("rules apply -f -", CHANGED, &answers);
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("nothing was applied, try again"),
        "{}",
        run.stderr
    );
}

#[test]
fn apply_with_nothing_to_do_or_dry_only_reads() {
    let (run_same, _) = run("rules apply -f -", SAME, &[("200 OK", RULES)]);
    assert_eq!(
        (run_same.code, run_same.stdout.as_str()),
        (Some(0), "nothing to change\n")
    );
    let (run_dry, _) = run(
        "rules apply -f - --prune --dry-run --json",
        CHANGED,
        &[("200 OK", RULES)],
    );
    insta::assert_snapshot!(run_dry.whole());
}

#[test]
fn a_bad_file_is_not_brought_to_the_server() {
    let bad = "rules:\n  - id: a\n    per: []\n";
    let (json, _) = run("rules apply -f - --json", bad, &[]);
    insta::assert_snapshot!("bad_file_in_json", json.whole());
    let (run, _) = run("rules apply -f -", "rules:\n  - id: a\n    per: []\n", &[]);
    insta::assert_snapshot!(run.whole());
}

#[test]
fn diff_ends_with_one_when_there_are_differences() {
    let (different, _) = run("rules diff -f -", CHANGED, &[("200 OK", RULES)]);
    insta::assert_snapshot!(different.whole());
    let (same, _) = run(
        "rules diff -f -",
        RULES.replace("\"version\": 7,", "").as_str(),
        &[("200 OK", RULES)],
    );
    assert_eq!(
        (same.code, same.stdout.as_str()),
        (Some(0), "no differences\n")
    );
}

const DIFF: &str = r#"{"from": 3, "to": 5, "added": [], "removed": [], "changed": [{}], "order": null,
    "text": "--- version 3\n+++ version 5\n@@ -1,2 +1,2 @@ rule a\n rules:\n-  old\n+  new\n"}"#;
const HISTORY: &str = r#"{"history": [
    {"version": 5, "at": "2026-11-16T01:28:00Z", "by": "ops", "changes": ["added a temporary override"], "override": {"rule": "r", "key": "k", "what": "added", "text": "added a temporary override"}},
    {"version": 5, "at": "2026-11-16T01:27:00Z", "by": "\u001b[2Jops", "changes": ["changed a"]},
    {"version": 3, "at": "2026-11-16T01:26:00Z", "by": "ops", "changes": ["added a"]}]}"#;

#[test]
fn versions_are_compared_by_the_server() {
    let (different, asked) = run("rules diff --from 3 --to 5", "", &[("200 OK", DIFF)]);
    insta::assert_snapshot!(different.whole());
    let call = "GET /v1/rules/diff?from=3&to=5 ";
    assert!(asked[0].starts_with(call), "{}", asked[0]);
    let same = r#"{"added": [], "removed": [], "changed": [], "order": null, "text": ""}"#;
    let (same, asked) = run("rules diff --to 5", "", &[("200 OK", same)]);
    assert_eq!(
        (same.code, same.stdout.as_str()),
        (Some(0), "no differences\n")
    );
    assert!(asked[0].starts_with("GET /v1/rules/diff?to=5 "));
    let gone = (
        "404 Not Found",
        r#"{"detail": "there is no version 3 of the rules; kept: 4 to 5"}"#,
    );
    let (gone, _) = run("rules diff --from 3", "", &[gone]);
    assert_eq!(gone.code, Some(2), "{}", gone.whole());
    assert!(gone.stderr.contains("kept: 4 to 5"), "{}", gone.stderr);
}

#[test]
fn each_row_of_the_history_is_followed_by_its_diff() {
    let answers = [("200 OK", HISTORY), ("200 OK", DIFF)];
    let (shown, asked) = run("rules history --diff", "", &answers);
    insta::assert_snapshot!(shown.whole());
    assert!(asked[1].starts_with("GET /v1/rules/diff?from=3&to=5 "));
    let (json, _) = run("rules history --diff --json", "", &answers);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["history"][1]["diff"]["to"], 5);
    assert_eq!(json["history"][2]["diff"], serde_json::Value::Null);
}

#[test]
fn a_rollback_can_be_previewed() {
    let (preview, asked) = run("rules rollback 3 --dry-run", "", &[("200 OK", DIFF)]);
    assert_eq!(preview.code, Some(0), "{}", preview.whole());
    assert!(preview.stdout.starts_with("--- version 3\n"));
    let body = "{\"version\":3,\"dry_run\":true}";
    assert!(asked[0].ends_with(body), "{}", asked[0]);
}

#[test]
fn a_reset_shows_what_was_used() {
    let reset = r#"{"reset": [{"rule": "per-user", "limit": 100, "key": {"user_id": "u1"}, "used": 7}], "ignored": ["userid"]}"#;
    let line = "reset -a user_id=u1 -a userid=x --rule per-user";
    let (run_reset, asked) = run(line, "", &[("200 OK", reset)]);
    insta::assert_snapshot!(run_reset.whole());
    let body = r#"{"attributes":{"user_id":"u1","userid":"x"},"rule":"per-user"}"#;
    assert!(asked[0].ends_with(body), "{}", asked[0]);
    let unknown = ("404 Not Found", r#"{"detail": "there is no rule `x`"}"#);
    let (unknown, _) = run("reset --rule x", "", &[unknown]);
    assert_eq!(
        (unknown.code, unknown.stderr.as_str()),
        (Some(2), "error: there is no rule `x`\n")
    );
}

#[test]
fn rules_are_shown_one_by_one() {
    let rule = r#"{"id": "per-ip", "per": ["ip"], "limit": "10/second"}"#;
    let (found, asked) = run("rules get per-ip", "", &[("200 OK", rule)]);
    assert_eq!(found.stdout, "id: per-ip\nper: [ip]\nlimit: 10/second\n");
    assert!(
        asked[0].starts_with("GET /v1/rules/per-ip "),
        "{}",
        asked[0]
    );
    let missing = ("404 Not Found", r#"{"detail": "there is no such rule"}"#);
    for line in ["rules get x", "rules delete x"] {
        let (run, _) = run(line, "", &[missing]);
        assert_eq!(
            (run.code, run.stderr.as_str()),
            (Some(1), "there is no rule `x`\n"),
            "{line}"
        );
    }
    for line in ["rules get history", "rules get diff", "rules delete diff"] {
        let (impossible, _) = run(line, "", &[]);
        assert_eq!(impossible.code, Some(1), "{line}");
    }
}

#[test]
fn rules_are_removed_listed_and_brought_back() {
    let (removed, asked) = run("rules delete per-ip", "", &[("204 No Content", "")]);
    assert_eq!(
        (removed.code, removed.stdout.as_str()),
        (Some(0), "removed per-ip\n")
    );
    assert!(
        asked[0].starts_with("DELETE /v1/rules/per-ip "),
        "{}",
        asked[0]
    );
    let (listed, _) = run("rules list", "", &[("200 OK", RULES)]);
    insta::assert_snapshot!(listed.whole());
    let (back, asked) = run("rules rollback 3", "", &[("200 OK", RULES)]);
    assert_eq!(
        back.stdout,
        "back to version 3, now as version 7: 2 rules\n"
    );
    assert!(asked[0].ends_with("{\"version\":3}"), "{}", asked[0]);
}

#[test]
fn scripts_for_shells_are_written() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = tidegate(Path::new("."), &["completions", shell], "");
        assert_eq!(run.code, Some(0), "{shell}");
        assert!(run.stdout.contains("tidegate"), "{shell}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let run = tidegate(folder.path(), &["manual", "man/man1"], "");
    assert_eq!(run.code, Some(0), "{}", run.whole());
    let page = |name: &str| std::fs::read_to_string(folder.path().join("man/man1").join(name));
    assert!(page("tidegate.1").unwrap().contains("tidegate\\-serve(1)"));
    assert!(page("tidegate-serve.1").unwrap().contains("\\-\\-rules"));
    assert!(page("tidegate-rules-validate.1").is_ok());
    assert!(page("tidegate-help.1").is_err());

    let refused = tidegate(folder.path(), &["manual", "man/man1/tidegate.1"], "");
    assert_eq!(refused.code, Some(2), "{}", refused.whole());
}

#[test]
fn an_override_is_given_listed_and_removed() {
    let one = r#"{"rule": "per-ip", "key": "10.0.0.0/8", "limit": "unlimited", "expires_at": "2026-11-17T12:00:00Z",
        "reason": "load-test", "by": "ops", "at": "2026-11-17T10:00:00Z"}"#;
    let line = "override per-ip 10.0.0.0/8 unlimited --for 2h --reason load-test";
    let (given, asked) = run(line, "", &[("201 Created", one)]);
    assert_eq!(given.code, Some(0), "{}", given.whole());
    let said = "10.0.0.0/8 is unlimited under per-ip until 2026-11-17T12:00:00Z\n";
    assert_eq!(given.stdout, said);
    let (head, body) = asked[0].split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("POST /v1/rules/per-ip/overrides "),
        "{head}"
    );
    let expected = r#"{"key":"10.0.0.0/8","limit":"unlimited","for":"2h","reason":"load-test"}"#;
    assert_eq!(body, expected);

    let all = format!(r#"{{"overrides": [{one}]}}"#);
    let (listed, asked) = run("override", "", &[("200 OK", &all)]);
    assert!(asked[0].starts_with("GET /v1/overrides "), "{}", asked[0]);
    assert!(listed.stdout.contains("load-test"), "{}", listed.whole());

    let line = "override per-ip 10.0.0.0/8 --remove";
    let (removed, asked) = run(line, "", &[("204 No Content", "")]);
    assert_eq!(removed.code, Some(0), "{}", removed.whole());
    let path = "DELETE /v1/rules/per-ip/overrides/10.0.0.0%2F8 ";
    assert!(asked[0].starts_with(path), "{}", asked[0]);
    let missing = ("404 Not Found", r#"{"detail": "rule `per-ip` has none"}"#);
    let (missing, _) = run(line, "", &[missing]);
    assert_eq!(
        (missing.code, missing.stderr.as_str()),
        (Some(1), "rule `per-ip` has none\n")
    );
    for (line, said) in [
        ("override per-ip 10.0.0.0/8 unlimited", "--for 2h"),
        ("override per-ip 10.0.0.0/8", "--remove"),
    ] {
        let (refused, _) = run(line, "", &[]);
        assert_eq!(refused.code, Some(2), "{}", refused.whole());
        assert!(refused.stderr.contains(said), "{}", refused.whole());
    }
}
