//! Places under a concurrency limit are held until the body of the answer is done.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use http_body_util::BodyExt as _;
use http_body_util::channel::{Channel, Sender};
use tidegate::{Gate, MemoryStore};
use tidegate_tower::RateLimitLayer;
use tokio::sync::mpsc;

use super::{gate, left, request, send, status, text, until};

const PLACES: &str = "- {id: places, per: [], limit: 1, algorithm: concurrency, lease_ttl: 10s}";

type Sent = Sender<Bytes, std::io::Error>;

/// An app whose answers have bodies that the test writes.
fn streaming(gate: &std::sync::Arc<Gate<MemoryStore>>) -> (Router, mpsc::UnboundedReceiver<Sent>) {
    let (senders, receiver) = mpsc::unbounded_channel();
    let stream = async move || {
        let (sender, body) = Channel::new(4);
        senders.send(sender).unwrap();
        Body::new(body)
    };
    let layer = RateLimitLayer::new(std::sync::Arc::clone(gate));
    (Router::new().route("/", get(stream)).layer(layer), receiver)
}

#[tokio::test(start_paused = true)]
async fn a_place_is_held_until_the_body_ends() {
    let gate = gate(PLACES);
    let (app, mut senders) = streaming(&gate);
    let mut answer = send(&app, request("/")).await;
    assert_eq!(answer.status(), 200);
    let mut sender = senders.recv().await.unwrap();
    sender.send_data(Bytes::from_static(b"one")).await.unwrap();
    answer.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(status(&app, request("/")).await, 429, "still held");
    drop(sender);
    assert!(answer.body_mut().frame().await.is_none());
    until(async || left(&gate).await == 1).await;
    assert_eq!(status(&app, request("/")).await, 200);
    drop(answer);
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_permit_is_one_second() {
    let gate = gate(PLACES);
    let (app, _senders) = streaming(&gate);
    let _held = send(&app, request("/")).await;
    let denied = send(&app, request("/")).await;
    assert_eq!(denied.headers()["retry-after"], "1");
    assert_eq!(denied.headers()["ratelimit"], r#""places";r=0;t=1"#);
    let body = text(denied).await;
    assert!(body.contains("try again in 1 second\""), "{body}");

    let mut over_grpc = request("/");
    let media_type = "application/grpc".parse().unwrap();
    over_grpc.headers_mut().insert("content-type", media_type);
    let denied = send(&app, over_grpc).await;
    assert_eq!(denied.headers()["grpc-retry-pushback-ms"], "1000");
}

#[tokio::test(start_paused = true)]
async fn a_place_is_freed_when_the_body_fails_or_is_dropped() {
    let gate = gate(PLACES);
    let (app, mut senders) = streaming(&gate);
    let mut failing = send(&app, request("/")).await;
    assert_eq!(left(&gate).await, 0);
    let sender = senders.recv().await.unwrap();
    sender.abort(std::io::Error::other("broken"));
    failing.body_mut().frame().await.unwrap().unwrap_err();
    until(async || left(&gate).await == 1).await;

    let dropped = send(&app, request("/")).await;
    assert_eq!(left(&gate).await, 0);
    drop(dropped);
    until(async || left(&gate).await == 1).await;
    drop(failing);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_freed_when_the_service_is_given_up() {
    let gate = gate(PLACES);
    let layer = RateLimitLayer::new(std::sync::Arc::clone(&gate));
    let app: Router = Router::new()
        .route("/", get(async || std::future::pending::<()>().await))
        .layer(layer);
    {
        let mut asking = pin!(send(&app, request("/")));
        let soon = tokio::time::timeout(Duration::from_secs(1), &mut asking).await;
        assert!(soon.is_err());
        assert_eq!(left(&gate).await, 0);
    }
    until(async || left(&gate).await == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_renewed_while_its_body_lasts() {
    let gate = gate(PLACES);
    let (app, mut senders) = streaming(&gate);
    let answer = send(&app, request("/")).await;
    let sender = senders.recv().await.unwrap();
    for _ in 0..7 {
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(
            left(&gate).await,
            0,
            "it would have ended after ten seconds"
        );
    }
    drop((answer, sender));
    until(async || left(&gate).await == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_left_is_named_and_stays_until_it_is_released_or_over() {
    let gate = gate(PLACES);
    let app = super::app(RateLimitLayer::new(std::sync::Arc::clone(&gate)).leave_permits());
    let permit = |answer: axum::response::Response| {
        let permit = answer.headers().get("x-tidegate-lease").unwrap();
        permit.to_str().unwrap().parse().unwrap()
    };
    let first = permit(send(&app, request("/")).await);
    let denied = send(&app, request("/")).await;
    assert_eq!(denied.status(), 429);
    assert!(!denied.headers().contains_key("x-tidegate-lease"));
    assert!(gate.release(first).await.unwrap());
    permit(send(&app, request("/")).await);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(status(&app, request("/")).await, 200);
}
