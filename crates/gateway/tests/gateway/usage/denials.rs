//! How denied clients are answered, who may use the operator's credentials, and what models cost.

use tidegate_testkit::header;
use tidegate_testkit_server::TestFolder;

use super::{Model, TOKENS, ok_json, post};
use crate::running::Gateway;
use crate::upstream::Upstream;

const CHAT: &str = "/v1/chat/completions";
const ASKS_90: &str = r#"{"max_tokens":80,"m":"1234567890123456"}"#;
const USED_90: &str = r#"{"usage":{"prompt_tokens":10,"completion_tokens":80}}"#;

#[tokio::test]
async fn clients_are_denied_in_the_words_of_their_provider() {
    let rules = TOKENS.replace("limit: 100/day}\n", "limit: 100/minute}\n");
    let mut model = Model::start(
        "usage: auto\nheaders: [openai, anthropic, retry-after]\n",
        &rules,
    )
    .await;
    let answer = model.answered(CHAT, ASKS_90, USED_90).await;
    assert_eq!(header(&answer, "x-ratelimit-limit-tokens"), Some("100"));
    assert_eq!(header(&answer, "x-ratelimit-remaining-tokens"), Some("10"));
    assert!(header(&answer, "x-ratelimit-reset-tokens").is_some());
    assert!(header(&answer, "anthropic-ratelimit-tokens-reset").is_some());
    for (path, words) in [
        (
            CHAT,
            r#""type":"tokens","param":null,"code":"rate_limit_exceeded""#,
        ),
        (
            "/v1/messages",
            r#"{"type":"error","error":{"type":"rate_limit_error""#,
        ),
        (
            "/v1beta/models/m:generateContent",
            r#""status":"RESOURCE_EXHAUSTED""#,
        ),
    ] {
        let body = r#"{"max_tokens":80,"generationConfig":{"maxOutputTokens":80}}"#;
        let denied = model.gateway.ask(&post(path, "", body)).await;
        assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
        assert_eq!(header(&denied, "content-type"), Some("application/json"));
        assert!(denied.contains(words), "{denied}");
        assert!(
            denied.contains("the limit `tokens` of 100 tokens is used up"),
            "{denied}"
        );
        let seconds: u64 = header(&denied, "retry-after").unwrap().parse().unwrap();
        let millis: u64 = header(&denied, "retry-after-ms").unwrap().parse().unwrap();
        assert!(millis <= seconds * 1_000 && millis > (seconds - 1) * 1_000);
        assert_eq!(header(&denied, "x-should-retry"), None);
    }
}

#[tokio::test]
async fn the_words_can_be_chosen() {
    for (setting, kind) in [
        ("problem", "application/problem+json"),
        ("gemini", "application/json"),
    ] {
        let settings = format!("usage: openai\ndenied_body: {setting}\n");
        let model = Model::start(&settings, TOKENS).await;
        let asks = r#"{"max_tokens":500}"#;
        let denied = model.gateway.ask(&post(CHAT, "", asks)).await;
        assert_eq!(header(&denied, "content-type"), Some(kind), "{denied}");
    }
}

#[tokio::test]
async fn credentials_of_the_operator_are_for_known_keys_only() {
    let mut upstream = Upstream::start().await;
    let folder = TestFolder::new();
    folder.write("clients.yaml", "clients: {k1: {team: red}}\n");
    folder.write("secret", "Bearer of the operator\n");
    let settings = format!(
        "routes: [{{prefix: /m, strip_prefix: true, upstreams: ['http://{}'], usage: openai, set_headers: {{authorization: {{file: {}}}}}}}]
identify: {{api_key: {{header: authorization}}}}
clients_file: {}
",
        upstream.address,
        folder.file("secret"),
        folder.file("clients.yaml"),
    );
    let gateway = Gateway::start_in(folder, &settings, TOKENS);
    for headers in ["", "authorization: Bearer k2\r\n"] {
        let refused = gateway
            .ask(&post("/m/v1/chat/completions", headers, "{}"))
            .await;
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        assert!(refused.contains("invalid_api_key"), "{refused}");
    }
    let known = post(
        "/m/v1/chat/completions",
        "authorization: Bearer k1\r\n",
        "{}",
    );
    let (mut client, mut server, head) = gateway.begin(&mut upstream, &known).await;
    assert_eq!(
        header(&head, "authorization"),
        Some("Bearer of the operator")
    );
    assert!(!head.contains("k1"), "{head}");
    server.text(2).await;
    server.send(&ok_json("{}")).await;
    client.answer().await;
}

#[tokio::test]
async fn money_goes_by_the_prices_of_the_operator() {
    let mut upstream = Upstream::start().await;
    let folder = TestFolder::new();
    folder.write(
        "prices.yaml",
        "prices: {'gpt-*': {input: 10, output: 30}, gpt-mini: {input: 1, output: 2}}\n",
    );
    let settings = format!(
        "upstream: http://{}\nusage: openai\nprices_file: {}\nmoney_unit: 0.000001\n",
        upstream.address,
        folder.file("prices.yaml")
    );
    let rules = "rules:\n- {id: money, per: [], unit: money, limit: 100000/day}\n";
    let gateway = Gateway::start_in(folder, &settings, rules);
    let unpriced = post(CHAT, "", r#"{"model":"o9","max_tokens":1}"#);
    let denied = gateway.ask(&unpriced).await;
    assert!(denied.starts_with("HTTP/1.1 403 "), "{denied}");
    assert_eq!(header(&denied, "x-should-retry"), Some("false"));
    assert!(denied.contains("`o9` has no price"), "{denied}");
    let body = r#"{"model":"gpt-mini","max_tokens":1}"#;
    let (mut client, mut server, _) = gateway.begin(&mut upstream, &post(CHAT, "", body)).await;
    server.text(body.len()).await;
    server.send(&ok_json(USED_90)).await;
    client.answer().await;
    let model = Model {
        gateway,
        upstream,
        redis: None,
    };
    // 10 × 1 + 80 × 2 millionths.
    assert_eq!(model.used("money").await, 170);
}
