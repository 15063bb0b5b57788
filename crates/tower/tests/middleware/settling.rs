//! Costs that are known only afterwards.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use http_body_util::BodyExt as _;
use tidegate::Gate;
use tidegate_tower::RateLimitLayer;

use super::{gate, left, request, send, text, until};

const QUOTA: &str = "- {id: units, per: [], limit: 100/day, algorithm: fixed_window}";

/// An app that says in a header what a request to `/7` cost, in its body too.
fn app(layer: RateLimitLayer) -> Router {
    let answer = async |Path(cost): Path<usize>| ([("x-cost", cost.to_string())], "x".repeat(cost));
    Router::new().route("/{cost}", get(answer)).layer(layer)
}

fn by_head(gate: &Arc<Gate>) -> Router {
    let layer = RateLimitLayer::new(Arc::clone(gate));
    app(layer.settle(|head| head.headers.get("x-cost")?.to_str().ok()?.parse().ok()))
}

#[tokio::test]
async fn the_head_of_an_answer_names_the_cost() {
    let gate = gate(QUOTA);
    let app = by_head(&gate);
    for (path, remaining) in [("/7", 93), ("/1", 92), ("/0", 92), ("/missing", 91)] {
        send(&app, request(path)).await;
        assert_eq!(left(&gate).await, remaining, "after {path}");
    }
}

#[tokio::test]
async fn no_client_owes_more_than_a_quota() {
    let gate = gate(QUOTA);
    let app = by_head(&gate);
    assert_eq!(send(&app, request("/1000")).await.status(), 200);
    assert_eq!(left(&gate).await, 0);
    assert_eq!(send(&app, request("/1")).await.status(), 429);
}

#[tokio::test]
async fn what_is_multiplied_by_a_rule_stays_so() {
    let list = "- {id: units, per: [], limit: 100/day, algorithm: fixed_window, cost: 3}";
    let gate = gate(list);
    let app = by_head(&gate);
    send(&app, request("/5")).await;
    assert_eq!(left(&gate).await, 85);
}

#[tokio::test]
async fn the_bytes_that_were_sent_tell_the_cost() {
    let gate = gate(QUOTA);
    let layer = RateLimitLayer::new(Arc::clone(&gate)).cost(|_| 0);
    let app = app(layer.settle_bytes(Some));
    let answer = send(&app, request("/40")).await;
    assert_eq!(left(&gate).await, 100, "nothing is sent yet");
    assert_eq!(text(answer).await.len(), 40);
    until(async || left(&gate).await == 60).await;

    let mut given_up = send(&app, request("/5")).await;
    given_up.body_mut().frame().await.unwrap().unwrap();
    drop(given_up);
    until(async || left(&gate).await == 55).await;
}
