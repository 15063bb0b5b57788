//! axum with a handler that reads and writes JSON of the size of a check.

use std::collections::BTreeMap;

use axum::{Json, Router, routing::post};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Question {
    attributes: BTreeMap<String, String>,
    cost: u64,
}

/// The fields of a decision, for an answer of the same size.
#[derive(Serialize)]
struct Answer {
    allowed: bool,
    rule: String,
    limit: u64,
    remaining: u64,
    reset_time: f64,
    retry_after: f64,
    delay: f64,
    degraded: bool,
    lease: Option<String>,
    limits: Vec<LimitAnswer>,
}

#[derive(Serialize)]
struct LimitAnswer {
    rule: String,
    algorithm: &'static str,
    window: u64,
    allowed: bool,
    limit: u64,
    remaining: u64,
    reset_time: f64,
    retry_after: f64,
    delay: f64,
    shadow: bool,
    degraded: bool,
}

async fn answer(Json(question): Json<Question>) -> Json<Answer> {
    let remaining = 1_000_000 - question.cost - question.attributes.len() as u64;
    Json(Answer {
        allowed: true,
        rule: "per-user".to_owned(),
        limit: 1_000_000,
        remaining,
        reset_time: 1_794_770_060.250_001,
        retry_after: 0.0,
        delay: 0.0,
        degraded: false,
        lease: None,
        limits: vec![LimitAnswer {
            rule: "per-user".to_owned(),
            algorithm: "token_bucket",
            window: 1,
            allowed: true,
            limit: 1_000_000,
            remaining,
            reset_time: 1_794_770_060.250_001,
            retry_after: 0.0,
            delay: 0.0,
            shadow: false,
            degraded: false,
        }],
    })
}

pub async fn serve() {
    let listener = crate::listen("http").await;
    let router = Router::new().route("/v1/check", post(answer));
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await.expect("served");
}
