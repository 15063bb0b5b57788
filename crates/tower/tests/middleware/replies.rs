//! The answers that clients get.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use tidegate::headers::HeaderSettings;
use tidegate::rules::DenialAnswer;
use tidegate_tower::RateLimitLayer;
use tower::{Layer as _, Service, ServiceExt as _};

use super::{app, gate, request, send, shown, status, text};

const LOGIN: &str = "- {id: login, match: {path: /login}, per: [ip], limit: 2/minute}";

#[tokio::test(start_paused = true)]
async fn an_answer_says_what_is_left() {
    let app = app(RateLimitLayer::new(gate(LOGIN)));
    let answer = send(&app, request("/login")).await;
    assert_eq!(answer.status(), 200);
    insta::assert_snapshot!(shown(answer.headers()), @r#"
    content-length: 6
    content-type: text/plain; charset=utf-8
    ratelimit-policy: "login";q=2;w=60
    ratelimit: "login";r=1;t=30
    x-ratelimit-limit: 2
    x-ratelimit-remaining: 1
    "#);
    assert_eq!(text(answer).await, "served");
    let other = send(&app, request("/other")).await;
    assert!(
        !other.headers().contains_key("ratelimit"),
        "no rule applies"
    );
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_a_problem_document() {
    let app = app(RateLimitLayer::new(gate(LOGIN)));
    send(&app, request("/login")).await;
    send(&app, request("/login")).await;
    let denied = send(&app, request("/login")).await;
    assert_eq!(denied.status(), 429);
    insta::assert_snapshot!(shown(denied.headers()), @r#"
    content-length: 277
    content-type: application/problem+json
    ratelimit-policy: "login";q=2;w=60
    ratelimit: "login";r=0;t=30
    retry-after: 30
    x-ratelimit-limit: 2
    x-ratelimit-remaining: 0
    "#);
    insta::assert_snapshot!(text(denied).await, @r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"the limit `login` is used up; try again in 30 seconds","violated-policies":["login"],"reason":"over_limit"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_a_burst_names_its_rate() {
    let list = "
- {id: api, match: {path: /api}, per: [], limit: 100/minute burst 1}
- {id: mail, match: {path: /mail}, per: [], limit: 60/hour burst 1, algorithm: leaky_bucket, shape: false}";
    let app = app(RateLimitLayer::new(gate(list)));
    for (path, detail) in [
        (
            "/api",
            "the limit `api` (burst 1, 100/minute) is used up; try again in 1 second",
        ),
        (
            "/mail",
            "the limit `mail` (burst 1, 60/hour) is used up; try again in 60 seconds",
        ),
    ] {
        send(&app, request(path)).await;
        let denied = text(send(&app, request(path)).await).await;
        assert!(denied.contains(detail), "{denied}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_says_why_waiting_does_not_help() {
    let list = "
- {id: blocked, match: {path: /blocked}, per: [], limit: blocked}
- {id: small, match: {path: /small}, per: [], limit: 2/minute, cost: 3}
- {id: who, match: {path: /who}, per: [user_id], missing: deny, limit: 2/minute}";
    let app = app(RateLimitLayer::new(gate(list)));
    for (path, status, reason, detail) in [
        (
            "/blocked",
            403,
            "blocked",
            "the limit `blocked` grants nothing to this request",
        ),
        (
            "/small",
            429,
            "too_expensive",
            "the request costs more than the limit `small` can ever grant",
        ),
        (
            "/who",
            400,
            "missing_attribute",
            "the limit `who` needs `user_id`, which the request does not have",
        ),
    ] {
        let denied = send(&app, request(path)).await;
        assert_eq!(denied.status(), status);
        assert!(!denied.headers().contains_key("retry-after"), "{path}");
        assert!(!denied.headers().contains_key("www-authenticate"), "{path}");
        let body: serde_json::Value = serde_json::from_str(&text(denied).await).unwrap();
        assert_eq!(body["detail"], detail);
        assert_eq!(body["reason"], reason);
        assert_eq!(body["status"], status);
        let is_quota = body["type"].as_str().unwrap().ends_with("#quota-exceeded");
        assert_eq!(is_quota, status == 429, "{body}");
        let missing = &body["missing"];
        assert_eq!(missing.is_array(), reason == "missing_attribute", "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_identify_itself_is_asked_to() {
    let list = "
- {id: who, match: {path: /who}, per: [plan, user_id], missing: deny, limit: 2/minute}
- {id: header, match: {path: /header}, per: [header.authorization], missing: deny, limit: 2/minute}
- {id: team, match: {path: /team}, per: [header.x-team], missing: deny, limit: 2/minute}";
    let bearer = HeaderValue::from_static("Bearer realm=\"shop\"");
    let layer = RateLimitLayer::new(gate(list)).challenges([("user_id".to_owned(), bearer)]);
    let app = app(layer);
    for (path, status, challenge) in [
        ("/who", 401, Some("Bearer realm=\"shop\"")),
        ("/header", 401, Some("Bearer realm=\"tidegate\"")),
        ("/team", 400, None),
    ] {
        let denied = send(&app, request(path)).await;
        assert_eq!(denied.status(), status, "{path}");
        let asked = denied.headers().get("www-authenticate");
        assert_eq!(asked.map(|asked| asked.to_str().unwrap()), challenge);
        let body: serde_json::Value = serde_json::from_str(&text(denied).await).unwrap();
        assert_eq!(body["type"], "about:blank");
        let title = if status == 401 {
            "Unauthorized"
        } else {
            "Bad Request"
        };
        assert_eq!(body["title"], title);
    }
    let mut two_words = request("/header");
    let token = HeaderValue::from_static("Bearer T x");
    two_words.headers_mut().insert("authorization", token);
    let denied = send(&app, two_words).await;
    assert_eq!(denied.status(), 401);
    assert_eq!(
        denied.headers()["www-authenticate"],
        "Bearer realm=\"tidegate\", error=\"invalid_token\""
    );
    let body: serde_json::Value = serde_json::from_str(&text(denied).await).unwrap();
    assert_eq!(body["reason"], "invalid_credentials");
}

#[tokio::test(start_paused = true)]
async fn a_rule_or_the_settings_say_what_denied_clients_get() {
    let list = "
- {id: login, match: {path: /login}, per: [], limit: 1/minute, denied: {status: 420, title: 'Calm {rule}', detail: '{limit} a minute, wait {retry_after} s', headers: {X-Help: '/{rule}'}}}
- {id: other, match: {path: /other}, per: [], limit: blocked}
- {id: who, match: {path: /who}, per: [user_id], missing: deny, limit: 2/minute, denied: {status: 404}}";
    let all = DenialAnswer::from_yaml("{status: 503, headers: {x-all: '{retry_after}'}}").unwrap();
    let app = app(RateLimitLayer::new(gate(list)).denied(all));
    send(&app, request("/login")).await;
    let denied = send(&app, request("/login")).await;
    assert_eq!(denied.status(), 420);
    let header = |name: &str| {
        denied
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap())
    };
    assert_eq!(header("x-help"), Some("/login"));
    assert_eq!(header("x-all"), None, "that of the rule wins");
    assert_eq!(header("retry-after"), Some("60"));
    let body: serde_json::Value = serde_json::from_str(&text(denied).await).unwrap();
    assert_eq!(body["title"], "Calm login");
    assert_eq!(body["detail"], "1 a minute, wait 60 s");
    assert_eq!(
        (&body["status"], &body["reason"]),
        (&420.into(), &"over_limit".into())
    );

    let denied = send(&app, request("/other")).await;
    assert_eq!(denied.status(), 503);
    assert_eq!(denied.headers()["x-all"], "never");
    assert_eq!(status(&app, request("/who")).await, 404);
}

#[tokio::test]
async fn which_headers_are_sent_is_a_setting() {
    let layer = RateLimitLayer::new(gate(LOGIN)).headers(HeaderSettings::NONE);
    let app = app(layer);
    for expected in [200, 200, 429] {
        let answer = send(&app, request("/login")).await;
        assert_eq!(answer.status(), expected);
        assert!(!answer.headers().contains_key("ratelimit"));
        assert!(!answer.headers().contains_key("retry-after"));
    }
}

#[tokio::test]
async fn a_shadow_rule_lets_pass_and_is_not_reported() {
    let app = app(RateLimitLayer::new(gate(
        "- {id: s, per: [], limit: 1/minute, mode: shadow}",
    )));
    assert_eq!(status(&app, request("/")).await, 200);
    let second = send(&app, request("/")).await;
    assert_eq!(second.status(), 200);
    assert!(!second.headers().contains_key("ratelimit"));
}

/// A service that may be called only when it was asked whether it is ready, each instance by itself.
struct Strict {
    is_ready: bool,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            is_ready: false,
            calls: Arc::clone(&self.calls),
        }
    }
}

/// A body that cannot be cloned or shared.
struct Unshared(#[expect(dead_code, reason = "it is only carried")] std::cell::Cell<u8>);

impl Service<Request<Unshared>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Unshared>) -> Self::Future {
        assert!(self.is_ready, "called before it was ready");
        self.calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::new(Full::default())))
    }
}

#[tokio::test]
async fn the_instance_that_was_ready_is_called_and_only_if_allowed() {
    let calls = Arc::new(AtomicUsize::new(0));
    let strict = Strict {
        is_ready: false,
        calls: Arc::clone(&calls),
    };
    let mut service =
        RateLimitLayer::new(gate("- {id: r, per: [], limit: 2/minute}")).layer(strict);
    for expected in [200, 200, 429, 429] {
        let request = Request::new(Unshared(std::cell::Cell::new(1)));
        let ready = service.ready().await.unwrap();
        assert_eq!(ready.call(request).await.unwrap().status(), expected);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
