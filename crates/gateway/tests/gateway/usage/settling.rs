//! What is charged in the end, for every way in which an answer ends, in memory and over Redis.

use super::{EVENTS, Model, ModelStore, TOKENS, chunk, ok_json};

const CHAT: &str = "/v1/chat/completions";
/// 40 bytes, so 10 tokens of input, and 50 of output.
const ASKS_60: &str = r#"{"max_tokens":50,"messages":["12345678"]}"#;
const USED_25: &str = r#"{"usage":{"prompt_tokens":20,"completion_tokens":5}}"#;

async fn model(store: ModelStore) -> Model {
    Model::start_over(store, "usage: auto\n", TOKENS).await
}

macro_rules! over_every_store {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::ModelStore::Memory).await;
            })*
        }

        mod redis {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::ModelStore::Redis).await;
            })*
        }
    };
}

over_every_store!(
    the_estimate_is_held_until_the_answer_says_what_was_used,
    five_concurrent_calls_never_hold_more_than_the_limit,
    more_than_the_estimate_is_charged_without_asking,
    every_answer_is_settled_by_the_table,
    an_answer_that_does_not_come_is_given_back_or_kept,
    a_stream_is_read_on_the_side_and_settled_before_it_ends,
    a_client_that_asked_for_usage_gets_it,
    a_stream_that_is_cut_keeps_the_estimate_of_its_output,
    an_estimate_has_a_record_also_if_its_request_holds_a_permit,
);

async fn the_estimate_is_held_until_the_answer_says_what_was_used(store: ModelStore) {
    let mut model = model(store).await;
    let (mut client, mut server, ..) = model.post(CHAT, ASKS_60).await;
    assert_eq!(model.used("tokens").await, 61);
    server.send(&ok_json(USED_25)).await;
    let answer = client.answer().await;
    assert!(answer.ends_with(USED_25), "{answer}");
    // The client has read its answer: the true cost is known.
    assert_eq!(model.used("tokens").await, 25);
    assert_eq!(model.used("requests").await, 1);
    assert_eq!(model.results("reported").await, 1);
}

async fn five_concurrent_calls_never_hold_more_than_the_limit(store: ModelStore) {
    let mut model = model(store).await;
    let (mut first, mut server, ..) = model.post(CHAT, ASKS_60).await;
    for _ in 0..4 {
        let denied = model.gateway.ask(&super::post(CHAT, "", ASKS_60)).await;
        assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    }
    assert!(model.upstream.is_unasked());
    server.send(&ok_json(USED_25)).await;
    first.answer().await;
    assert_eq!(model.used("tokens").await, 25);
    // Now there is room for one more.
    let answer = model.answered(CHAT, ASKS_60, USED_25).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(model.used("tokens").await, 50);
}

async fn more_than_the_estimate_is_charged_without_asking(store: ModelStore) {
    let mut model = model(store).await;
    let used = r#"{"usage":{"prompt_tokens":30,"completion_tokens":60}}"#;
    model.answered(CHAT, ASKS_60, used).await;
    assert_eq!(model.used("tokens").await, 90);
}

async fn every_answer_is_settled_by_the_table(store: ModelStore) {
    let json = |status: &str, body: &str| {
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n");
        format!("{head}content-length: {}\r\n\r\n{body}", body.len())
    };
    for (answer, used, result) in [
        (json("200 OK", USED_25), 25, "reported"),
        (json("500 Oops", USED_25), 0, "failed"),
        (json("404 Not Found", ""), 0, "failed"),
        (json("302 Found", ""), 0, "failed"),
        (json("200 OK", "{}"), 61, "missing"),
        (json("200 OK", ""), 61, "missing"),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), 61, "missing"),
        (json("200 OK", "{\"usage\":"), 61, "unreadable"),
        (json("200 OK", "\u{1f}\u{8b}gzip"), 61, "unreadable"),
        (
            json("200 OK", r#"{"usage":{"prompt_tokens":-1}}"#),
            61,
            "unreadable",
        ),
        (
            json("200 OK\r\ncontent-encoding: gzip", "\u{1f}"),
            61,
            "encoded",
        ),
        (
            json("200 OK\r\ncontent-encoding: identity", USED_25),
            25,
            "reported",
        ),
    ] {
        let mut model = model(store).await;
        let (mut client, mut server, ..) = model.post(CHAT, ASKS_60).await;
        server.send(&answer).await;
        client.answer().await;
        assert_eq!(model.used("tokens").await, used, "{answer}");
        assert_eq!(model.used("requests").await, 1, "{answer}");
        assert_eq!(model.results(result).await, 1, "{answer}");
    }
}

async fn an_answer_that_does_not_come_is_given_back_or_kept(store: ModelStore) {
    // No server.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let settings = format!("upstream: http://{closed}\nusage: openai\n");
    let gateway = crate::running::Gateway::start(&settings, TOKENS);
    let answer = gateway.ask(&super::post(CHAT, "", ASKS_60)).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let line = "tidegate_usage_total{result=\"failed\"}";
    assert_eq!(gateway.metric(line).await, Some(1));

    // A server that goes away without an answer.
    let mut model = model(store).await;
    let (mut client, server, ..) = model.post(CHAT, ASKS_60).await;
    drop(server);
    assert!(client.answer().await.starts_with("HTTP/1.1 502 "));
    assert_eq!(model.used("tokens").await, 61);
    assert_eq!(model.results("cut").await, 1);

    // A client that goes away before it is answered.
    let (client, _server, ..) = model.post(CHAT, r#"{"max_tokens":10}"#).await;
    drop(client);
    let line = "tidegate_usage_total{result=\"cut\"}";
    model.gateway.metric_is(line, 2).await;
    assert_eq!(model.used("tokens").await, 61 + 15);
}

/// Rules of which one gives back what is not settled, and another takes a permit.
const GIVE_BACK: &str = "rules:
- {id: slots, per: [], limit: 2, algorithm: concurrency}
- {id: tokens, per: [], unit: tokens, limit: 200/day, unsettled: give_back}
";

async fn an_estimate_has_a_record_also_if_its_request_holds_a_permit(store: ModelStore) {
    let mut model = Model::start_over(store, "usage: auto\n", GIVE_BACK).await;
    let (mut client, mut server, ..) = model.post(CHAT, ASKS_60).await;
    let used = async |model: &Model| (model.used("slots").await, model.used("tokens").await);
    assert_eq!(used(&model).await, (1, 61));
    assert_eq!(
        model.gateway.metric("tidegate_reservations ").await,
        Some(1)
    );
    if let Some(redis) = &model.redis {
        let records: Vec<String> = redis.query(&["KEYS", "*:hold:*"]);
        assert_eq!(records.len(), 1, "{records:?}");
    }
    server.send(&ok_json(USED_25)).await;
    assert!(client.answer().await.ends_with(USED_25));
    assert_eq!(model.used("tokens").await, 25);
    tidegate_testkit::eventually("the permit is released", async || {
        model.used("slots").await == 0
    })
    .await;
    assert_eq!(
        model.gateway.metric("tidegate_reservations ").await,
        Some(0)
    );
    // One that is denied for its tokens takes no permit.
    let denied = model
        .gateway
        .ask(&super::post(CHAT, "", r#"{"max_tokens":190}"#))
        .await;
    assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    assert_eq!(used(&model).await, (0, 25));
}

#[tokio::test]
async fn without_room_for_a_record_a_request_is_refused() {
    let mut model = Model::start("usage: auto\nmax_reservations: 1\n", GIVE_BACK).await;
    let (mut client, mut server, ..) = model.post(CHAT, ASKS_60).await;
    let refused = model.gateway.ask(&super::post(CHAT, "", ASKS_60)).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    assert!(refused.contains("server_error"), "{refused}");
    assert!(model.upstream.is_unasked());
    assert_eq!(model.used("slots").await, 1);
    assert_eq!(model.used("tokens").await, 61);
    let line = "tidegate_reservations_total{end=\"refused\"}";
    assert_eq!(model.gateway.metric(line).await, Some(1));
    server.send(&ok_json(USED_25)).await;
    client.answer().await;
    drop(server);
    let answer = model.answered(CHAT, ASKS_60, USED_25).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

async fn a_stream_is_read_on_the_side_and_settled_before_it_ends(store: ModelStore) {
    let mut model = model(store).await;
    let body = r#"{"stream":true,"max_tokens":50,"m":"1"}"#;
    let (mut client, mut server, _, received) = model.post(CHAT, body).await;
    assert_eq!(
        received,
        r#"{"stream_options":{"include_usage":true},"stream":true,"max_tokens":50,"m":"1"}"#
    );
    let estimate = model.used("tokens").await;
    assert_eq!(estimate, 10 + 50);
    let event = "data: {\"choices\":[{\"delta\":{}}],\"usage\":null}\n\n";
    server.send(&format!("{EVENTS}{}", chunk(event))).await;
    let head = client.head().await;
    assert!(head.contains("chunked"), "{head}");
    // Each event passes on before the next one comes.
    assert_eq!(client.text(chunk(event).len()).await, chunk(event));
    server.send(&chunk(event)).await;
    assert_eq!(client.text(chunk(event).len()).await, chunk(event));
    assert_eq!(model.used("tokens").await, estimate);
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n";
    let done = "data: [DONE]\n\n";
    server.send(&chunk(&format!("{usage}{done}"))).await;
    assert_eq!(client.text(chunk(done).len()).await, chunk(done));
    // As soon as the client has read the end, although the stream is open.
    assert_eq!(model.used("tokens").await, 7);
    drop(client);
    assert_eq!(model.results("reported").await, 1);
    assert_eq!(model.results("cut").await, 0);
}

async fn a_client_that_asked_for_usage_gets_it(store: ModelStore) {
    let mut model = model(store).await;
    let body = r#"{"stream":true,"max_tokens":9,"stream_options":{"include_usage":true}}"#;
    let (mut client, mut server, _, received) = model.post(CHAT, body).await;
    assert_eq!(received, body);
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n";
    server
        .send(&format!("{EVENTS}{}0\r\n\r\n", chunk(usage)))
        .await;
    client.head().await;
    assert_eq!(client.text(chunk(usage).len()).await, chunk(usage));
}

async fn a_stream_that_is_cut_keeps_the_estimate_of_its_output(store: ModelStore) {
    let start = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n";
    for is_of_client in [true, false] {
        let mut model = model(store).await;
        let (mut client, mut server, ..) = model.post("/v1/messages", ASKS_60).await;
        server.send(&format!("{EVENTS}{}", chunk(start))).await;
        client.head().await;
        client.text(chunk(start).len()).await;
        if is_of_client {
            drop(client);
        } else {
            drop(server);
            client.rest().await;
        }
        let line = "tidegate_usage_total{result=\"cut\"}";
        model.gateway.metric_is(line, 1).await;
        assert_eq!(model.used("tokens").await, 25 + 50);
    }
}
