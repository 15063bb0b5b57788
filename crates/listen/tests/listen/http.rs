//! What HTTP/1 and HTTP/2 without TLS promise.

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_listen::ListenSettings;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::server::Server;
use tidegate_testkit::within;

type Http2Client = http2::SendRequest<Empty<Bytes>>;

/// An HTTP/2 client on a connection that stands, and what ends when the connection does.
pub(crate) async fn http2_connection<T>(io: T) -> (Http2Client, JoinHandle<hyper::Result<()>>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(io));
    let (client, connection) = within(handshake).await.unwrap();
    (client, tokio::spawn(connection))
}

pub(crate) async fn http2_client<T>(io: T) -> Http2Client
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    http2_connection(io).await.0
}

pub(crate) fn request(path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("http://test{path}");
    Request::get(uri).body(Empty::new()).unwrap()
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another_and_names_its_peer() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        let answer = client.get("/").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
    let own = client.stream.local_addr().unwrap().to_string();
    assert!(client.get("/peer").await.ends_with(&own));
}

#[tokio::test]
async fn pipelined_requests_are_answered_while_half_a_request_waits() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = server.connect().await;
    let whole = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    client.send(&format!("{whole}{whole}GET /pe")).await;
    for _ in 0..2 {
        assert!(client.answer().await.starts_with("HTTP/1.1 200 OK"));
    }
    client.send("er HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert!(client.answer().await.contains("127.0.0.1"));
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_gets_its_answer() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = server.connect().await;
    client
        .send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n")
        .await;
    client.stream.shutdown().await.unwrap();
    within(server.has_begun.notified()).await;
    server.release.notify_one();
    assert!(client.rest().await.ends_with("slow"));
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = server.connect().await;
    let head =
        "POST /echo HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    client.send(head).await;
    assert!(client.answer().await.starts_with("HTTP/1.1 100 Continue"));
    client.send("body").await;
    assert!(client.answer().await.ends_with("body"));
}

#[tokio::test]
async fn http2_is_used_with_a_client_that_begins_with_it() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = http2_client(server.connect().await.stream).await;
    for _ in 0..3 {
        let response = within(client.send_request(request("/"))).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2);
        assert_eq!(response.status(), StatusCode::OK);
        let body = within(response.into_body().collect()).await.unwrap();
        assert_eq!(body.to_bytes(), "ok");
    }
}

#[tokio::test]
async fn an_http2_request_that_waits_does_not_hold_up_others_of_its_connection() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = http2_client(server.connect().await.stream).await;
    let slow = tokio::spawn(client.send_request(request("/slow")));
    within(server.has_begun.notified()).await;
    for _ in 0..3 {
        let response = within(client.send_request(request("/"))).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    server.release.notify_one();
    let response = within(slow).await.unwrap().unwrap();
    let body = within(response.into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes(), "slow");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_431_even_while_more_of_it_is_sent() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = server.connect().await;
    let (mut reads, mut writes) = client.stream.into_split();
    let sends = tokio::spawn(async move {
        let filler = format!("GET / HTTP/1.1\r\nhost: test\r\nx: {}", "x".repeat(100_000));
        writes.write_all(filler.as_bytes()).await.unwrap();
        writes
    });
    let mut answer = String::new();
    let ended = within(reads.read_to_string(&mut answer)).await;
    ended.expect("no reset");
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    within(sends).await.unwrap();

    client = server.connect().await;
    assert!(client.get("/").await.starts_with("HTTP/1.1 200 OK"));
    let many = "x: 1\r\n".repeat(200);
    client.send(&format!("GET / HTTP/1.1\r\n{many}\r\n")).await;
    assert!(client.rest().await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn a_head_that_is_too_large_is_431_on_http2_too() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = http2_client(server.connect().await.stream).await;
    let mut large = request("/");
    for number in 0..20 {
        let name: http::HeaderName = format!("x-{number}").parse().unwrap();
        large
            .headers_mut()
            .insert(name, "x".repeat(1000).parse().unwrap());
    }
    let response = within(client.send_request(large)).await.unwrap();
    assert_eq!(
        response.status(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
}

#[tokio::test]
async fn an_answer_that_does_not_wait_for_the_body_is_not_lost() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = server.connect().await;
    let body = "x".repeat(100_000);
    client
        .send("POST /refuse HTTP/1.1\r\nhost: test\r\ncontent-length: 100000\r\n\r\n")
        .await;
    client.send(&body).await;
    assert!(client.answer().await.starts_with("HTTP/1.1 413 "));
}
