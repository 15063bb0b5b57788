//! Requests that are held before they go on.

use std::time::Duration;

use tidegate_tower::RateLimitLayer;
use tokio::time::{Instant, timeout};

use super::{app, gate, left, request, send, status, until};

const SHAPED: &str =
    "- {id: shaped, per: [], limit: 1/second burst 4, algorithm: leaky_bucket, shape: true}";

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the time of the test is tokio's")]
async fn a_delay_is_waited() {
    let app = app(RateLimitLayer::new(gate(SHAPED)));
    let began = Instant::now();
    for seconds in [0, 1, 2] {
        let sent = tokio::spawn({
            let app = app.clone();
            async move { status(&app, request("/")).await }
        });
        assert_eq!(sent.await.unwrap(), 200);
        let passed = began.elapsed();
        let expected = Duration::from_secs(seconds);
        assert!(
            passed >= expected && passed < expected + Duration::from_millis(5),
            "{passed:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_gives_up_waiting_gets_back_what_it_took() {
    let gate = gate(SHAPED);
    let app = app(RateLimitLayer::new(gate.clone()));
    send(&app, request("/")).await;
    let before = left(&gate).await;
    let waiting = send(&app, request("/"));
    let gone = timeout(Duration::from_millis(1), waiting).await;
    assert!(gone.is_err(), "it would have waited for a second");
    until(async || left(&gate).await == before).await;
    assert_eq!(status(&app, request("/")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_while_waiting_is_released() {
    let list = "
- {id: places, per: [], limit: 2, algorithm: concurrency}
- {id: shaped, match: {path: /slow}, per: [], limit: 1/second burst 4, algorithm: leaky_bucket, shape: true}";
    let gate = gate(list);
    let app = app(RateLimitLayer::new(gate.clone()));
    drop(send(&app, request("/slow")).await);
    until(async || left(&gate).await == 2).await;
    assert!(
        timeout(Duration::from_millis(1), send(&app, request("/slow")))
            .await
            .is_err()
    );
    until(async || left(&gate).await == 2).await;
}
