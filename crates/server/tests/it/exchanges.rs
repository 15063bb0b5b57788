//! Every answer of the API and the gateway has the id of its request, and the access log has a line for each:
//! without its query, and with no header that is not listed.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{ClientReply, HttpClient, RecordingUpstream, TestFolder};

use crate::Server;

const RULES: &str = "rules:\n  - {id: few, match: {path: /few}, per: [ip], limit: 1/hour}\n  - {id: user, per: [user_id], limit: 9/hour}\n";

fn serve(folder: &TestFolder, upstream: &RecordingUpstream, settings: &str) -> Server {
    folder.write("rules.yaml", RULES);
    folder.write("c.yaml", settings);
    let upstream = format!("http://{}", upstream.address);
    folder.serve(&[
        "--rules",
        "rules.yaml",
        "--config",
        "c.yaml",
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &upstream,
    ])
}

fn id(reply: &ClientReply) -> String {
    let ids = reply
        .headers
        .iter()
        .filter(|(name, _)| name == "x-request-id");
    let ids: Vec<&String> = ids.map(|(_, id)| id).collect();
    assert_eq!(ids.len(), 1, "{reply:?}");
    ids[0].clone()
}

#[test]
fn a_well_formed_id_is_kept_and_any_other_replaced() {
    let (folder, upstream) = (TestFolder::new(), RecordingUpstream::start());
    let server = serve(&folder, &upstream, "");
    let mut api = server.client();
    let mut gateway = HttpClient::to(server.gateway.unwrap());
    let good = "Ab-1_2.c";
    for sent in [good, "", "a b", "a\"b", &"x".repeat(65)] {
        let headers = [("x-request-id", sent)];
        let check = api.ask_with("POST /v1/check", &headers, r#"{"attributes": {}}"#);
        let missing = api.ask_with("GET /none", &headers, "").with_status(404);
        let forwarded = gateway.ask_with("GET /a", &headers, "").with_status(200);
        for reply in [check, missing, forwarded] {
            let id = id(&reply);
            assert_eq!(id == good, sent == good, "{sent}");
            assert!(id == good || id.len() == 16, "{id}");
        }
    }
    let heads = upstream.heads("/a");
    for head in &heads {
        assert_eq!(head.matches("x-request-id: ").count(), 1, "{head}");
    }
    assert!(
        heads[0].contains("x-request-id: ab-1_2.c\r\n"),
        "{}",
        heads[0]
    );
    assert!(!heads[2].contains("a b"), "{}", heads[2]);
    // Denied, and refused before it is decided.
    gateway.ask("GET /few", "").with_status(200);
    let denied = gateway
        .ask_with("GET /few", &[("x-request-id", good)], "")
        .with_status(429);
    assert_eq!(id(&denied), good);
    let refused = gateway.ask("GET /a%2fb", "").with_status(400);
    assert_eq!(id(&refused).len(), 16);
}

/// The lines of the access log, once there are so many.
fn lines(folder: &TestFolder, count: usize) -> Vec<Value> {
    let read = || {
        let text = std::fs::read_to_string(folder.path("access.log")).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        (lines.len() >= count).then_some(lines)
    };
    wait_until("lines of the access log", Duration::from_secs(20), read)
}

#[test]
fn the_access_log_has_each_request_without_its_query_and_only_listed_headers() {
    let (folder, upstream) = (TestFolder::new(), RecordingUpstream::start());
    let settings = format!(
        "access_log: {}\naccess_log_headers: [User-Agent]\n",
        folder.file("access.log")
    );
    let server = serve(&folder, &upstream, &settings);
    // First, because the log of a test is not that of the gateway's threads.
    let mut api = server.client();
    let few = json!({"attributes": {"path": "/few", "ip": "192.0.2.1"}}).to_string();
    api.ask("POST /v1/check", &few).with_status(200);
    api.ask("POST /v1/check", &few).with_status(429);
    let mut gateway = HttpClient::to(server.gateway.unwrap());
    let headers = [
        ("user-agent", "curl/8"),
        ("authorization", "Bearer hidden"),
        ("x-request-id", "first"),
    ];
    let reply = gateway.ask_with("GET /few?token=hidden", &headers, "");
    gateway.ask("GET /few", "").with_status(429);
    gateway.ask("GET /a%2fb", "").with_status(400);
    let check = json!({"attributes": {"user_id": "hidden"}}).to_string();
    api.ask("POST /v1/check?hidden", &check).with_status(200);
    let batch = json!({"checks": [{"attributes": {"user_id": "u"}}, {"attributes": {}}]});
    api.ask("POST /v1/check/batch", &batch.to_string());
    let lines = lines(&folder, 7);
    assert_eq!(lines.len(), 7);
    assert!(!format!("{lines:?}").contains("hidden"), "{lines:#?}");
    #[rustfmt::skip]
    let table = [
        // front end    method  path                status  verdict     rule    reason
        ("http",        "POST", "/v1/check",        200,    "allowed",  "few",  Value::Null),
        ("http",        "POST", "/v1/check",        429,    "denied",   "few",  json!("over_limit")),
        ("gateway",     "GET",  "/few",             200,    "allowed",  "few",  Value::Null),
        ("gateway",     "GET",  "/few",             429,    "denied",   "few",  json!("over_limit")),
        ("gateway",     "GET",  "/a%2fb",           400,    "",         "",     Value::Null),
        ("http",        "POST", "/v1/check",        200,    "allowed",  "user", Value::Null),
        ("http",        "POST", "/v1/check/batch",  200,    "allowed",  "user", Value::Null),
    ];
    for (line, (front_end, method, path, status, verdict, rule, reason)) in lines.iter().zip(table)
    {
        let found = [&line["front_end"], &line["method"], &line["path"]];
        assert_eq!(found, [front_end, method, path], "{line}");
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(
            line["verdict"].as_str().unwrap_or_default(),
            verdict,
            "{line}"
        );
        assert_eq!(line["rule"].as_str().unwrap_or_default(), rule, "{line}");
        assert_eq!(line["reason"], reason, "{line}");
        assert_eq!(line["client"], "127.0.0.1", "{line}");
        assert!(line["duration"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    }
    assert_eq!(lines[2]["request_id"], "first");
    assert_eq!(lines[2]["headers"], json!({"user-agent": "curl/8"}));
    assert_eq!(lines[2]["bytes"], reply.body.len());
    assert_eq!(lines[3].get("headers"), None);
    assert_eq!(lines[6]["decisions"], 2);
    let log = server.log.wait_for("denied");
    let denied = log.lines().find(|line| line.contains("denied")).unwrap();
    let id = lines[1]["request_id"].as_str().unwrap();
    assert!(denied.contains(id), "{denied}");
}

#[test]
fn an_access_log_that_cannot_be_opened_keeps_the_server_from_starting() {
    let folder = TestFolder::new();
    folder.write("c.yaml", "access_log: /nowhere/access.log\n");
    let config = folder.config(&["--config", "c.yaml"]);
    let opened = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(tidegate_server::Service::open(&config));
    let error = opened.err().unwrap().to_string();
    assert!(
        error.contains("`/nowhere/access.log`") && error.contains("access_log"),
        "{error}"
    );
}
