//! Requests that are decided for a server that calls its service itself.

use http::{HeaderMap, Response, StatusCode};

use super::*;

const RULES: &str = "
- {id: pages, match: {path: /pages/**}, per: [ip], limit: 1/minute}
- {id: users, match: {path: /users}, per: [user_id], missing: deny, limit: 1/minute}
";

/// The answer of a server that asks the layer, and then does what the middleware does.
async fn by_hand(layer: &RateLimitLayer, path: &str) -> (StatusCode, HeaderMap, String) {
    let (parts, _) = request(path).into_parts();
    let (_, decided) = layer.decide(parts).await;
    let mut headers = HeaderMap::new();
    match decided {
        Ok(admitted) => {
            for (name, value) in admitted.headers() {
                headers.insert(name, value.parse().unwrap());
            }
            (StatusCode::OK, headers, "served".to_owned())
        }
        Err(reply) => {
            let (head, body) = reply.into_parts();
            let body = String::from_utf8(body.to_vec()).unwrap();
            (head.status, head.headers, body)
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_calls_its_service_itself_answers_as_the_middleware_does() {
    let asked = RateLimitLayer::new(gate(RULES));
    let app = app(RateLimitLayer::new(gate(RULES)));
    for path in ["/pages/1", "/pages/2", "/pages/%zz", "/users", "/other"] {
        let (status, headers, body) = by_hand(&asked, path).await;
        let (head, sent) = send(&app, request(path)).await.into_parts();
        let mut expected = head.headers;
        // Those of axum.
        expected.remove("content-length");
        if status == StatusCode::OK {
            expected.remove("content-type");
        }
        let sent = sent.collect().await.unwrap().to_bytes();
        assert_eq!((status, headers), (head.status, expected), "{path}");
        assert_eq!(body, sent, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_held_until_it_is_dropped_and_given_back_with_its_request() {
    let one = "- {id: reports, per: [], algorithm: concurrency, limit: 1}";
    let layer = RateLimitLayer::new(gate(one));
    let ask = async || layer.decide(request("/reports").into_parts().0).await.1;

    let permit = ask().await.unwrap().hold().unwrap();
    let reply = ask().await.unwrap_err();
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(permit);
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;

    ask().await.unwrap().give_back().await;
    let mut admitted = ask().await.unwrap();
    admitted.begin();
    admitted.answered(Some(&Response::new(())));
}
