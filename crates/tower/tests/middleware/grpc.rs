//! gRPC clients are answered in their own way.

use axum::body::Body;
use http::{HeaderValue, Request};
use tidegate_tower::{Protocol, RateLimitLayer};

use super::{app, gate, request, send, shown, text};

fn call(path: &str, content_type: &'static str) -> Request<Body> {
    let mut request = request(path);
    let content_type = HeaderValue::from_static(content_type);
    request.headers_mut().insert("content-type", content_type);
    request
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_has_exhausted_a_resource() {
    let list = "- {id: calls, match: {path: /shop.Orders/List}, per: [], limit: 2/minute}";
    let app = app(RateLimitLayer::new(gate(list)));
    for _ in 0..2 {
        let answer = send(&app, call("/shop.Orders/List", "application/grpc")).await;
        assert!(answer.headers().contains_key("ratelimit"));
        assert_eq!(text(answer).await, "served");
    }
    let denied = send(&app, call("/shop.Orders/List", "application/grpc+proto")).await;
    assert_eq!(denied.status(), 200);
    insta::assert_snapshot!(shown(denied.headers()), @r#"
    content-length: 0
    content-type: application/grpc
    grpc-message: the limit `calls` is used up; try again in 30 seconds
    grpc-retry-pushback-ms: 30000
    grpc-status: 8
    ratelimit-policy: "calls";q=2;w=60
    ratelimit: "calls";r=0;t=30
    retry-after: 30
    x-ratelimit-limit: 2
    x-ratelimit-remaining: 0
    x-tidegate-reason: over_limit
    "#);
    assert_eq!(text(denied).await, "");
}

#[tokio::test]
async fn a_call_that_is_blocked_is_not_to_be_tried_again() {
    let app = app(RateLimitLayer::new(gate(
        "- {id: b, per: [], limit: blocked}",
    )));
    let denied = send(&app, call("/a.B/C", "application/grpc")).await;
    assert_eq!(denied.headers()["grpc-retry-pushback-ms"], "-1");
    assert_eq!(denied.headers()["x-tidegate-reason"], "blocked");
    assert_eq!(denied.headers()["grpc-status"], "7", "PERMISSION_DENIED");
    let bad = send(&app, call("/%zz", "application/grpc")).await;
    assert_eq!(
        (bad.status().as_u16(), &bad.headers()["grpc-status"]),
        (200, &"3".parse().unwrap())
    );
    let message = bad.headers()["grpc-message"].to_str().unwrap();
    assert!(message.contains("`%25zz`"), "{message}");
}

#[tokio::test]
async fn a_call_without_an_identity_gets_the_status_for_that() {
    let list = "
- {id: token, match: {path: /a.B/Token}, per: [header.authorization], missing: deny, limit: 1/hour}
- {id: team, match: {path: /a.B/Team}, per: [header.x-team], missing: deny, limit: 1/hour, denied: {detail: 'name a team', headers: {x-help: '{rule}'}}}
- {id: hidden, match: {path: /a.B/Hidden}, per: [], limit: blocked, denied: {status: 404}}";
    let app = app(RateLimitLayer::new(gate(list)));
    for (path, code) in [
        ("/a.B/Token", "16"),
        ("/a.B/Team", "3"),
        ("/a.B/Hidden", "5"),
    ] {
        let denied = send(&app, call(path, "application/grpc")).await;
        assert_eq!(
            (denied.status().as_u16(), &denied.headers()["grpc-status"]),
            (200, &code.parse().unwrap())
        );
        let challenge = denied.headers().get("www-authenticate");
        assert_eq!(challenge.is_some(), code == "16", "{path}");
        if code == "3" {
            assert_eq!(denied.headers()["grpc-message"], "name a team");
            assert_eq!(denied.headers()["x-help"], "team");
        }
    }
}

#[tokio::test]
async fn who_asks_for_others_can_be_answered_over_http_alone() {
    let layer = RateLimitLayer::new(gate("- {id: b, per: [], limit: blocked}"));
    let app = app(layer.protocol(Protocol::Http));
    let denied = send(&app, call("/a.B/C", "application/grpc")).await;
    assert_eq!(denied.status(), 403);
    let bad = send(&app, call("/%zz", "application/grpc")).await;
    assert_eq!(bad.status(), 400);
}

#[test]
fn protocols_by_hand() {
    for (content_type, grpc) in [
        ("application/grpc", Some("application/grpc")),
        ("application/grpc+json", Some("application/grpc")),
        ("application/grpc;x=1", Some("application/grpc")),
        (
            "application/grpc-web+proto",
            Some("application/grpc-web+proto"),
        ),
        ("application/grpcx", None),
        ("application/json", None),
    ] {
        let request = call("/", content_type);
        let expected = grpc.map_or(Protocol::Http, |grpc| {
            Protocol::Grpc(HeaderValue::from_static(grpc))
        });
        assert_eq!(Protocol::of(request.headers()), expected, "{content_type}");
    }
}
