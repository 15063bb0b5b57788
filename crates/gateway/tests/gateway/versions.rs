//! HTTP/2 in front and behind, with trailers, as gRPC wants it.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_listen::{Drain, ListenSettings, serve};
use tokio::net::{TcpListener, TcpStream};

use crate::running::{Gateway, NO_RULES};
use crate::upstream::Upstream;
use tidegate_testkit::header;
use tidegate_testkit::within;

async fn http2_client<B>(address: SocketAddr) -> http2::SendRequest<B>
where
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Unpin + Send + 'static,
{
    let stream = within(TcpStream::connect(address)).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (client, connection) = within(handshake).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Answers as a gRPC server does: what was sent, and a status in the trailers.
async fn grpc_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = |request: Request<Incoming>, _| async move {
        assert_eq!(request.headers()["te"], "trailers");
        let sent = request.into_body().collect().await.unwrap().to_bytes();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let body =
            Full::new(sent).with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
        Ok::<_, Infallible>(Response::new(body))
    };
    tokio::spawn(serve(
        listener,
        answer,
        ListenSettings::default(),
        Drain::new(),
    ));
    address
}

#[tokio::test]
async fn trailers_come_through() {
    let server = grpc_server().await;
    let gateway = Gateway::start(&format!("upstream: h2c://{server}\n"), NO_RULES);
    let mut client = http2_client::<Full<Bytes>>(gateway.address).await;
    let request = || {
        Request::post("http://a/package.Service/Method")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::from("message"))
            .unwrap()
    };
    let (one, other) = (
        client.send_request(request()),
        client.send_request(request()),
    );
    for answer in [within(one).await.unwrap(), within(other).await.unwrap()] {
        assert_eq!(answer.status(), StatusCode::OK);
        let body = within(answer.into_body().collect()).await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes(), "message");
    }
}

#[tokio::test]
async fn trailers_of_a_request_come_through_if_they_were_announced_and_no_rule_reads_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let answer = |request: Request<Incoming>, _| async move {
        let announced = request.headers()["trailer"].clone();
        let sent = request.into_body().collect().await.unwrap();
        let names: Vec<String> = sent
            .trailers()
            .unwrap()
            .keys()
            .map(ToString::to_string)
            .collect();
        let mut answer = Response::new(Full::<Bytes>::from(names.join(" ")));
        answer.headers_mut().insert("x-announced", announced);
        Ok::<_, Infallible>(answer)
    };
    tokio::spawn(serve(
        listener,
        answer,
        ListenSettings::default(),
        Drain::new(),
    ));
    // By its head, and after its body.
    for limit in ["9/day", "9, algorithm: concurrency"] {
        let rules = format!(
            "rules: [{{id: team, per: [header.x-team], missing: share, limit: {limit}}}]\n"
        );
        let gateway = Gateway::start(&format!("upstream: h2c://{server}\n"), &rules);
        let mut client = http2_client(gateway.address).await;
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "x-team", "x_team", "x-unannounced"] {
            trailers.insert(name, HeaderValue::from_static("1"));
        }
        let body = Full::<Bytes>::from("text")
            .with_trailers(Box::pin(async move { Some(Ok::<_, Infallible>(trailers)) }));
        let request = Request::post("http://a/")
            .header("trailer", "x-sum, x-team, x_team")
            .body(body)
            .unwrap();
        let answer = within(client.send_request(request)).await.unwrap();
        assert_eq!(answer.headers()["x-announced"], "x-sum");
        let names = within(answer.into_body().collect())
            .await
            .unwrap()
            .to_bytes();
        assert_eq!(names, "x-sum");
    }
}

#[tokio::test]
async fn http2_becomes_http1_with_one_host_and_one_length() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let mut client = http2_client::<Full<Bytes>>(gateway.address).await;
    let request = Request::post("http://api.example.com/a//b?c")
        .header("cookie", "a=1")
        .header("cookie", "b=2; c=3")
        .body(Full::from("hello"))
        .unwrap();
    let asking = tokio::spawn(client.send_request(request));
    let mut server = upstream.accept().await;
    let head = server.head().await;
    assert!(head.starts_with("POST /a/b?c HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "host"), Some("api.example.com"));
    assert_eq!(header(&head, "cookie"), Some("a=1; b=2; c=3"));
    assert_eq!(header(&head, "content-length"), Some("5"));
    assert_eq!(server.bytes(5).await, b"hello");
    server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: keep-alive\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n").await;
    let answer = within(asking).await.unwrap().unwrap();
    assert!(answer.headers().get("connection").is_none());
    let body = within(answer.into_body().collect()).await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "7");
    assert_eq!(body.to_bytes(), "ok");

    let refused = Request::get("http://a/")
        .header("host", "b")
        .body(Full::default())
        .unwrap();
    let answer = within(client.send_request(refused)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let refused = Request::get("http://a/x%2fy")
        .body(Full::default())
        .unwrap();
    let answer = within(client.send_request(refused)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    // Without an authority, and with one that has no port: refused, here or by HTTP/2 itself.
    for uri in ["/", "http://a:x/", "http://a:80:80/"] {
        let Ok(refused) = Request::get(uri).body(Full::default()) else {
            continue;
        };
        let mut client = http2_client::<Full<Bytes>>(gateway.address).await;
        let answer = within(client.send_request(refused)).await;
        let status = answer.map_or(StatusCode::BAD_REQUEST, |answer| answer.status());
        assert_eq!(status, StatusCode::BAD_REQUEST, "{uri}");
    }
}

#[tokio::test]
async fn a_client_of_http_1_0_is_answered_without_chunks() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, head) = gateway
        .begin(&mut upstream, "GET /old HTTP/1.0\r\n\r\n")
        .await;
    assert!(head.starts_with("GET /old HTTP/1.1\r\n"), "{head}");
    assert_eq!(
        header(&head, "host"),
        Some(upstream.address.to_string().as_str())
    );
    server
        .send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
        .await;
    let answer = client.rest().await;
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
}
