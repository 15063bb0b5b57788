//! The console: its files and their headers, codes and sessions.

use serde_json::{Value, json};

use crate::Server;
use tidegate_testkit_server::{ClientReply, TestFolder};

const SESSION: &str = "/v1/console/session";
const CODE: &str = "POST /v1/console/code";

fn ask_as(server: &Server, token: &str, call: &str, body: &str) -> ClientReply {
    let authorization = format!("Bearer {token}");
    server.ask_with(call, &[("authorization", &authorization)], body)
}

/// Opens a session with a code, as a page does: without a token.
fn open(server: &Server, code: &str) -> ClientReply {
    let body = json!({ "code": code }).to_string();
    let call = format!("POST {SESSION}");
    server.ask_with(&call, &[("authorization", "")], &body)
}

fn code(server: &Server, token: &str) -> String {
    let made = ask_as(server, token, CODE, "{}").with_status(200).json();
    assert_eq!(made["expires_in"], 60);
    made["code"].as_str().unwrap().to_owned()
}

fn session(server: &Server, token: &str) -> Value {
    let opened = open(server, &code(server, token)).with_status(200);
    assert_eq!(opened.header("cache-control"), Some("no-store"));
    opened.json()
}

/// Opens a session with a token, as a page does into which it was typed.
fn session_of_token(server: &Server, token: &str) -> Value {
    let opened = ask_as(server, token, &format!("POST {SESSION}"), "{}").with_status(200);
    assert_eq!(opened.header("cache-control"), Some("no-store"));
    opened.json()
}

#[test]
fn the_files_are_served_to_everyone_and_may_do_nothing_but_ask_this_server() {
    let folder = TestFolder::new();
    let server = folder.serve_with(&[], &[("TIDEGATE_TOKEN", "secret")]);
    let page = server.ask("GET /console/", "").with_status(200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(page.body.starts_with("<!doctype html>"));
    let script = server.ask("GET /console/app.js", "").with_status(200);
    let media_type = script.header("content-type");
    assert_eq!(media_type, Some("text/javascript; charset=utf-8"));
    for reply in [&page, &script] {
        let policy = reply.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.split("; ").any(|given| given == part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
    let tag = page.header("etag").unwrap();
    let known = server.ask_with("GET /console/", &[("if-none-match", tag)], "");
    assert!(known.with_status(304).body.is_empty());
    let moved = server.ask("GET /console", "").with_status(308);
    assert_eq!(moved.header("location"), Some("/console/"));
    for path in ["index.html", "..", "../Cargo.toml", "%2e%2e/x", "app.js/"] {
        server
            .ask(&format!("GET /console/{path}"), "")
            .with_status(404);
    }
    server.ask("POST /console/", "{}").with_status(405);
}

#[test]
fn without_the_console_there_is_nothing_of_it() {
    let folder = TestFolder::new();
    let server = folder.serve_with(&[], &[("TIDEGATE_CONSOLE", "off")]);
    let calls = [
        "GET /console",
        "GET /console/",
        "GET /console/app.js",
        CODE,
        "GET /v1/console/session",
        "DELETE /v1/console/session",
    ];
    for call in calls {
        let body = if call == CODE { "{}" } else { "" };
        let detail = server.ask(call, body).with_status(404).detail();
        assert!(detail.contains("console"), "{detail}");
    }
    open(&server, "x").with_status(404);
    server.ask("GET /v1/rules", "").with_status(200);
}

#[test]
fn what_an_operator_reads_is_kept_by_no_cache() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    for call in ["GET /v1/rules", "GET /v1/rules/history", "GET /v1/rules/x"] {
        let reply = server.ask(call, "");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{call}");
    }
}

const TOKENS: &str = "
tokens:
  - {name: dashboard, token_file: dashboard.token, scopes: [read]}
  - {name: ops, token_env: OPS, scopes: [read, write]}
  - {name: edge, token_env: EDGE, scopes: [check]}
secret_attributes: [card]
";

fn with_tokens(folder: &TestFolder) -> Server {
    let config = TOKENS.replace("dashboard.token", &folder.file("dashboard.token"));
    folder.write("tidegate.yaml", &config);
    folder.write("dashboard.token", "d-secret\n");
    let environment = [("OPS", "o-secret"), ("EDGE", "e-secret")];
    folder.serve_with(&["--config", "tidegate.yaml"], &environment)
}

#[test]
fn a_session_may_do_what_its_token_may_and_nothing_else() {
    let folder = TestFolder::new();
    let server = with_tokens(&folder);
    let write = ("PUT /v1/rules", r#"{"rules": []}"#);
    let read = || json!(["read"]);
    let all = || json!(["read", "write"]);
    for (opened, name, scopes, status) in [
        (session(&server, "d-secret"), "dashboard", read(), 403),
        (session(&server, "o-secret"), "ops", all(), 200),
        (
            session_of_token(&server, "d-secret"),
            "dashboard",
            read(),
            403,
        ),
        (session_of_token(&server, "o-secret"), "ops", all(), 200),
    ] {
        assert_eq!(opened["name"], name);
        assert_eq!(opened["scopes"], scopes);
        let secret = opened["secret_attributes"].as_array().unwrap();
        assert!(secret.contains(&json!("api_key")) && secret.contains(&json!("card")));
        assert!(!secret.contains(&json!("user_id")));
        let secret = opened["token"].as_str().unwrap();
        ask_as(&server, secret, "GET /v1/rules", "").with_status(200);
        ask_as(&server, secret, write.0, write.1).with_status(status);
        let shown = ask_as(&server, secret, &format!("GET {SESSION}"), "").json();
        assert_eq!(shown["expires_at"], opened["expires_at"]);
        assert!(shown["expires_at"].is_u64() && shown["token"].is_null());
        // It cannot be made to last.
        let open = format!("POST {SESSION}");
        ask_as(&server, secret, CODE, "{}").with_status(403);
        ask_as(&server, secret, &open, "{}").with_status(403);
        let end = format!("DELETE {SESSION}");
        ask_as(&server, secret, &end, "").with_status(204);
        let ended = ask_as(&server, secret, "GET /v1/rules", "").with_status(401);
        assert!(ended.detail().contains("has ended"), "{}", ended.body);
        let other = ask_as(&server, "tgs_00000000ff", "GET /v1/rules", "").with_status(401);
        assert!(other.detail().contains("was restarted"), "{}", other.body);
    }
    let shown = ask_as(&server, "e-secret", &format!("GET {SESSION}"), "").json();
    assert_eq!(shown["scopes"], json!(["check"]));
    assert_eq!(shown["expires_at"], Value::Null);
    ask_as(&server, "e-secret", CODE, "{}").with_status(403);
    ask_as(&server, "guess", CODE, "{}").with_status(401);
    let open = format!("POST {SESSION}");
    for (token, status, says) in [
        ("e-secret", 403, "the console needs the scope `read`"),
        ("guess", 401, "unknown token"),
    ] {
        let refused = ask_as(&server, token, &open, "{}").with_status(status);
        assert!(refused.detail().contains(says), "{}", refused.body);
    }
    let bare = server.ask_with(&open, &[("authorization", "")], "{}");
    let detail = bare.with_status(401).detail();
    assert!(detail.contains("requires a token"), "{detail}");
    let history = ask_as(&server, "o-secret", "GET /v1/rules/history", "").json();
    assert_eq!(history["history"], json!([]), "nothing was changed");
}

#[test]
fn a_code_works_once_and_a_wrong_one_counts_as_a_wrong_token() {
    let folder = TestFolder::new();
    let server = with_tokens(&folder);
    let code = code(&server, "o-secret");
    open(&server, &code).with_status(200);
    let detail = open(&server, &code).with_status(401).detail();
    assert!(detail.contains("tidegate console"), "{detail}");
    open(&server, "guess").with_status(401);
    let metrics = server.ask("GET /metrics", "").body;
    let line = "tidegate_token_refused_total{front_end=\"http\",reason=\"unknown\"} 2";
    assert!(metrics.contains(line), "{metrics}");
    let log = server.log.wait_for("a session of the console was opened");
    assert!(!log.contains(&code) && !log.contains("o-secret"), "{log}");
}

#[test]
fn a_session_ends_when_its_token_is_replaced() {
    let folder = TestFolder::new();
    let server = with_tokens(&folder);
    let opened = session(&server, "d-secret");
    let secret = opened["token"].as_str().unwrap();
    ask_as(&server, secret, "GET /v1/rules", "").with_status(200);
    folder.write("dashboard.token", "d-another\n");
    server.reload();
    server.log.wait_for("the token was read again");
    ask_as(&server, secret, "GET /v1/rules", "").with_status(401);
    ask_as(&server, "d-another", "GET /v1/rules", "").with_status(200);
}

#[test]
fn a_browser_is_led_to_the_console_and_a_program_is_not() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let page = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let led = server.ask_with("GET /", &page, "").with_status(303);
    assert_eq!(led.header("location"), Some("/console/"));
    for accepted in ["*/*", "application/json"] {
        let refused = server.ask_with("GET /", &[("accept", accepted)], "");
        refused.with_status(404).detail();
    }
    server.ask_with("POST /", &page, "").with_status(404);
    let folder = TestFolder::new();
    let server = folder.serve_with(&[], &[("TIDEGATE_CONSOLE", "off")]);
    server.ask_with("GET /", &page, "").with_status(404);
}

#[test]
fn a_session_of_the_made_token_counts_only_from_this_machine() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let token = server.token.clone().unwrap();
    let opened = session(&server, &token);
    let secret = opened["token"].as_str().unwrap();
    assert_eq!(opened["name"], "admin-token");
    ask_as(&server, secret, "GET /v1/rules", "").with_status(200);
    let authorization = format!("Bearer {secret}");
    let own = format!("http://{}", server.address);
    let host = server.address.to_string();
    let own = [
        ("authorization", authorization.as_str()),
        ("host", &host),
        ("origin", &own),
        ("sec-fetch-site", "same-origin"),
    ];
    let reset = r#"{"rules": []}"#;
    server
        .ask_with("PUT /v1/rules", &own, reset)
        .with_status(200);
    for header in [
        ("host", "limits.example.com"),
        ("x-forwarded-for", "203.0.113.7"),
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let headers = [("authorization", authorization.as_str()), header];
        let refused = server.ask_with("GET /v1/rules", &headers, "");
        refused.with_status(403);
        let code = code(&server, &token);
        let body = json!({ "code": code }).to_string();
        let call = format!("POST {SESSION}");
        let refused = server.ask_with(&call, &[("authorization", ""), header], &body);
        refused.with_status(403);
        open(&server, &code).with_status(200);
        let made = format!("Bearer {token}");
        let refused = server.ask_with(&call, &[("authorization", &made), header], "{}");
        refused.with_status(403);
    }
    session_of_token(&server, &token);
}
