//! Stores that fail, and stores that take their time.

use std::sync::Arc;

use tidegate::Gate;
use tidegate_testkit::FailingStore;
use tidegate_tower::RateLimitLayer;

use super::{app, left, request, rules, send, shown, status, text, until};

#[tokio::test]
async fn a_rule_says_what_happens_without_the_store() {
    let list = "
- {id: deny, match: {path: /deny}, per: [], limit: 5/minute, on_store_failure: deny}
- {id: allow, match: {path: /allow}, per: [], limit: 5/minute, on_store_failure: allow}
- {id: local, match: {path: /local}, per: [], limit: 1/minute}";
    let app = app(RateLimitLayer::new(Arc::new(Gate::new(
        FailingStore::unreachable(),
        rules(list),
    ))));
    assert_eq!(status(&app, request("/allow")).await, 200);
    assert_eq!(status(&app, request("/local")).await, 200);
    assert_eq!(status(&app, request("/local")).await, 429);

    let failed = send(&app, request("/deny")).await;
    assert_eq!(failed.status(), 503);
    assert_eq!(failed.headers()["retry-after"], "1");
    insta::assert_snapshot!(text(failed).await, @r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Request cannot be satisfied due to temporary server capacity constraints","status":503,"detail":"the limit `deny` cannot be checked now; try again later","violated-policies":["deny"],"reason":"store_unavailable"}"#);

    let mut call = request("/deny");
    call.headers_mut()
        .insert("content-type", "application/grpc".parse().unwrap());
    let failed = send(&app, call).await;
    assert_eq!(failed.status(), 200);
    let headers = shown(failed.headers());
    assert!(headers.contains("grpc-status: 14"), "{headers}");
    assert!(
        headers.contains("grpc-retry-pushback-ms: 1000"),
        "{headers}"
    );
}

#[tokio::test]
async fn a_client_that_goes_while_the_store_is_asked_keeps_nothing() {
    let list = "
- {id: places, per: [], limit: 3, algorithm: concurrency}
- {id: units, per: [], limit: 10/day, algorithm: fixed_window}";
    let store = Arc::new(FailingStore::answering(0));
    let gate = Arc::new(Gate::new(Arc::clone(&store), rules(list)));
    let app = app(RateLimitLayer::new(Arc::clone(&gate)));
    let asking = send(&app, request("/"));
    let soon = std::time::Duration::from_millis(1);
    assert!(tokio::time::timeout(soon, asking).await.is_err());
    assert_eq!(left(&gate).await, 2, "the store has charged it");
    store.answers.add_permits(1);
    until(async || left(&gate).await == 3).await;
    let decision = gate.decide(&tidegate::Attributes::new().with_cost(0)).await;
    let all: Vec<u64> = decision
        .limits()
        .map(|answer| answer.outcome.remaining)
        .collect();
    assert_eq!(all, [3, 10]);
}

/// Rules that change while a request is described must not decide it: its headers were read by the others.
#[tokio::test]
async fn a_request_is_decided_by_the_rules_that_it_was_read_by() {
    let by_nothing = "- {id: before, per: [], limit: 5/minute}";
    let by_header = "- {id: after, per: [header.x-client], missing: deny, limit: 5/minute}";
    let gate = Arc::new(Gate::new(FailingStore::answering(2), rules(by_nothing)));
    let changing = Arc::clone(&gate);
    let layer = RateLimitLayer::new(Arc::clone(&gate)).attributes(move |_, _| {
        changing.replace_rules(rules(by_header));
        Ok(())
    });
    let app = app(layer);
    let client = || {
        let mut request = request("/");
        let headers = request.headers_mut();
        headers.insert("x-client", "c".parse().unwrap());
        request
    };
    let first = send(&app, client()).await;
    assert_eq!(first.status(), 200);
    assert_eq!(first.headers()["ratelimit"], "\"before\";r=4;t=12");
    let second = send(&app, client()).await;
    assert_eq!(second.headers()["ratelimit"], "\"after\";r=4;t=12");
}
