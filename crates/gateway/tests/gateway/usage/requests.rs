//! How requests are read, held and forwarded.

use tidegate_testkit::header;

use super::{Model, TOKENS, ok_json, post};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_body_is_forwarded_byte_for_byte() {
    let mut model = Model::start("usage: auto\n", TOKENS).await;
    let body = "{ \"max_tokens\" : 1,\t\"x\":\"\\u00e4 ä\" }\r\n";
    let (_, _, head, received) = model.post(CHAT, body).await;
    assert_eq!(received, body);
    assert_eq!(header(&head, "accept-encoding"), Some("identity"));
}

#[tokio::test]
async fn other_requests_cost_nothing_but_themselves() {
    let mut model = Model::start("usage: auto\n", TOKENS).await;
    for (path, body) in [
        ("/v1/models", r#"{"max_tokens":50}"#),
        (CHAT, "not json"),
        (CHAT, "[1]"),
    ] {
        let (mut client, mut server, head, received) = model.post(path, body).await;
        assert_eq!(received, body);
        assert_eq!(header(&head, "accept-encoding"), None);
        server.send(&ok_json("{}")).await;
        client.answer().await;
    }
    assert_eq!(model.used("requests").await, 3);
    assert_eq!(model.used("tokens").await, 0);
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused() {
    let settings = "usage: auto\nbody_limit: 64B\n";
    let mut model = Model::start(settings, TOKENS).await;
    let long = format!(r#"{{"x":"{}"}}"#, "y".repeat(100));
    let answer = model.gateway.ask(&post(CHAT, "", &long)).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let chunked = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n0\r\n\r\n",
        long.len()
    );
    let answer = model.gateway.ask(&chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let gzip = post(CHAT, "content-encoding: gzip\r\n", "{}");
    let answer = model.gateway.ask(&gzip).await;
    assert!(answer.starts_with("HTTP/1.1 415 "), "{answer}");
    assert!(model.upstream.is_unasked());
    assert_eq!(model.used("requests").await, 0);
}

#[tokio::test]
async fn bodies_are_read_only_for_rules_that_may_match() {
    let rules = "rules:
- {id: tokens, match: {path: /counted/**}, per: [], unit: tokens, limit: 100/day}
- {id: model, match: {path: /named/**, attributes: {model: m}}, per: [], unit: tokens, limit: 100/day}
";
    let settings = "usage: auto\nbody_limit: 64B\n";
    let mut model = Model::start(settings, rules).await;
    let long = format!(r#"{{"x":"{}"}}"#, "y".repeat(100));
    let (_, _, _, received) = model.post("/free/chat/completions", &long).await;
    assert_eq!(received, long);
    for path in ["/counted/chat/completions", "/named/chat/completions"] {
        let answer = model.gateway.ask(&post(path, "", &long)).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
}

#[tokio::test]
async fn a_request_that_is_blocked_is_denied_before_its_body_comes() {
    let rules = "rules:
- {id: key, per: [api_key], missing: deny, limit: 5/day}
- {id: tokens, per: [], unit: tokens, limit: 100/day}
";
    let settings = "usage: auto\nidentify: {api_key: {header: x-api-key}}\n";
    let model = Model::start(settings, rules).await;
    let mut client = model.gateway.connect().await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n");
    client.send(&head).await;
    let answer = client.answer().await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(answer.contains("invalid_api_key"), "{answer}");
}

#[tokio::test]
async fn the_model_is_an_attribute() {
    let rules = "rules:
- {id: per-model, per: [model], missing: deny, unit: tokens, limit: 60/day}
";
    let mut model = Model::start("usage: auto\n", rules).await;
    let used = r#"{"usage":{"prompt_tokens":50,"completion_tokens":5}}"#;
    for name in ["a", "b"] {
        let body = format!(r#"{{"model":"{name}","max_tokens":40}}"#);
        let answer = model.answered(CHAT, &body, used).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let denied = model.gateway.ask(&post(CHAT, "", &body)).await;
        assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    }
    let path = "/openai/deployments/c/chat/completions";
    let answer = model.answered(path, r#"{"max_tokens":40}"#, used).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn without_a_maximum_the_estimate_fits_the_limit() {
    let mut model = Model::start("usage: auto\n", TOKENS).await;
    let (_client, _server, ..) = model.post(CHAT, "{\"a\":1}").await;
    assert_eq!(model.used("tokens").await, 100);
    let asks = r#"{"max_tokens":500}"#;
    let denied = model.gateway.ask(&post(CHAT, "", asks)).await;
    assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    assert_eq!(header(&denied, "x-should-retry"), Some("false"));
    assert!(denied.contains("insufficient_quota"), "{denied}");
}

#[tokio::test]
async fn servers_that_refuse_the_option_are_left_alone() {
    let settings = "usage: auto\ninclude_usage: leave\n";
    let mut model = Model::start(settings, TOKENS).await;
    let body = r#"{"stream":true,"max_tokens":1}"#;
    let (_, _, _, received) = model.post(CHAT, body).await;
    assert_eq!(received, body);
}
