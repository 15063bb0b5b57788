//! Bodies: how large they may be, and how much memory those have that are held at a time.

use std::fmt::Write as _;

use serde_json::json;

use crate::Server;
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{HttpClient, PATIENCE, TestFolder};

/// A connection that sent a part of a body and leaves the rest to be waited for.
fn holding(server: &Server, call: &str, announced: usize, sent: usize) -> HttpClient {
    let mut client = server.client();
    let announced = announced.to_string();
    let headers = [
        ("content-length", announced.as_str()),
        ("content-type", "application/json"),
    ];
    let mut text = tidegate_testkit_server::request(call, &headers, "");
    let _ = write!(text, "{}", " ".repeat(sent));
    client.send(&text).unwrap();
    client
}

/// What the bodies take that the server holds.
fn held(server: &Server) -> usize {
    let page = server.ask("GET /metrics", "").body;
    let mut lines = page.lines();
    let line = lines.find_map(|line| line.strip_prefix("tidegate_body_memory_bytes "));
    line.unwrap().parse().unwrap()
}

/// Asks until it holds.
fn until(server: &Server, holds: impl Fn(usize) -> bool) -> usize {
    wait_until("the memory of bodies", PATIENCE, || {
        Some(held(server)).filter(|held| holds(*held))
    })
}

#[test]
fn calls_that_never_need_a_token_have_bodies_of_at_most_16_kib() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    for call in [
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
        "GET /openapi.json",
        "GET /console/",
        "POST /v1/authorize",
        "POST /v1/console/session",
    ] {
        let mut client = holding(&server, call, (16 << 10) + 1, 0);
        let refused = client.reply().unwrap().with_status(413);
        assert!(refused.detail().contains("16384 bytes"), "{refused:?}");
    }
    let code = format!(r#"{{"code": "{}"}}"#, "x".repeat(16_000));
    server
        .ask("POST /v1/console/session", &code)
        .with_status(401);
    let chunks = "POST /v1/console/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut client = server.client();
    client.send(chunks).unwrap();
    client
        .send(&format!("{:x}\r\n{}\r\n", 16_385, " ".repeat(16_385)))
        .unwrap();
    client.reply().unwrap().with_status(413);
}

#[test]
fn many_connections_without_a_token_hold_back_little() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let call = "POST /v1/console/session";
    let _held: Vec<HttpClient> = (0..50)
        .map(|_| holding(&server, call, 16 << 10, 16_000))
        .collect();
    let held = until(&server, |held| held >= 50 * 16_000);
    assert!(held <= 50 * (16 << 10), "{held}");
}

#[test]
fn bodies_beyond_their_memory_are_503_and_operators_have_their_own() {
    const MOST: usize = 1 << 20;
    let folder = TestFolder::new();
    let server = folder.serve_with(&[], &[("TIDEGATE_BODY_MEMORY", "1MiB")]);
    let batch = "POST /v1/check/batch";
    let mut first = holding(&server, batch, 400_000, 300_000);
    until(&server, |held| held >= 300_000);
    let second = holding(&server, batch, 1_000_000, 500_000);
    let full = until(&server, |held| held >= 800_000);
    assert!(full <= MOST, "{full}");

    let refused = server.ask(batch, &" ".repeat(600_000)).with_status(503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(
        refused.detail().contains("the memory for bodies"),
        "{refused:?}"
    );
    let check = json!({"attributes": {"user_id": "a"}}).to_string();
    server.ask("POST /v1/check", &check).with_status(200);
    let text = "x".repeat(300_000);
    let rule = json!({"id": "a", "per": [], "limit": "1/s", "description": text});
    server.ask("POST /v1/rules", &rule.to_string());
    let rules =
        json!({"rules": [{"id": "a", "per": [], "limit": "1/s"}], "version": null}).to_string();
    let padded = format!("{}{rules}", " ".repeat(900_000));
    server.ask("PUT /v1/rules", &padded).with_status(200);

    // What a body took is there again when its connection ends, or it is answered.
    drop(second);
    until(&server, |held| held < 600_000);
    first.send(&" ".repeat(100_000)).unwrap();
    first.reply().unwrap().with_status(400);
    until(&server, |held| held == 0);
    server.ask(batch, &" ".repeat(600_000)).with_status(400);
    let page = server.ask("GET /metrics", "").body;
    assert!(page.contains("tidegate_bodies_refused_total 1"), "{page}");
}

#[test]
fn a_body_in_many_small_pieces_takes_as_much_memory_as_in_one() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let mut client = server.client();
    client
        .send("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        .unwrap();
    client.send(&"1\r\n \r\n".repeat(30_000)).unwrap();
    let held = until(&server, |held| held >= 30_000);
    assert!(held <= 64 << 10, "{held}");
    client.send("2\r\n{}\r\n0\r\n\r\n").unwrap();
    client.reply().unwrap().with_status(400);
}

#[test]
fn texts_that_wait_for_their_turn_hold_their_memory_until_their_callers_leave() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let validate = |text: &str| {
        let token = format!("Bearer {}", server.token.as_ref().unwrap());
        let headers = [("authorization", token.as_str())];
        let body = json!({ "text": text }).to_string();
        let call = "POST /v1/rules/a/validate";
        let mut client = server.client();
        let request = tidegate_testkit_server::request(call, &headers, &body);
        client.send(&request).unwrap();
        client
    };
    let slow = format!("per: [{}a]", "a,".repeat(400_000));
    let text = format!("#{}", "x".repeat(1_000_000));
    let first = [(); 2].map(|()| validate(&slow));
    let waiting = [(); 4].map(|()| validate(&text));
    until(&server, |held| held >= 4_000_000);
    drop(waiting);
    until(&server, |held| held == 0);
    drop(first);
}
