//! Calls that are not as they should be: refused in words, and never with the code that lets pass.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::Code;

use super::{SHOULD_RATE_LIMIT, calling, descriptor, request, start};
use tidegate::MAX_VALUE;
use tidegate_server::grpc_messages::rate_limit::{
    DescriptorEntry, RateLimitOverride, RateLimitRequest,
};

/// A call, and the two statuses that it gets.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static [u8],
    u16,
    Option<&'static str>,
);

/// The most bytes that a message may have.
const LARGEST: usize = 256 << 10;

const RULES: &str = "rules: [{id: all, per: [], limit: 9/minute}]";

#[tokio::test]
async fn what_is_wrong_is_an_invalid_argument() {
    let server = start(RULES);
    let mut client = server.client().await;
    let brings = |requests_per_unit, unit| {
        let mut brings = descriptor("user=a");
        brings.limit = Some(RateLimitOverride {
            requests_per_unit,
            unit,
        });
        calling(vec![brings])
    };
    let table = [
        (
            RateLimitRequest {
                domain: String::new(),
                ..request(&["a=b"])
            },
            "the domain is empty",
        ),
        (request(&[]), "there are no descriptors"),
        (request(&vec!["a=b"; 257]), "at most 256 descriptors"),
        (request(&["=x"]), "cannot be the name of an attribute"),
        (brings(1, 0), "is not a unit of time"),
        (brings(1, 8), "is not a unit of time"),
        (
            request(&[&format!("a={}", "x".repeat(LARGEST))]),
            "a message may have at most",
        ),
    ];
    for (asked, expected) in table {
        let status = client.ask(asked).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(
            status.message().contains(expected),
            "{expected}: {status:?}"
        );
    }
    assert_eq!(
        client.decide(request(&["a=b"])).await,
        (true, vec![(true, 8)]),
        "nothing was charged"
    );
}

#[tokio::test]
async fn bytes_that_are_no_call_are_refused() {
    let server = start(RULES);
    let stream = tokio::net::TcpStream::connect(server.server.grpc.unwrap())
        .await
        .unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    #[rustfmt::skip]
    let table: [Row; 9] = [
        // method   path                media type          body                    http    grpc-status
        ("POST",    SHOULD_RATE_LIMIT,  "application/grpc", b"",                    200,    Some("3")),
        ("POST",    SHOULD_RATE_LIMIT,  "application/grpc", b"\0\0\0",              200,    Some("3")),
        ("POST",    SHOULD_RATE_LIMIT,  "application/grpc", b"\0\0\0\0\x09ab",      200,    Some("3")),
        ("POST",    SHOULD_RATE_LIMIT,  "application/grpc", b"\0\0\0\0\x02\xff\xff", 200,   Some("3")),
        ("POST",    SHOULD_RATE_LIMIT,  "application/grpc", b"\x07\0\0\0\0",        200,    Some("3")),
        ("POST",    SHOULD_RATE_LIMIT,  "application/grpc", b"\x01\0\0\0\0",        200,    Some("12")),
        ("POST",    "/no.such/Method",  "application/grpc", b"\0\0\0\0\0",          200,    Some("12")),
        ("POST",    SHOULD_RATE_LIMIT,  "application/json", b"{}",                  415,    None),
        ("GET",     SHOULD_RATE_LIMIT,  "application/grpc", b"",                    405,    None),
    ];
    for (method, path, media_type, body, status, grpc_status) in table {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", server.server.grpc.unwrap()))
            .header("content-type", media_type)
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        let reply = sender.send_request(request).await.unwrap();
        assert_eq!(reply.status(), status, "{body:?}");
        let status = reply
            .headers()
            .get("grpc-status")
            .map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(status.as_deref(), grpc_status, "{body:?}");
        // gRPC has no use for it, and encoding it costs.
        assert!(!reply.headers().contains_key("date"), "{body:?}");
        reply.into_body().collect().await.unwrap();
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}

const EACH: &str = "rules:
  - {id: address, per: [remote_address], limit: 2/hour}
  - {id: user, per: [user], limit: 100/hour}
  - {id: path, match: {path: /v1/**}, per: [], limit: 100/hour}
  - {id: ip, per: [ip], limit: 100/hour}";

#[tokio::test]
async fn what_a_client_writes_switches_no_limit_off() {
    let long = "x".repeat(MAX_VALUE + 1);
    let values: [(&str, &[u8]); 4] = [
        ("user", b"\xff\xfe"),
        ("user", long.as_bytes()),
        ("user", b"\0\n"),
        ("user", &[0xff; MAX_VALUE]),
    ];
    for (key, value) in values {
        let server = start(EACH);
        let mut client = server.client().await;
        let asked = || {
            let mut asked = request(&["remote_address=203.0.113.7", "user=a"]);
            asked.descriptors[1].entries[0] = DescriptorEntry {
                key: key.to_owned(),
                value: value.to_vec().into(),
            };
            asked
        };
        for left in [(1, 99), (0, 98)] {
            let decided = client.decide(asked()).await;
            assert_eq!(decided, (true, vec![(true, left.0), (true, left.1)]));
        }
        let (is_allowed, statuses) = client.decide(asked()).await;
        assert!(!is_allowed, "{statuses:?}");
        assert_eq!(statuses[0], (false, 0));
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_understood_is_denied() {
    let server = start(EACH);
    let mut client = server.client().await;
    for unreadable in [
        "ip=nowhere",
        "path=/v1/%zz",
        "host=api.example.com:x",
        "host=api.example.com:80:80",
        "host=[api.example.com]",
    ] {
        let asked = request(&["remote_address=203.0.113.7", unreadable]);
        let (is_allowed, statuses) = client.decide(asked).await;
        assert!(!is_allowed, "{unreadable}");
        assert_eq!(statuses[0], (true, 2), "nothing was charged");
        assert!(!statuses[1].0, "{unreadable}");
    }
}

#[tokio::test]
async fn a_path_that_envoy_sends_on_as_it_came_is_limited_by_every_reading() {
    let rules = "rules: [{id: path, match: {path: /v1/**}, per: [], limit: 100/hour}]";
    let server = start(rules);
    let mut client = server.client().await;
    for (left, path) in (0..100).rev().zip([
        "/v1/search/foo",
        "/v1/search/foo%2f..%2f..%2f..%2fx",
        "/v1/files/a/../../../x",
        "/v1/search/..;/..;/..;/x",
        "/x/../v1",
    ]) {
        let asked = request(&[&format!("path={path}")]);
        assert_eq!(
            client.decide(asked).await,
            (true, vec![(true, left)]),
            "{path}"
        );
    }
}

#[tokio::test]
async fn two_long_values_are_two_clients() {
    let server = start(EACH);
    let mut client = server.client().await;
    for last in ["a", "b"] {
        let asked = request(&[&format!("user={}{last}", "x".repeat(MAX_VALUE))]);
        assert_eq!(client.decide(asked).await, (true, vec![(true, 99)]));
    }
}
