//! How connections end when the program stops.

use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use tidegate_listen::ListenSettings;
use tokio::net::TcpStream;

use super::http::{http2_client, request};
use super::server::Server;
use tidegate_testkit::within;

#[tokio::test]
async fn a_request_in_flight_is_answered_and_says_that_it_was_the_last() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = server.connect().await;
    client
        .send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n")
        .await;
    within(server.has_begun.notified()).await;
    server.drain.begin();
    server.release.notify_one();
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.ends_with("slow"), "{answer}");
    server.ended().await;
}

#[tokio::test]
async fn an_announced_drain_lets_clients_move_before_connections_are_closed() {
    let server = Server::start(ListenSettings::default()).await;
    let (mut kept, mut http2) = (
        server.connect().await,
        http2_client(server.connect().await.stream).await,
    );
    assert!(!kept.get("/").await.contains("connection: close"));
    server.drain.announce();
    let get = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    for mut client in [kept, server.connect().await] {
        client.send(get).await;
        let answer = client.rest().await;
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(answer.ends_with("ok"), "{answer}");
    }
    // HTTP/2 has GOAWAY, which loses no request: it is sent when the drain begins.
    for _ in 0..2 {
        within(http2.send_request(request("/"))).await.unwrap();
    }
    server.drain.begin();
    server.ended().await;
}

#[tokio::test]
async fn idle_and_silent_connections_are_closed_and_new_ones_refused() {
    for last_call in [Duration::ZERO, Duration::from_millis(100)] {
        let server = Server::start(ListenSettings {
            last_call,
            drain_timeout: Duration::from_mins(10),
            ..ListenSettings::default()
        })
        .await;
        let mut silent = server.connect().await;
        let mut idle = server.connect().await;
        assert!(idle.get("/").await.ends_with("ok"));
        let mut http2 = http2_client(server.connect().await.stream).await;
        within(http2.send_request(request("/"))).await.unwrap();
        server.drain.begin();
        assert_eq!(idle.rest().await, "");
        assert_eq!(silent.rest().await, "");
        let address = server.address;
        server.ended().await;
        assert!(TcpStream::connect(address).await.is_err());
        assert!(within(http2.send_request(request("/"))).await.is_err());
    }
}

#[tokio::test]
async fn a_request_in_flight_on_http2_is_answered() {
    let server = Server::start(ListenSettings::default()).await;
    let mut client = http2_client(server.connect().await.stream).await;
    let answer = tokio::spawn(client.send_request(request("/slow")));
    within(server.has_begun.notified()).await;
    server.drain.begin();
    server.release.notify_one();
    let response = within(answer).await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = within(response.into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes(), "slow");
    server.ended().await;
}

#[tokio::test]
async fn a_request_that_waits_in_the_kernel_is_accepted_and_answered() {
    let server = Server::start(ListenSettings {
        max_connections: 1,
        ..ListenSettings::default()
    })
    .await;
    let mut busy = server.connect().await;
    busy.send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n").await;
    within(server.has_begun.notified()).await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let mut client = server.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
        waiting.push(client);
    }
    server.drain.begin();
    for mut client in waiting {
        let answer = client.answer().await;
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(answer.ends_with("ok"), "{answer}");
    }
    server.release.notify_one();
    assert!(busy.answer().await.ends_with("slow"));
    server.ended().await;
}

#[tokio::test]
async fn half_a_head_is_waited_for_beyond_the_last_call() {
    let last_call = Duration::from_millis(100);
    let server = Server::start(ListenSettings {
        last_call,
        ..ListenSettings::default()
    })
    .await;
    let mut client = server.connect().await;
    assert!(client.get("/").await.ends_with("ok"));
    client.send("GET / HTTP/1.1\r\n").await;
    server.drain.begin();
    // Nothing can be awaited: it is that nothing happens that is asserted.
    tokio::time::sleep(last_call * 3).await;
    client.send("host: test\r\n\r\n").await;
    let answer = client.rest().await;
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.ends_with("ok"), "{answer}");
    server.ended().await;
}

/// Each client sends its next request as soon as it has an answer. All that was sent is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_clients_lose_no_request() {
    let server = Server::start(ListenSettings {
        last_call: Duration::from_secs(5),
        ..ListenSettings::default()
    })
    .await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        let mut client = server.connect().await;
        assert!(client.get("/").await.ends_with("ok"));
        clients.push(tokio::spawn(async move {
            loop {
                let answer = client.get("/").await;
                assert!(answer.ends_with("ok"), "{answer}");
                if answer.contains("connection: close") {
                    return client.rest().await;
                }
            }
        }));
    }
    server.drain.begin();
    for client in clients {
        assert_eq!(within(client).await.unwrap(), "");
    }
    server.ended().await;
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_at_the_deadline() {
    let server = Server::start(ListenSettings {
        drain_timeout: Duration::from_millis(300),
        ..ListenSettings::default()
    })
    .await;
    let mut http1 = server.connect().await;
    http1
        .send("GET /never HTTP/1.1\r\nhost: test\r\n\r\n")
        .await;
    within(server.has_begun.notified()).await;
    let mut http2 = http2_client(server.connect().await.stream).await;
    let answer = tokio::spawn(http2.send_request(request("/never")));
    within(server.has_begun.notified()).await;
    server.drain.begin();
    server.ended().await;
    assert_eq!(http1.rest().await, "");
    assert!(within(answer).await.unwrap().is_err());
}
