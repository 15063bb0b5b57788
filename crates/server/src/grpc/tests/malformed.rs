//! Calls that are not as they should be: refused in words, and never with the code that lets pass.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::Code;

use super::super::message::LARGEST;
use super::super::proto::rate_limit::{RateLimitOverride, RateLimitRequest};
use super::{SHOULD_RATE_LIMIT, calling, descriptor, request, start};

/// A call, and the two statuses that it gets.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static [u8],
    u16,
    Option<&'static str>,
);

const RULES: &str = "rules: [{id: all, per: [], limit: 9/minute}]";

#[tokio::test]
async fn what_is_wrong_is_an_invalid_argument() {
    let server = start(RULES).await;
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
        (request(&vec!["a=b"; 257]), "256 descriptors at the most"),
        (
            request(&["ok=1", "ip=nowhere"]),
            "descriptors[1]: attribute `ip`",
        ),
        (request(&["=x"]), "cannot be the name of an attribute"),
        (
            request(&[&format!("a={}", "x".repeat(8_193))]),
            "8193 bytes long",
        ),
        (brings(1, 0), "is not a unit of time"),
        (brings(1, 8), "is not a unit of time"),
        (brings(u32::MAX, 1), "`limit`: "),
        (
            request(&[&format!("a={}", "x".repeat(LARGEST))]),
            "bytes at the most",
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
        client.told(request(&["a=b"])).await,
        (true, vec![(true, 8)]),
        "nothing was charged"
    );
    server.end().await;
}

#[tokio::test]
async fn bytes_that_are_no_call_are_refused() {
    let server = start(RULES).await;
    let stream = tokio::net::TcpStream::connect(server.address)
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
            .uri(format!("http://{}{path}", server.address))
            .header("content-type", media_type)
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        let reply = sender.send_request(request).await.unwrap();
        assert_eq!(reply.status(), status, "{body:?}");
        let told = reply
            .headers()
            .get("grpc-status")
            .map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(told.as_deref(), grpc_status, "{body:?}");
        reply.into_body().collect().await.unwrap();
    }
    drop(sender);
    connection.await.unwrap().unwrap();
    server.end().await;
}
