//! Requests to a language model, limited by what their bodies estimate and their answers report: an axum service, asked
//! in memory and over a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::Request;
use http::header::CONTENT_TYPE;
use http_body_util::channel::Channel;
use serde_json::{Value, json};
use tidegate::rules::BudgetKind;
use tidegate::{Attributes, Gate};
use tidegate_testkit::redis::RedisServer;
use tidegate_tower::{BodyPool, DenialReason, RateLimitLayer, UsageLayer, UsageSettings};
use tidegate_usage::{UsageForm, UsageSetting};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::budgets::over_redis;
use super::{gate, send, text};

/// A window in place of a bucket, so that time gives nothing back.
const RULES: &str = "
- {id: tokens, per: [], unit: tokens, limit: 1000/day}
- {id: requests, per: [], limit: 4/day}";

fn chat(body: &str) -> Request<Body> {
    let request = Request::post("/v1/chat/completions");
    request.body(Body::from(body.to_owned())).unwrap()
}

/// A model that answers a stream if it is asked for one, and JSON otherwise. Each answer used 30 tokens.
async fn complete(body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 20});
    if request["stream"] != true {
        return json!({"model": request["model"], "usage": usage})
            .to_string()
            .into_response();
    }
    let is_asked = request["stream_options"]["include_usage"] == true;
    let mut events = vec![json!({"choices": [{"delta": {"content": "tide"}}]}).to_string()];
    if is_asked {
        events.push(json!({"choices": [], "usage": usage}).to_string());
    }
    events.push("[DONE]".to_owned());
    let events: Vec<String> = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    ([(CONTENT_TYPE, "text/event-stream")], events.concat()).into_response()
}

fn app(limits: UsageLayer) -> Router {
    let router = Router::new().route("/v1/chat/completions", post(complete));
    router.layer(limits)
}

fn layer(gate: &Arc<Gate>) -> UsageLayer {
    RateLimitLayer::new(Arc::clone(gate)).usage(UsageForm::openai())
}

async fn tokens_left(gate: &Gate) -> u64 {
    let decision = gate.decide(&Attributes::new().with_cost(0)).await;
    let mut limits = decision.limits();
    let tokens = limits.find(|limit| limit.rule.id() == "tokens").unwrap();
    tokens.outcome.remaining
}

fn count(limits: &UsageLayer, result: &str) -> u64 {
    let mut counts = limits.results().counts();
    counts.find(|(name, _)| *name == result).unwrap().1
}

#[tokio::test]
async fn a_request_costs_what_its_answer_reports() {
    let gate = gate(RULES);
    let limits = layer(&gate);
    let app = app(limits.clone());
    let answer = send(&app, chat(r#"{"model":"m","max_tokens":500}"#)).await;
    assert_eq!(answer.status(), 200);
    let answer: Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(answer["model"], "m");
    assert_eq!(
        tokens_left(&gate).await,
        970,
        "settled before the end of the answer"
    );
    assert_eq!(count(&limits, "reported"), 1);
    let rules = gate.rules();
    let reserved = rules
        .get("tokens")
        .unwrap()
        .counts()
        .budget(BudgetKind::Reserved);
    assert!(reserved > 500, "{reserved}");
}

#[tokio::test]
async fn a_stream_is_settled_and_the_event_that_was_added_is_left_out() {
    let gate = gate(RULES);
    let limits = layer(&gate);
    let stream = r#"{"model":"m","stream":true,"max_tokens":500}"#;
    let answer = text(send(&app(limits.clone()), chat(stream)).await).await;
    assert!(
        answer.contains("tide") && answer.ends_with("data: [DONE]\n\n"),
        "{answer}"
    );
    assert!(!answer.contains("usage"), "{answer}");
    assert_eq!(tokens_left(&gate).await, 970);
    let app = app(limits.clone().leave_stream_options());
    text(send(&app, chat(stream)).await).await;
    assert!(
        tokens_left(&gate).await < 500,
        "without usage the estimate stays"
    );
    assert_eq!(
        (count(&limits, "reported"), count(&limits, "missing")),
        (1, 1)
    );
}

#[tokio::test]
async fn a_denied_client_reads_the_words_of_the_form() {
    let gate = gate(RULES);
    let app = app(layer(&gate));
    let denied = send(&app, chat(r#"{"model":"m","max_tokens":5000}"#)).await;
    assert_eq!(denied.status(), 429);
    let denied: Value = serde_json::from_str(&text(denied).await).unwrap();
    assert_eq!(denied["error"]["type"], "tokens");
    assert_eq!(tokens_left(&gate).await, 1_000);
}

#[tokio::test]
async fn a_model_without_a_price_is_denied_where_money_is_counted() {
    let gate = gate("- {id: money, per: [], unit: money, limit: 1000/day}");
    let denied = send(&app(layer(&gate)), chat(r#"{"model":"m9"}"#)).await;
    assert_eq!(denied.status(), 403);
    assert_eq!(denied.headers()["x-should-retry"], "false");
    let reason = denied.extensions().get::<DenialReason>().unwrap();
    assert_eq!(reason.0, "unpriced");
    let denied = text(denied).await;
    assert!(denied.contains("`m9` has no price"), "{denied}");
}

/// A body that counts how often it is polled for the first time.
fn counted(polled: &Arc<AtomicUsize>) -> Body {
    let (mut sender, body) = Channel::<Bytes>::new(1);
    let polled = Arc::clone(polled);
    tokio::spawn(async move {
        let data = Bytes::from_static(br#"{"model":"m","max_tokens":1}"#);
        if sender.send_data(data).await.is_ok() && sender.send_data(Bytes::new()).await.is_ok() {
            polled.fetch_add(1, Ordering::Relaxed);
        }
    });
    Body::new(body)
}

#[tokio::test]
async fn what_is_known_to_be_denied_is_denied_before_the_body_is_read() {
    let gate = gate(RULES);
    let app = app(layer(&gate));
    let polled = Arc::new(AtomicUsize::new(0));
    let ask = || {
        Request::post("/v1/chat/completions")
            .body(counted(&polled))
            .unwrap()
    };
    for _ in 0..4 {
        assert_eq!(send(&app, ask()).await.status(), 200);
    }
    let read = polled.load(Ordering::Relaxed);
    let denied = send(&app, ask()).await;
    assert_eq!(denied.status(), 429);
    let denied: Value = serde_json::from_str(&text(denied).await).unwrap();
    assert_eq!(denied["error"]["type"], "requests");
    assert_eq!(polled.load(Ordering::Relaxed), read, "the body was read");
}

#[tokio::test]
async fn a_denial_that_is_remembered_is_repeated_before_the_body_is_read() {
    let redis = RedisServer::start();
    let gate = over_redis(&redis, RULES).await;
    let app = app(layer(&gate));
    let polled = Arc::new(AtomicUsize::new(0));
    let ask = || {
        Request::post("/v1/chat/completions")
            .body(counted(&polled))
            .unwrap()
    };
    for _ in 0..4 {
        text(send(&app, ask()).await).await;
    }
    // It is remembered for less than a second, which may be too short on a busy machine.
    for _ in 0..100 {
        let read = polled.load(Ordering::Relaxed);
        assert_eq!(send(&app, ask()).await.status(), 429);
        if polled.load(Ordering::Relaxed) == read {
            return;
        }
    }
    panic!("the bodies of all denied requests were read");
}

#[tokio::test]
async fn bodies_are_bounded_in_length_and_together() {
    let gate = gate(RULES);
    let settings = |body_limit, memory| UsageSettings {
        body_limit,
        body_memory: BodyPool::new(memory),
        ..UsageSettings::default()
    };
    let ask = async |settings, request| {
        let answer = send(&app(layer(&gate).settings(settings)), request).await;
        (
            answer.status().as_u16(),
            answer.headers().get("retry-after").cloned(),
        )
    };
    let body = r#"{"model":"m","max_tokens":1}"#;
    assert_eq!(ask(settings(10, 1 << 20), chat(body)).await.0, 413);
    let (status, retry_after) = ask(settings(1 << 20, 10), chat(body)).await;
    assert_eq!((status, retry_after.unwrap().to_str().unwrap()), (503, "1"));
    let mut encoded = chat(body);
    encoded
        .headers_mut()
        .insert("content-encoding", "gzip".parse().unwrap());
    assert_eq!(ask(settings(1 << 20, 1 << 20), encoded).await.0, 415);
    assert_eq!(tokens_left(&gate).await, 1_000);
}

#[tokio::test]
async fn other_paths_and_methods_are_not_read() {
    let gate = gate(RULES);
    let limits = RateLimitLayer::new(Arc::clone(&gate)).usage(UsageSetting::auto());
    let app = Router::new()
        .route("/upload", post(async |body: Bytes| body))
        .layer(limits);
    let request = Request::post("/upload").body(Body::from(r#"{"max_tokens":9}"#));
    assert_eq!(
        text(send(&app, request.unwrap()).await).await,
        r#"{"max_tokens":9}"#
    );
    assert_eq!(tokens_left(&gate).await, 1_000);
}

#[tokio::test]
async fn over_a_connection_a_client_that_asks_again_is_decided_by_true_costs() {
    let gate = gate(RULES);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(axum::serve(listener, app(layer(&gate))).into_future());
    let mut client = TcpStream::connect(address).await.unwrap();
    let body = r#"{"model":"m","stream":true,"max_tokens":900}"#;
    // Three estimates together are more than the limit.
    for asked in 1..=3 {
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"0\r\n\r\n") {
            assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0);
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{asked}: {answer}");
        assert!(
            answer.contains("[DONE]") && !answer.contains("usage"),
            "{answer}"
        );
        assert_eq!(tokens_left(&gate).await, 1_000 - 30 * asked);
    }
    server.abort();
}
