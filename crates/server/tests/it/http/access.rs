//! Who may do what: tokens with scopes.

use crate::Server;
use tidegate_testkit_server::TestFolder;

const CHECK: (&str, &str) = ("POST /v1/check", r#"{"attributes": {"ip": "1.2.3.4"}}"#);
const BATCH: (&str, &str) = ("POST /v1/check/batch", r#"{"checks": []}"#);
const READ: (&str, &str) = ("GET /v1/rules", "");
const WRITE: (&str, &str) = (
    "PUT /v1/rules",
    r#"{"rules": [{"id": "a", "per": ["ip"], "limit": "1000/minute"}]}"#,
);
const RESET: (&str, &str) = ("POST /v1/reset", r#"{"attributes": {"ip": "1.2.3.4"}}"#);

const FEEDBACK: (&str, &str) = ("POST /v1/feedback", r#"{"feedback": []}"#);

const CONFIG: &str = "
tokens:
  - {name: dashboard, token_file: dashboard.token, scopes: [read]}
  - {name: deployer, token_env: DEPLOYER, scopes: [write]}
  - {name: edge, token_env: EDGE, scopes: [check]}
";

fn with_tokens(folder: &TestFolder) -> Server {
    let config = CONFIG.replace("dashboard.token", &folder.file("dashboard.token"));
    folder.write("tidegate.yaml", &config);
    folder.write("dashboard.token", "d-secret\n");
    let environment = [
        ("DEPLOYER", "w-secret"),
        ("EDGE", "e-secret"),
        ("TIDEGATE_TOKEN", "root-secret"),
    ];
    folder.serve_with(&["--config", "tidegate.yaml"], &environment)
}

#[test]
fn the_history_and_the_status_need_the_scope_read() {
    let folder = TestFolder::new();
    let server = with_tokens(&folder);
    let root = [("authorization", "Bearer root-secret")];
    server.ask_with(WRITE.0, &root, WRITE.1).with_status(200);
    for call in [
        "GET /v1/rules/history/1",
        "GET /v1/rules/diff?from=0&to=1",
        "GET /v1/status",
    ] {
        for (token, status) in [("d-secret", 200), ("w-secret", 200), ("e-secret", 403)] {
            let authorization = format!("Bearer {token}");
            let headers = [("authorization", authorization.as_str())];
            server.ask_with(call, &headers, "").with_status(status);
        }
        server.ask(call, "").with_status(401).detail();
    }
    let preview = r#"{"version": 1, "dry_run": true}"#;
    for (token, status) in [("w-secret", 200), ("d-secret", 403)] {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str())];
        let reply = server.ask_with("POST /v1/rules/rollback", &headers, preview);
        reply.with_status(status);
    }
}

#[test]
fn a_token_opens_what_its_scopes_say_and_nothing_else() {
    let folder = TestFolder::new();
    let server = with_tokens(&folder);
    #[rustfmt::skip]
    let table = [
        //                       check batch read write reset feedback
        ("Bearer d-secret",     [403,  403,  200, 403,  403,  403]),
        ("Bearer w-secret",     [403,  403,  200, 200,  200,  403]),
        ("Bearer e-secret",     [200,  200,  403, 403,  403,  204]),
        ("Bearer root-secret",  [200,  200,  200, 200,  200,  204]),
        ("bearer root-secret",  [200,  200,  200, 200,  200,  204]),
        ("Bearer d-secre",      [401,  401,  401, 401,  401,  401]),
        ("Bearer ",             [401,  401,  401, 401,  401,  401]),
        ("Basic ZDpzZWNyZXQ=",  [401,  401,  401, 401,  401,  401]),
    ];
    for (authorization, expected) in table {
        let ask = |(call, body): (&str, &str)| {
            let reply = server.ask_with(call, &[("authorization", authorization)], body);
            if reply.status >= 400 {
                let detail = reply.detail();
                assert!(!detail.contains("secret"), "{detail}");
            }
            assert_eq!(
                reply.header("www-authenticate").is_some(),
                reply.status == 401
            );
            reply.status
        };
        let found = [CHECK, BATCH, READ, WRITE, RESET, FEEDBACK].map(ask);
        assert_eq!(found, expected, "{authorization}");
    }
    for (call, body) in [CHECK, READ, WRITE] {
        let refused = server.ask(call, body).with_status(401);
        assert!(
            refused.detail().contains("Authorization: Bearer"),
            "{refused:?}"
        );
    }
    for probe in [
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
        "GET /openapi.json",
    ] {
        server.ask(probe, "").with_status(200);
    }
}

#[test]
fn without_tokens_a_page_of_another_site_cannot_use_up_a_limit() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", "rules: [{id: a, per: [], limit: 2/hour}]");
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let lease = "/v1/leases/1-1-1";
    let (release, renew) = (format!("DELETE {lease}"), format!("PUT {lease}"));
    let page = [
        ("origin", "https://evil.example"),
        ("content-type", "text/plain"),
    ];
    let fetched = [("sec-fetch-site", "cross-site")];
    for (call, body) in [CHECK, BATCH, (release.as_str(), ""), (renew.as_str(), "")] {
        for headers in [&page[..], &fetched, &[("origin", "null")]] {
            let refused = server.ask_with(call, headers, body).with_status(403);
            assert_eq!(refused.json()["reason"], "cross_site");
            let detail = refused.detail();
            assert!(detail.contains("configure a token"), "{detail}");
            assert!(detail.contains("call from your server"), "{detail}");
        }
    }
    // Nothing was charged; a page of the same host name may ask, and so may programs.
    let same = [
        ("origin", "http://localhost:3000"),
        ("sec-fetch-site", "same-site"),
    ];
    server.ask_with(CHECK.0, &same, CHECK.1).with_status(200);
    server.ask(CHECK.0, CHECK.1).with_status(200);
    server.ask(CHECK.0, CHECK.1).with_status(429);
    // The end client of a proxy may be on any page.
    let authorize = server.ask_with("GET /v1/authorize", &page, "");
    assert_ne!(authorize.status, 403);

    let folder = TestFolder::new();
    let server = with_tokens(&folder);
    let edge = ("authorization", "Bearer e-secret");
    let asked = server.ask_with(CHECK.0, &[edge, page[0], fetched[0]], CHECK.1);
    asked.with_status(200);
}

#[test]
fn parameters_that_a_call_does_not_have_are_refused() {
    let folder = TestFolder::new();
    let server = with_tokens(&folder);
    let root = [("authorization", "Bearer root-secret")];
    server.ask_with(WRITE.0, &root, WRITE.1).with_status(200);
    for call in ["/v1/rules", "/v1/rules/a", "/v1/rules/history"] {
        let asked = server.ask_with(&format!("GET {call}?version=1"), &root, "");
        let detail = asked.with_status(400).detail();
        assert!(detail.contains("unknown parameter `version`"), "{detail}");
        server
            .ask_with(&format!("GET {call}?"), &root, "")
            .with_status(200);
    }
}

#[test]
fn a_change_is_remembered_with_the_name_of_its_token() {
    let folder = TestFolder::new();
    let server = with_tokens(&folder);
    let writer = [("authorization", "Bearer w-secret")];
    // From anywhere and through anything: the token says who it is.
    let far = [
        writer[0],
        ("host", "limits.example.com"),
        ("x-forwarded-for", "203.0.113.7"),
    ];
    server.ask_with(WRITE.0, &far, WRITE.1).with_status(200);
    let history = server.ask_with("GET /v1/rules/history", &writer, "").json();
    assert_eq!(history["history"][0]["by"], "deployer");
    let log = server.log.wait_for("the rules were changed");
    assert!(log.contains("deployer") && !log.contains("secret"), "{log}");
}

#[test]
fn failed_tokens_are_counted_and_logged_at_a_bounded_rate_without_their_value() {
    let folder = TestFolder::new();
    let server = with_tokens(&folder);
    for n in 0..50 {
        let guess = format!("Bearer guess-{n}");
        let refused = server.ask_with(READ.0, &[("authorization", &guess)], "");
        refused.with_status(401);
    }
    server.ask(READ.0, "").with_status(401);
    let edge = [("authorization", "Bearer e-secret")];
    server.ask_with(READ.0, &edge, "").with_status(403);
    let metrics = server.ask("GET /metrics", "").body;
    for (reason, count) in [("unknown", 50), ("missing", 1), ("scope", 1)] {
        let line = format!(
            "tidegate_token_refused_total{{front_end=\"http\",reason=\"{reason}\"}} {count}"
        );
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }
    let log = server.log.wait_for("a token was refused");
    let lines = log.matches("a token was refused").count();
    assert!((1..=45).contains(&lines), "{lines} lines");
    assert!(log.contains("peer=127.0.0.1"), "{log}");
    assert!(
        !log.contains("guess-") && !log.contains("e-secret"),
        "{log}"
    );
}
