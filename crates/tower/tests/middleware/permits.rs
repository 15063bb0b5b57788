//! Places under a concurrency limit are held until the body of the answer is done.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::routing::get;
use axum::{Extension, Router};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::channel::{Channel, Sender};
use tidegate::Gate;
use tidegate_tower::{BackgroundRequests, RateLimitLayer, RequestPermit};
use tokio::sync::mpsc;
use tower::{Layer as _, ServiceExt as _};

use super::{gate, left, request, send, status, text, until};

const PLACES: &str = "- {id: places, per: [], limit: 1, algorithm: concurrency, lease_ttl: 10s}";

type Sent = Sender<Bytes, std::io::Error>;

/// An app whose answers have bodies that the test writes.
fn streaming(gate: &Arc<Gate>) -> (Router, mpsc::UnboundedReceiver<Sent>) {
    let (senders, receiver) = mpsc::unbounded_channel();
    let stream = async move || {
        let (sender, body) = Channel::new(4);
        senders.send(sender).unwrap();
        Body::new(body)
    };
    let layer = RateLimitLayer::new(Arc::clone(gate));
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

/// An app that works for five seconds on each request, whether its client is there or not.
fn working(layer: RateLimitLayer) -> (Router, Arc<AtWork>) {
    let at_work = Arc::new(AtWork::default());
    let counted = Arc::clone(&at_work);
    let work = async move || {
        let counted = Arc::clone(&counted);
        let working = tokio::spawn(async move {
            counted.begin();
            tokio::time::sleep(WORK).await;
            counted.now.fetch_sub(1, Ordering::Relaxed);
        });
        working.await.unwrap();
    };
    (Router::new().route("/", get(work)).layer(layer), at_work)
}

const WORK: Duration = Duration::from_secs(5);

/// How many requests a service works on.
#[derive(Default)]
struct AtWork {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl AtWork {
    fn begin(&self) {
        let now = 1 + self.now.fetch_add(1, Ordering::Relaxed);
        self.most.fetch_max(now, Ordering::Relaxed);
    }
}

/// A client that leaves after a while.
async fn leave_after(app: &Router, time: Duration) {
    let asking = send(app, request("/"));
    let _ = tokio::time::timeout(time, asking).await;
}

#[tokio::test(start_paused = true)]
async fn clients_that_leave_do_not_escape_a_concurrency_limit() {
    let gate = gate("- {id: places, per: [ip], limit: 5, algorithm: concurrency}");
    let (app, at_work) = working(RateLimitLayer::new(gate));
    for _ in 0..3_000 {
        leave_after(&app, Duration::from_millis(4)).await;
    }
    assert_eq!(at_work.most.load(Ordering::Relaxed), 5);
    tokio::time::sleep(WORK * 2).await;
    assert_eq!(at_work.now.load(Ordering::Relaxed), 0);
    assert_eq!(status(&app, request("/")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_never_ends_is_given_up_after_the_lease_ttl() {
    let gate = gate(PLACES);
    let layer = RateLimitLayer::new(Arc::clone(&gate));
    let app: Router = Router::new()
        .route("/", get(async || std::future::pending::<()>().await))
        .layer(layer);
    leave_after(&app, Duration::from_secs(1)).await;
    tokio::time::sleep(Duration::from_millis(9_900)).await;
    assert_eq!(left(&gate).await, 0);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(left(&gate).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_panics_is_not_continued_and_frees_its_permit() {
    let gate = gate(PLACES);
    let background = Arc::new(BackgroundRequests::default());
    let layer = RateLimitLayer::new(Arc::clone(&gate)).background(Arc::clone(&background));
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    let service = layer.layer(tower::service_fn(move |_: Request<Body>| {
        let counted = Arc::clone(&counted);
        std::future::poll_fn(move |_| -> Poll<Result<Response<Body>, Infallible>> {
            counted.fetch_add(1, Ordering::Relaxed);
            panic!("broken");
        })
    }));
    let calling = tokio::spawn(service.oneshot(request("/")));
    assert!(calling.await.unwrap_err().is_panic());
    background.ended().await;
    assert_eq!(polls.load(Ordering::Relaxed), 1);
    until(async || left(&gate).await == 1).await;
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_the_call_is_dropped_and_its_permit_lasts() {
    let gate = gate(PLACES);
    let background = Arc::new(BackgroundRequests::new(0));
    let layer = RateLimitLayer::new(Arc::clone(&gate)).background(Arc::clone(&background));
    let (app, _) = working(layer);
    // Past the first renewal.
    leave_after(&app, Duration::from_secs(4)).await;
    assert_eq!((background.running(), background.refused()), (0, 1));
    tokio::time::sleep(Duration::from_millis(9_900)).await;
    assert_eq!(left(&gate).await, 0);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(left(&gate).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stops_with_its_client_frees_its_permit() {
    let gate = gate(PLACES);
    let layer = RateLimitLayer::new(Arc::clone(&gate)).stops_with_client();
    let (app, _) = working(layer);
    leave_after(&app, Duration::from_secs(1)).await;
    until(async || left(&gate).await == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_keeps_the_permit_for_work_that_it_does_not_wait_for() {
    let gate = gate(PLACES);
    let layer = RateLimitLayer::new(Arc::clone(&gate));
    let begin = async |Extension(permit): Extension<RequestPermit>| {
        tokio::spawn(async move {
            tokio::time::sleep(WORK).await;
            drop(permit);
        });
    };
    let app: Router = Router::new().route("/", get(begin)).layer(layer);
    assert_eq!(status(&app, request("/")).await, 200);
    assert_eq!(status(&app, request("/")).await, 429);
    tokio::time::sleep(WORK).await;
    until(async || left(&gate).await == 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_background_requests_can_be_awaited() {
    let gate = gate(PLACES);
    let background = Arc::new(BackgroundRequests::default());
    background.ended().await;
    let layer = RateLimitLayer::new(gate).background(Arc::clone(&background));
    let (app, _) = working(layer);
    leave_after(&app, Duration::from_secs(1)).await;
    assert_eq!(background.running(), 1);
    let early = tokio::time::timeout(WORK / 2, background.ended()).await;
    assert!(early.is_err());
    background.ended().await;
    assert_eq!(background.running(), 0);
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
    let app = super::app(RateLimitLayer::new(Arc::clone(&gate)).leave_permits());
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

#[tokio::test]
async fn a_request_whose_body_was_awaited_is_described_once() {
    let gate = gate(PLACES);
    let times = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&times);
    let layer = RateLimitLayer::new(Arc::clone(&gate)).attributes(move |_, attributes| {
        counted.fetch_add(1, Ordering::Relaxed);
        attributes.insert("user_id", "alice")
    });
    let app = super::app(layer.clone());
    let (mut head, body) = request("/").into_parts();
    assert!(layer.takes_shared_permit(&mut head));
    assert_eq!(status(&app, Request::from_parts(head, body)).await, 200);
    assert_eq!(times.load(Ordering::Relaxed), 1);

    // By other rules it may be known by something else.
    let (mut head, body) = request("/").into_parts();
    layer.takes_shared_permit(&mut head);
    gate.replace_rules(super::rules(PLACES));
    status(&app, Request::from_parts(head, body)).await;
    assert_eq!(times.load(Ordering::Relaxed), 3);
}
