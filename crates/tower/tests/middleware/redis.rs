//! The same over Redis, where everything takes its time.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tidegate::Gate;
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_testkit::redis::RedisServer;
use tidegate_tower::RateLimitLayer;

use super::{app, request, rules, send, status};

const RULES: &str = "
- {id: places, match: {path: /held}, per: [ip], limit: 1, algorithm: concurrency}
- {id: shaped, match: {path: /shaped}, per: [], limit: 1/hour burst 5, algorithm: leaky_bucket, shape: true}
- {id: window, match: {path: /cost/**}, per: [], limit: 100/day, algorithm: fixed_window}
- {id: log, match: {path: /cost/**}, per: [], limit: 100/day, algorithm: sliding_window_log}
- {id: bucket, match: {path: /cost/**}, per: [], limit: 100/23h}";

async fn gate(redis: &RedisServer) -> Arc<Gate> {
    let mut settings = RedisSettings::new(redis.url().parse().unwrap());
    settings.deadline = Duration::from_secs(2);
    let store = RedisStore::open(settings);
    store.connected(Duration::from_secs(10)).await.unwrap();
    Arc::new(Gate::new(store, rules(RULES)))
}

/// Waits until so much is left of each limit on a path.
async fn until_left(gate: &Gate, path: &str, expected: &[u64]) {
    let mut attributes = tidegate::Attributes::new().with_cost(0);
    attributes.insert("path", path).unwrap();
    attributes.insert("ip", "203.0.113.7").unwrap();
    let mut seen = Vec::new();
    for _ in 0..2_000 {
        let decision = gate.decide(&attributes).await;
        seen = decision
            .limits()
            .map(|answer| answer.outcome.remaining)
            .collect();
        if seen == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{path} had {seen:?} left");
}

#[tokio::test]
async fn places_waits_and_costs_over_redis() {
    let redis = RedisServer::start();
    let gate = gate(&redis).await;
    let served = app(RateLimitLayer::new(Arc::clone(&gate)));

    let held = send(&served, request("/held")).await;
    assert_eq!(status(&served, request("/held")).await, 429);
    drop(held);
    until_left(&gate, "/held", &[1]).await;

    assert_eq!(status(&served, request("/shaped")).await, 200);
    let waiting = tokio::spawn({
        let served = served.clone();
        async move { status(&served, request("/shaped")).await }
    });
    until_left(&gate, "/shaped", &[3]).await;
    waiting.abort();
    until_left(&gate, "/shaped", &[4]).await;

    let settling = RateLimitLayer::new(Arc::clone(&gate))
        .cost(|_| 10)
        .settle(|head| head.headers.get("x-cost")?.to_str().ok()?.parse().ok());
    let costing = Router::new()
        .route("/cost/more", get(async || [("x-cost", "30")]))
        .route("/cost/less", get(async || [("x-cost", "2")]))
        .layer(settling);
    assert_eq!(status(&costing, request("/cost/more")).await, 200);
    until_left(&gate, "/cost/more", &[70, 70, 70]).await;
    assert_eq!(status(&costing, request("/cost/less")).await, 200);
    until_left(&gate, "/cost/less", &[68, 68, 68]).await;
}
