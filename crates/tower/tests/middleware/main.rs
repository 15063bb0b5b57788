//! The layer before an axum router, asked in memory, and over a connection where that matters.

#![expect(clippy::unwrap_used, reason = "a test may")]
#![expect(clippy::panic, reason = "a test may")]

mod adaptive;
mod budgets;
mod decide;
mod gone;
mod grpc;
mod permits;
mod question;
mod redis;
mod replies;
mod settling;
mod store;
mod tonic_service;
mod usage;
mod waiting;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use tidegate::rules::RuleSet;
use tidegate::{Attributes, Gate, MemoryStore, TokioClock};
use tidegate_tower::{PeerAddress, RateLimitLayer};
use tower::ServiceExt as _;

/// The rules of a list in YAML.
fn rules(list: &str) -> RuleSet {
    RuleSet::from_yaml(&format!("rules:\n{list}")).unwrap()
}

/// A gate that goes by tokio's time.
fn gate(list: &str) -> Arc<Gate> {
    let clock = TokioClock::start();
    let store = MemoryStore::builder().clock(clock).build();
    Arc::new(Gate::with_clock(store, rules(list), clock))
}

/// A service that says `served` to everything.
fn app(layer: RateLimitLayer) -> Router {
    Router::new().fallback(any(async || "served")).layer(layer)
}

/// A request to this path, from 203.0.113.7.
fn request(path: &str) -> Request<Body> {
    from("203.0.113.7", path)
}

fn from(peer: &str, path: &str) -> Request<Body> {
    let peer: IpAddr = peer.parse().unwrap();
    let request = Request::builder().uri(path).extension(PeerAddress(peer));
    request.body(Body::empty()).unwrap()
}

async fn send(app: &Router, request: Request<Body>) -> Response<Body> {
    app.clone().oneshot(request).await.unwrap()
}

/// The status of the answer to a request.
async fn status(app: &Router, request: Request<Body>) -> u16 {
    send(app, request).await.status().as_u16()
}

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Names and values, those that tell a point in time left out.
fn shown(headers: &HeaderMap) -> String {
    let lines = headers
        .iter()
        .filter(|(name, _)| *name != "x-ratelimit-reset");
    let mut lines: Vec<String> = lines
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines.join("\n")
}

/// What is left of the first limit that applies to a request without attributes.
async fn left(gate: &Gate) -> u64 {
    let decision = gate.decide(&Attributes::new().with_cost(0)).await;
    decision.headline().unwrap().outcome.remaining
}

/// Lets tasks run until `holds`, or fails.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..1_000 {
        if holds().await {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it did not come about");
}
