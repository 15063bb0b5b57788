//! Permits that clients share: a request takes one when its body has come, so that slow clients do not hold them.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_listen::{Drain, ListenSettings, serve};
use tidegate_testkit::{RawConnection, header, within};
use tidegate_testkit_server::TestFolder;
use tokio::net::{TcpListener, TcpStream};

use crate::running::Gateway;
use crate::upstream::{Recorder, Upstream};

const SHARED: &str = "rules: [{id: jobs, per: [], limit: 1, algorithm: concurrency}]\n";
const POST: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab";

fn gateway(upstream: std::net::SocketAddr, rules: &str) -> Gateway {
    Gateway::start(&format!("upstream: http://{upstream}\n"), rules)
}

/// Clients that have sent half of their bodies.
async fn slow_clients(gateway: &Gateway) -> Vec<RawConnection> {
    let mut clients = Vec::new();
    for _ in 0..30 {
        let mut client = gateway.connect().await;
        client.send(POST).await;
        clients.push(client);
    }
    clients
}

#[tokio::test]
async fn slow_bodies_do_not_hold_shared_permits() {
    for rules in [
        SHARED,
        "rules: [{id: jobs, per: [user_id], missing: share, limit: 1, algorithm: concurrency}]\n",
        "rules: [{id: jobs, per: [], algorithm: concurrency, adaptive: {min: 1, max: 1}}]\n",
    ] {
        let recorder = Recorder::start().await;
        let gateway = gateway(recorder.address, rules);
        let mut slow = slow_clients(&gateway).await;
        for _ in 0..5 {
            assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
            gateway.metric_is("tidegate_leases", 0).await;
        }
        assert!(!recorder.text().contains("POST"));
        let mut last = slow.pop().unwrap();
        last.send("cd").await;
        assert!(last.answer().await.starts_with("HTTP/1.1 200 "));
        assert!(recorder.text().contains("\r\n\r\nabcd"));
    }
}

#[tokio::test]
async fn a_request_that_takes_no_shared_permit_is_decided_by_its_head() {
    for rules in [
        "rules: [{id: jobs, per: [ip], limit: 1, algorithm: concurrency}]\n",
        "rules: [{id: jobs, match: {path: /jobs}, per: [], limit: 1, algorithm: concurrency}, {id: all, per: [], limit: 1/day}]\n",
        "rules: [{id: jobs, per: [], mode: shadow, limit: 1, algorithm: concurrency}, {id: all, per: [], limit: 1/day}]\n",
    ] {
        let mut upstream = Upstream::start().await;
        let gateway = gateway(upstream.address, rules);
        let (_client, _server, _) = gateway.begin(&mut upstream, POST).await;
        let denied = gateway.ask(POST).await;
        assert!(denied.starts_with("HTTP/1.1 429 "), "{rules}: {denied}");
    }
}

#[tokio::test]
async fn a_body_that_came_before_the_decision_goes_on_whole() {
    const LENGTH: usize = 200_000;
    let mut upstream = Upstream::start().await;
    let gateway = gateway(upstream.address, SHARED);
    // Chunks, with a trailer that was announced and one that was not.
    let request = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\nx-sum: 7\r\nx-other: 8\r\n\r\n";
    let (mut client, mut server, head) = gateway.begin(&mut upstream, request).await;
    assert_eq!(header(&head, "trailer"), Some("x-sum"));
    let body = "4\r\nabcd\r\n0\r\nx-sum: 7\r\n\r\n";
    assert_eq!(server.text(body.len()).await, body);
    server.send_ok("ok").await;
    assert!(client.answer().await.ends_with("ok"));

    // More than is waited for, on the connection that was kept.
    let text = "0123456789".repeat(LENGTH / 10);
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n");
    client.send(&head).await;
    client.send(&text[..150_000]).await;
    server.head().await;
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 429 "));
    client.send(&text[150_000..]).await;
    assert_eq!(server.text(LENGTH).await, text);
    server.send_ok("ok").await;
    assert!(client.answer().await.ends_with("ok"));

    // The client waits to be asked for its body.
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n";
    client.send(head).await;
    assert!(client.head().await.starts_with("HTTP/1.1 100 "));
    client.send("ab").await;
    server.head().await;
    assert_eq!(server.text(2).await, "ab");
    server.send_ok("ok").await;
    assert!(client.answer().await.ends_with("ok"));
}

#[tokio::test]
async fn a_body_over_http2_that_came_before_the_decision_goes_on_whole() {
    let mut upstream = Upstream::start().await;
    let gateway = gateway(upstream.address, SHARED);
    let stream = within(TcpStream::connect(gateway.address)).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = within(handshake).await.unwrap();
    tokio::spawn(connection);
    let text = "0123456789".repeat(10_000);
    for length in [10, 65_536, 100_000] {
        let body = Full::<Bytes>::from(text[..length].to_owned());
        let asking = client.send_request(Request::post("http://a/").body(body).unwrap());
        let asking = tokio::spawn(asking);
        let mut server = upstream.accept().await;
        server.head().await;
        assert_eq!(server.text(length).await, text[..length]);
        server
            .send("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
            .await;
        let answer = within(asking).await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        gateway.metric_is("tidegate_leases", 0).await;
    }
}

/// The status of a call of gRPC whose body begins like this and does not end, if there is an answer in time.
async fn call_of_grpc(
    scheme: &str,
    begins: Option<&'static [u8]>,
    time: Duration,
) -> Option<StatusCode> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let answer = async |_: Request<Incoming>, _| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    };
    let serving = serve(listener, answer, ListenSettings::default(), Drain::new());
    let serving = tokio::spawn(serving);
    let gateway = Gateway::start(&format!("upstream: {scheme}://{server}\n"), SHARED);
    let stream = within(TcpStream::connect(gateway.address)).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = within(handshake).await.unwrap();
    tokio::spawn(connection);
    let begins = begins.map(|bytes| Ok::<_, Infallible>(Frame::data(Bytes::from_static(bytes))));
    let body = stream::iter(begins).chain(stream::pending());
    let request = Request::post("http://a/package.Service/Method")
        .header("content-type", "application/grpc")
        .body(StreamBody::new(body))
        .unwrap();
    let asking = client.send_request(request);
    let answer = tokio::time::timeout(time, asking).await;
    serving.abort();
    answer.ok().map(|answer| answer.unwrap().status())
}

#[tokio::test]
async fn a_call_of_grpc_waits_for_its_first_message_only() {
    const MESSAGE: &[u8] = &[0, 0, 0, 0, 1, b'x'];
    let (long, short) = (Duration::from_secs(10), Duration::from_millis(200));
    let answered = call_of_grpc("h2c", Some(MESSAGE), long).await;
    assert_eq!(answered, Some(StatusCode::OK));
    // To name gRPC is no way to hold a permit without sending anything.
    assert_eq!(call_of_grpc("h2c", None, short).await, None);
    // There is no gRPC over HTTP/1, so all of its body is awaited.
    assert_eq!(call_of_grpc("http", Some(MESSAGE), short).await, None);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408() {
    let mut upstream = Upstream::start().await;
    let settings = format!(
        "routes: [{{upstreams: ['http://{}'], timeout: 100ms}}]\n",
        upstream.address
    );
    let gateway = Gateway::start(&settings, SHARED);
    assert!(gateway.ask(POST).await.starts_with("HTTP/1.1 408 "));

    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start_with(TestFolder::new(), &settings, SHARED, |gateway| {
        gateway.body_rate_window = Duration::from_secs(1);
    });
    assert!(gateway.ask(POST).await.starts_with("HTTP/1.1 408 "));
    assert!(upstream.is_unasked());
}
