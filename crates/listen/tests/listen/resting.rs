//! Connections that give their buffers back between requests, and are used again.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tidegate_listen::{Drain, ListenSettings, Peer, serve};
use tidegate_testkit::{RawConnection, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::server::Server;

const REST: Duration = Duration::from_millis(20);

fn resting() -> ListenSettings {
    ListenSettings {
        rest_after: REST,
        ..ListenSettings::default()
    }
}

#[tokio::test]
async fn a_connection_that_has_rested_serves_on() {
    let server = Server::start(resting()).await;
    let mut client = server.connect().await;
    let own = client.stream.local_addr().unwrap().to_string();
    for _ in 0..3 {
        assert!(client.get("/peer").await.ends_with(&own));
        sleep(REST * 4).await;
    }
    let whole = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    client.send(&whole.repeat(3)).await;
    for _ in 0..3 {
        assert!(client.answer().await.ends_with("ok"));
    }
}

#[tokio::test]
async fn a_head_that_arrives_byte_by_byte_wakes_it_once() {
    let server = Server::start(resting()).await;
    let mut client = server.connect().await;
    assert!(client.get("/").await.ends_with("ok"));
    sleep(REST * 4).await;
    for byte in "GET / HTTP/1.1\r\nhost: test\r\n\r\n".split("") {
        client.send(byte).await;
        sleep(REST / 10).await;
    }
    assert!(client.answer().await.ends_with("ok"));
}

#[tokio::test]
async fn an_ambiguous_head_is_refused_after_a_rest_too() {
    let server = Server::start(ListenSettings {
        strict: true,
        ..resting()
    })
    .await;
    let mut client = server.connect().await;
    assert!(client.get("/").await.ends_with("ok"));
    sleep(REST * 4).await;
    client.send("GET / HTTP/1.1\nhost: test\r\n\r\n").await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[tokio::test]
async fn a_resting_connection_ends_with_its_idle_time_and_with_the_drain() {
    let idle = Server::start(ListenSettings {
        idle_timeout: REST * 10,
        ..resting()
    })
    .await;
    let mut client = idle.connect().await;
    assert!(client.get("/").await.ends_with("ok"));
    assert_eq!(client.rest().await, "");

    let drained = Server::start(resting()).await;
    let mut client = drained.connect().await;
    assert!(client.get("/").await.ends_with("ok"));
    sleep(REST * 4).await;
    drained.drain.begin();
    assert_eq!(client.rest().await, "");
    drained.ended().await;
}

#[tokio::test]
async fn a_client_that_leaves_meanwhile_ends_its_connection() {
    let server = Server::start(resting()).await;
    let mut client = server.connect().await;
    assert!(client.get("/").await.ends_with("ok"));
    sleep(REST * 4).await;
    drop(client);
    server.drain.begin();
    server.ended().await;
}

/// A server that upgrades every request to an echo, if it asks for that.
async fn upgrading() -> (RawConnection, Drain, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let drain = Drain::new();
    let service = |mut request: Request<Incoming>, _: Peer| async move {
        let mut answer = Response::new(Empty::<Bytes>::new());
        if request.headers().contains_key("upgrade") {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut tunnel = TokioIo::new(upgrade.await.unwrap());
                let mut bytes = [0; 4];
                tunnel.read_exact(&mut bytes).await.unwrap();
                tunnel.write_all(&bytes).await.unwrap();
            });
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            answer.headers_mut().extend(request.headers().clone());
        }
        Ok::<_, Infallible>(answer)
    };
    let serving = tokio::spawn(serve(listener, service, resting(), drain.clone()));
    (RawConnection::to(address).await, drain, serving)
}

#[tokio::test]
async fn a_connection_that_has_rested_can_be_upgraded() {
    let (mut client, drain, serving) = upgrading().await;
    assert!(client.get("/").await.starts_with("HTTP/1.1 200"));
    sleep(REST * 4).await;
    let asks = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    client.send(asks).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    // A tunnel neither rests nor is cut while it is open.
    sleep(REST * 4).await;
    assert!(!serving.is_finished());
    client.send("ping").await;
    assert_eq!(client.rest().await, "ping");
    drain.begin();
    within(serving).await.unwrap();
}
