//! A concurrency limit that is used up: what its clients get, at every front end over HTTP.

use serde_json::json;

use tidegate_testkit_server::TestFolder;
use tidegate_testkit_server::{ClientReply, HttpClient};

const PERMITS: &str =
    "rules:\n  - {id: uploads, per: [], limit: 1, algorithm: concurrency, lease_ttl: 60s}\n";
const WITH_BUCKET: &str =
    "  - {id: slow, per: [], limit: 1/minute, algorithm: fixed_window, anchor: first_request}\n";

/// What the header of the draft says of each limit.
fn standings(reply: &ClientReply) -> &str {
    reply.header("ratelimit").unwrap_or_default()
}

#[test]
fn retry_after_of_a_permit_is_one_second_at_check_authorize_and_gateway() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", PERMITS);
    let behind = folder.serve(&["--data-dir", "behind"]);
    let url = behind.url();
    let arguments = [
        "--rules",
        "rules.yaml",
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &url,
    ];
    let server = folder.serve(&arguments);
    let check = json!({"attributes": {}}).to_string();
    server.ask("POST /v1/check", &check).with_status(200);

    let denied = server.ask("POST /v1/check", &check).with_status(429);
    assert_eq!(denied.header("retry-after"), Some("1"));
    assert_eq!(standings(&denied), r#""uploads";r=0;t=1"#);
    let exact = denied.json()["retry_after"].as_f64().unwrap();
    assert!((50.0..=60.0).contains(&exact), "{exact}");
    assert_eq!(denied.json()["limits"][0]["retry_after"], exact);

    let authorize = server.ask("GET /v1/authorize", "").with_status(429);
    let through_gateway = HttpClient::to(server.gateway.unwrap()).ask("GET /healthz", "");
    for denied in [authorize, through_gateway.with_status(429)] {
        assert_eq!(denied.header("retry-after"), Some("1"));
        assert_eq!(standings(&denied), r#""uploads";r=0;t=1"#);
        assert!(
            denied.detail().contains("try again in 1 second"),
            "{denied:?}"
        );
    }
}

#[test]
fn the_longest_wait_of_the_other_limits_that_deny_is_retry_after() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", &[PERMITS, WITH_BUCKET].concat());
    let server = folder.serve(&["--rules", "rules.yaml", "--trust-timestamps"]);
    let at = |seconds: f64| {
        json!({"attributes": {}, "timestamp": 1_794_770_000.0 + seconds}).to_string()
    };
    server.ask("POST /v1/check", &at(0.0)).with_status(200);
    let denied = server.ask("POST /v1/check", &at(20.5)).with_status(429);
    assert_eq!(denied.header("retry-after"), Some("40"));
    assert_eq!(standings(&denied), r#""uploads";r=0;t=1, "slow";r=0;t=40"#);
}
