//! Every call that is refused is refused in one form, with words that help.

use serde_json::json;

use crate::Server;
use tidegate_testkit_server::TestFolder;

/// What is asked, how it is refused, and what must be named.
type Refusal<'a> = (&'a str, &'a str, u16, &'a str);

#[rustfmt::skip]
const REFUSALS: [Refusal<'_>; 61] = [
    ("GET /",                       "",                                             404, "`/openapi.json` lists"),
    ("GET /v1",                     "",                                             404, "`/v1`"),
    ("POST /v1/check/",             "{}",                                           404, "`/v1/check/`"),
    ("POST /v1/chek",               "{}",                                           404, "`/v1/chek`"),
    ("GET /v1/rules/a/b",           "",                                             404, "`/v1/rules/a/b`"),
    ("GET /v1/rules/none",          "",                                             404, "`none`"),
    ("DELETE /v1/rules/none",       "",                                             404, "`none`"),
    ("DELETE /v1/leases/none",      "",                                             404, "`none`"),
    ("GET /v1/check",               "",                                             405, "use POST"),
    ("DELETE /v1/rules",            "",                                             405, "use GET, HEAD, POST, PUT"),
    ("POST /v1/rules/a",            "{}",                                           405, "use DELETE, GET, HEAD, PUT"),
    ("POST /v1/rules/history",      "{}",                                           405, "use GET, HEAD"),
    ("GET /v1/rules/rollback",      "",                                             405, "use POST"),
    ("GET /v1/reset",               "",                                             405, "use POST"),
    ("GET /v1/leases/none",         "",                                             405, "use DELETE, PUT"),
    ("POST /healthz",               "{}",                                           405, "use GET, HEAD"),
    ("BREW /v1/check",              "",                                             405, "BREW"),
    ("POST /v1/check",              "",                                             400, "empty"),
    ("POST /v1/check",              "{",                                            400, "not valid JSON"),
    ("POST /v1/check",              "[]",                                           400, "must be a JSON object, not an array"),
    ("POST /v1/check",              r#"[{"user_id": "u"}, 1, null]"#,               400, "must be a JSON object, not an array"),
    ("POST /v1/check",              r#"{"attributes": [["user_id", "u"]]}"#,        400, "an object of attributes"),
    ("POST /v1/check",              "\"{}\"",                                       400, "not a string"),
    ("POST /v1/check",              "[{]",                                          400, "not valid JSON"),
    ("POST /v1/check/batch",        r#"[[{"attributes": {}}]]"#,                    400, "must be a JSON object, not an array"),
    ("POST /v1/check/batch",        r#"{"checks": [{"attributes": {}}, [{}, 1]]}"#, 400, "checks[1] must be a JSON object, not an array"),
    ("POST /v1/reset",              r#"[{"user_id": "u"}, "a"]"#,                   400, "must be a JSON object, not an array"),
    ("POST /v1/reset",              r#"{"attributes": []}"#,                        400, "an object of attributes"),
    ("POST /v1/rules/rollback",     "[1]",                                          400, "must be a JSON object, not an array"),
    ("PUT /v1/rules",               "[[]]",                                         400, "must be a JSON object, not an array"),
    ("POST /v1/rules",              r#"["a", [], "1/s"]"#,                          400, "must be a JSON object, not an array"),
    ("PUT /v1/rules/a",             "[]",                                           400, "must be a JSON object, not an array"),
    ("PUT /v1/leases/none",         "[]",                                           400, "must be a JSON object, not an array"),
    ("DELETE /v1/leases/none",      "[]",                                           400, "must be a JSON object, not an array"),
    ("POST /v1/check",              "{}",                                           400, "`attributes`"),
    ("POST /v1/check",              r#"{"attributes": {}, "cots": 1}"#,             400, "`cots`"),
    ("POST /v1/check",              r#"{"attributes": {"user_id": 7}}"#,            400, "`user_id`"),
    ("POST /v1/check",              r#"{"attributes": {"ip": "::x"}}"#,             400, "`::x`"),
    ("POST /v1/check",              r#"{"attributes": {"host": "a.example:x"}}"#,   400, "`a.example:x` is not a host"),
    ("POST /v1/check",              r#"{"attributes": {"host": "a.example:1:1"}}"#, 400, "`a.example:1:1` is not a host"),
    ("POST /v1/check",              r#"{"attributes": {"host": "a..example"}}"#,    400, "`a..example` is not a host"),
    ("POST /v1/check",              r#"{"attributes": {"host": "[a.example]"}}"#,   400, "`[a.example]` is not a host"),
    ("POST /v1/check",              r#"{"attributes": {"path": "/%zz"}}"#,          400, "`path`"),
    ("POST /v1/check",              r#"{"attributes": {"a": "1", "a": "2"}}"#,      400, "`a` is given twice"),
    ("POST /v1/check",              r#"{"attributes": {}, "cost": -1}"#,            400, "`cost`"),
    ("POST /v1/check",              r#"{"attributes": {}, "cost": 0.5}"#,           400, "`cost`"),
    ("POST /v1/check",              r#"{"attributes": {}, "timestamp": 1}"#,        400, "--trust-timestamps"),
    ("POST /v1/check/batch",        r#"{"attributes": {}}"#,                        400, "`attributes`"),
    ("POST /v1/rules",              "{",                                            400, "not valid JSON"),
    ("PUT /v1/rules",               "",                                             403, "application/json"),
    ("POST /v1/check",              "",                                             400, "empty"),
    ("PUT /v1/rules",               r#"{"rules": [], "prune": true}"#,              422, "`prune`"),
    ("POST /v1/rules",              r#"{"id": "a", "per": [], "limit": 5}"#,        422, "`limit`"),
    ("POST /v1/rules/rollback",     r#"{"versoin": 1}"#,                            400, "`versoin`"),
    ("POST /v1/rules/rollback",     r#"{"version": 1}"#,                            404, "version 1"),
    ("POST /v1/reset",              r#"{"attributes": {}, "rules": "a"}"#,          400, "`rules`"),
    ("POST /v1/reset",              r#"{"attributes": {}, "rule": "none"}"#,        404, "`none`"),
    ("GET /v1/feedback",            "",                                             405, "use POST"),
    ("POST /v1/feedback",           r#"{"rule": "none"}"#,                          400, "`latency`"),
    ("POST /v1/feedback",           r#"{"rule": "none", "latency": 1}"#,            404, "`none`"),
    ("POST /v1/feedback",           r#"{"rule": "a", "latency": 3601}"#,            400, "3600"),
];

#[test]
fn every_refusal_is_a_problem_that_names_what_is_wrong() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let mut client = server.client();
    for (call, body, status, named) in REFUSALS {
        let reply = client.ask(call, body);
        assert_eq!(reply.status, status, "{call} {body}: {reply:?}");
        let detail = reply.detail();
        assert!(detail.contains(named), "{call} {body}: {detail}");
        let allowed = reply.header("allow");
        assert_eq!(allowed.is_some(), status == 405, "{call}: {reply:?}");
        if let Some(allowed) = allowed {
            assert!(detail.ends_with(allowed), "{call}: {detail}");
        }
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read_or_as_soon_as_it_is_seen() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    for (call, length, most) in [
        ("POST /v1/check", "65537", "65536 bytes"),
        ("POST /v1/check/batch", "1048577", "1048576 bytes"),
        ("PUT /v1/rules", "9000000", "8388608 bytes"),
    ] {
        let announced = [
            ("content-length", length),
            ("content-type", "application/json"),
        ];
        let refused = server.ask_with(call, &announced, "").with_status(413);
        assert!(refused.detail().contains(most), "{refused:?}");
    }

    let mut client = server.client();
    let chunked = [
        ("transfer-encoding", "chunked"),
        ("content-type", "application/json"),
    ];
    client
        .send(&tidegate_testkit_server::request(
            "POST /v1/check",
            &chunked,
            "",
        ))
        .unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 65_537, "x".repeat(65_537));
    client.send(&chunk).unwrap();
    client.reply().unwrap().with_status(413).detail();
}

#[test]
fn rules_that_are_large_but_not_too_large_are_taken() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let rule = |number| json!({"id": format!("r{number}"), "per": ["ip"], "limit": "10/minute"});
    let rules: Vec<_> = (0..5_000).map(rule).collect();
    let body = json!({ "rules": rules }).to_string();
    server.ask("PUT /v1/rules", &body).with_status(200);
    assert_eq!(rule_count(&server), 5_000);
}

fn rule_count(server: &Server) -> usize {
    let rules = server.ask("GET /v1/rules", "").json();
    rules["rules"].as_array().unwrap().len()
}
