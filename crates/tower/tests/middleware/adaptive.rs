//! A limit that follows what the service behind it can bear, in tokio's paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use tidegate::Gate;
use tidegate_tower::RateLimitLayer;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::{ServiceExt as _, service_fn};

use super::{gate, left, request, send, status, until};

const TARGET: &str =
    "- {id: up, per: [], algorithm: concurrency, adaptive: {min: 2, max: 200, target: 125ms}}";
const GRADIENT: &str = "- {id: up, per: [], algorithm: concurrency, adaptive: {min: 2, max: 200}}";
const RATE: &str =
    "- {id: up, per: [], limit: 50/s, adaptive: {min: 5/s, max: 500/s burst 20, target: 200ms}}";
/// How many requests the service works on at once.
const WORKERS: usize = 16;

fn limit(gate: &Gate) -> u64 {
    gate.rules().get("up").unwrap().adaptive().unwrap().limit()
}

/// A service that takes 60 to 140 ms for a request, for so many at once; the others wait for their turn.
fn working(gate: &Arc<Gate>, workers: &Arc<Semaphore>) -> Router {
    let workers = Arc::clone(workers);
    let asked = Arc::new(AtomicU64::new(0));
    let work = async move || {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        let _turn = workers.acquire().await.unwrap();
        sleep(Duration::from_millis(60 + number * 37 % 81)).await;
    };
    let layer = RateLimitLayer::new(Arc::clone(gate)).stops_with_client();
    Router::new().route("/", get(work)).layer(layer)
}

/// So many clients, each of which asks again as soon as it has its answer, for so many seconds.
async fn load(app: &Router, clients: usize, seconds: u64) {
    let mut asking = JoinSet::new();
    for _ in 0..clients {
        let app = app.clone();
        asking.spawn(async move {
            loop {
                if status(&app, request("/")).await == 429 {
                    sleep(Duration::from_millis(100)).await;
                }
            }
        });
    }
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_settles_near_what_the_service_can_bear() {
    for rule in [TARGET, GRADIENT] {
        let gate = gate(rule);
        let workers = Arc::new(Semaphore::new(WORKERS));
        let app = working(&gate, &workers);
        load(&app, 60, 20).await;
        // 20 with the target; without, half as many again as there are workers, and a queue.
        let settled = limit(&gate);
        assert!((16..=40).contains(&settled), "{rule}: {settled}");

        until(async || workers.available_permits() == WORKERS).await;
        assert_eq!(workers.forget_permits(WORKERS / 2), WORKERS / 2);
        load(&app, 60, 10).await;
        let halved = limit(&gate);
        assert!((8..=20).contains(&halved), "{rule}: {halved}");

        workers.add_permits(WORKERS / 2);
        load(&app, 60, 20).await;
        let back = limit(&gate);
        assert!((16..=40).contains(&back), "{rule}: {back}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_settles_near_what_the_service_can_do() {
    let gate = gate(RATE);
    let workers = Arc::new(Semaphore::new(WORKERS));
    let app = working(&gate, &workers);
    // 16 workers do 160 requests in a second.
    load(&app, 60, 15).await;
    let settled = limit(&gate);
    assert!((120..=240).contains(&settled), "{settled}");

    until(async || workers.available_permits() == WORKERS).await;
    assert_eq!(workers.forget_permits(WORKERS / 2), WORKERS / 2);
    load(&app, 60, 10).await;
    let halved = limit(&gate);
    assert!((50..=120).contains(&halved), "{halved}");

    workers.add_permits(WORKERS / 2);
    load(&app, 60, 10).await;
    let back = limit(&gate);
    assert!((120..=240).contains(&back), "{back}");
}

#[tokio::test(start_paused = true)]
async fn a_service_with_few_clients_is_not_thought_to_bear_more() {
    let gate = gate(TARGET);
    let app = working(&gate, &Arc::new(Semaphore::new(WORKERS)));
    load(&app, 4, 60).await;
    assert_eq!(limit(&gate), 20, "where it began");
}

/// The limit after so many answers with this status, and perhaps one of gRPC.
async fn after(answer: StatusCode, grpc_status: &'static str) -> u64 {
    let gate = gate(TARGET);
    let answer = async move || (answer, [("grpc-status", grpc_status)]);
    let layer = RateLimitLayer::new(Arc::clone(&gate));
    let app = Router::new().route("/", get(answer)).layer(layer);
    for _ in 0..10 {
        send(&app, request("/")).await;
        until(async || left(&gate).await == limit(&gate)).await;
    }
    limit(&gate)
}

#[tokio::test(start_paused = true)]
async fn answers_that_tell_of_an_overload_lower_the_limit() {
    #[rustfmt::skip]
    let table = [
        // status                           grpc-status  limit, from 20
        (StatusCode::OK,                    "0",         20),
        (StatusCode::NOT_FOUND,             "0",         20),
        (StatusCode::INTERNAL_SERVER_ERROR, "0",         20),
        (StatusCode::SERVICE_UNAVAILABLE,   "0",         18),
        (StatusCode::GATEWAY_TIMEOUT,       "0",         18),
        (StatusCode::OK,                    "14",        18),
        (StatusCode::OK,                    "4",         18),
        (StatusCode::OK,                    "5",         20),
    ];
    for (status, grpc_status, limit) in table {
        assert_eq!(
            after(status, grpc_status).await,
            limit,
            "{status} {grpc_status}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_lowers_the_limit() {
    let gate = gate(TARGET);
    let failing = service_fn(async |_: Request<Body>| {
        Err::<http::Response<Body>, _>(std::io::Error::other("refused"))
    });
    let layer = RateLimitLayer::new(Arc::clone(&gate));
    let app = tower::Layer::layer(&layer, failing);
    for _ in 0..10 {
        app.clone().oneshot(request("/")).await.unwrap_err();
    }
    assert_eq!(limit(&gate), 18);
}

#[tokio::test(start_paused = true)]
async fn clients_that_go_away_tell_nothing() {
    let gate = gate(TARGET);
    let layer = RateLimitLayer::new(Arc::clone(&gate)).stops_with_client();
    let never = get(async || std::future::pending::<()>().await);
    let app = Router::new().route("/", never).layer(layer);
    for _ in 0..50 {
        let asking = send(&app, request("/"));
        let patience = Duration::from_secs(1);
        tokio::time::timeout(patience, asking).await.unwrap_err();
    }
    assert_eq!(limit(&gate), 20);
}
