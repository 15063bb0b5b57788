//! Clients that send the bodies of their requests as slowly as they can.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use tidegate_testkit::within;
use tidegate_testkit_server::TestFolder;

use crate::running::{Gateway, NO_RULES};
use crate::upstream::Upstream;

/// Between two bytes of a body.
const DRIP: Duration = Duration::from_millis(100);

/// A gateway that measures bodies over a second.
fn gateway(upstream: &Upstream, settings: &str) -> Gateway {
    let settings = format!("upstream: http://{}\n{settings}", upstream.address);
    let folder = TestFolder::new();
    Gateway::start_with(folder, &settings, NO_RULES, |gateway| {
        gateway.body_rate_window = Duration::from_secs(1);
    })
}

fn post(headers: &str) -> String {
    format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 30\r\n{headers}\r\n")
}

/// Sends a body by drips until the connection is closed, and returns the answer.
async fn drip(stream: TcpStream) -> String {
    let (mut reads, mut writes) = stream.into_split();
    let drips = tokio::spawn(async move {
        while writes.write_all(b"x").await.is_ok() {
            tokio::time::sleep(DRIP).await;
        }
    });
    let mut answer = Vec::new();
    let _ = within(reads.read_to_end(&mut answer)).await;
    drips.abort();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_body_that_drips_is_408_and_the_server_is_let_go() {
    // There is no gRPC over HTTP/1, so its name is no way around the rate.
    for headers in ["", "content-type: application/grpc\r\n"] {
        let mut upstream = Upstream::start().await;
        let gateway = gateway(&upstream, "");
        let (client, mut server, _) = gateway.begin(&mut upstream, &post(headers)).await;
        let answer = drip(client.stream).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{headers}: {answer}");
        let came = server.rest().await;
        assert!(came.len() < 30, "{came:?}");
    }
}

#[tokio::test]
async fn bodies_without_a_rate_may_take_their_time() {
    let mut upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "body_min_rate: off\n");
    let (mut client, mut server, _) = gateway.begin(&mut upstream, &post("")).await;
    for _ in 0..30 {
        client.send("x").await;
        tokio::time::sleep(DRIP).await;
    }
    assert_eq!(server.bytes(30).await.len(), 30);
    server.send_ok("ok").await;
    assert!(client.answer().await.ends_with("ok"));
}

/// Whether a body that drips over HTTP/2 comes through whole.
async fn is_taken_over_http2(kind: &str) -> bool {
    let mut upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "");
    let stream = within(TcpStream::connect(gateway.address)).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = within(handshake).await.unwrap();
    tokio::spawn(connection);
    let drips = stream::unfold(0, |sent| async move {
        tokio::time::sleep(DRIP).await;
        let frame = Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")));
        (sent < 30).then_some((frame, sent + 1))
    });
    let request = Request::post("http://a/package.Service/Method")
        .header("content-type", kind)
        .header("content-length", "30")
        .body(StreamBody::new(Box::pin(drips)))
        .unwrap();
    let asking = tokio::spawn(client.send_request(request));
    let mut server = upstream.accept().await;
    server.head().await;
    let mut came = Vec::new();
    let _ = within((&mut server.stream).take(30).read_to_end(&mut came)).await;
    if came.len() == 30 {
        server.send_ok("ok").await;
    }
    let answer = within(asking).await.unwrap();
    let is_ok = answer.is_ok_and(|answer| answer.status() == StatusCode::OK);
    assert_eq!(is_ok, came.len() == 30, "{kind}");
    is_ok
}

#[tokio::test]
async fn streams_of_grpc_may_take_their_time() {
    assert!(is_taken_over_http2("application/grpc+proto").await);
    assert!(!is_taken_over_http2("application/json").await);
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_not_the_fault_of_the_client() {
    const LENGTH: usize = 24 << 20;
    let mut upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "body_min_rate: 1KiB/s\n");
    let request = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n");
    let (mut client, mut server, _) = gateway.begin(&mut upstream, &request).await;
    let sending = tokio::spawn(async move {
        client.send(&"x".repeat(LENGTH)).await;
        client
    });
    // Clients that come later and drip are refused: the rate of the first one was measured, too.
    for _ in 0..2 {
        let (client, _server, _) = gateway.begin(&mut upstream, &post("")).await;
        let answer = drip(client.stream).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    assert_eq!(server.bytes(LENGTH).await.len(), LENGTH);
    server.send_ok("ok").await;
    let mut client = sending.await.unwrap();
    assert!(client.answer().await.ends_with("ok"));
}
