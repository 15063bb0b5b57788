//! Clients that take their time, and the limits on that.

use std::time::Duration;

use tidegate_listen::ListenSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::http::{http2_connection, request};
use super::server::Server;
use tidegate_testkit::within;

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_mins(10);

fn hasty_about_heads() -> ListenSettings {
    ListenSettings {
        head_timeout: SHORT,
        idle_timeout: LONG,
        ..ListenSettings::default()
    }
}

#[tokio::test]
async fn a_client_that_drips_its_head_is_cut_at_its_first_request_and_at_a_later_one() {
    let server = Server::start(hasty_about_heads()).await;
    let mut first = server.connect().await;
    let mut later = server.connect().await;
    assert!(later.get("/").await.ends_with("ok"));
    for client in [&mut first, &mut later] {
        client.send("GET / HTTP/1.1\r\n").await;
        let (mut reads, mut writes) = client.stream.split();
        let drips = async {
            while writes.write_all(b"x: y\r\n").await.is_ok() {
                tokio::time::sleep(SHORT / 10).await;
            }
        };
        let cut = async {
            let mut rest = Vec::new();
            let _ = reads.read_to_end(&mut rest).await;
            assert!(rest.is_empty(), "{rest:?}");
        };
        within(async { tokio::join!(drips, cut) }).await;
    }
}

#[tokio::test]
async fn a_client_that_says_nothing_or_half_of_http2_is_cut() {
    let server = Server::start(hasty_about_heads()).await;
    for opening in ["", "P", "PRI * HTTP/2.0\r\n"] {
        let mut client = server.connect().await;
        client.send(opening).await;
        assert_eq!(client.rest().await, "");
    }
}

#[tokio::test]
async fn an_idle_connection_outlives_the_time_for_a_head() {
    let server = Server::start(hasty_about_heads()).await;
    let mut client = server.connect().await;
    assert!(client.get("/").await.ends_with("ok"));
    // Nothing can be awaited: it is that nothing happens that is asserted.
    tokio::time::sleep(SHORT * 3).await;
    assert!(client.get("/").await.ends_with("ok"));
}

#[tokio::test]
async fn a_slow_answer_is_waited_for_whatever_else_was_sent() {
    let server = Server::start(ListenSettings {
        idle_timeout: SHORT,
        ..hasty_about_heads()
    })
    .await;
    let mut client = server.connect().await;
    client
        .send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n")
        .await;
    within(server.has_begun.notified()).await;
    client.send("GET / HTTP/1.1\r\n").await;
    tokio::time::sleep(SHORT * 3).await;
    server.release.notify_one();
    assert!(client.answer().await.ends_with("slow"));
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_the_end() {
    let server = Server::start(ListenSettings {
        head_timeout: SHORT,
        idle_timeout: SHORT,
        ..ListenSettings::default()
    })
    .await;
    let mut client = server.connect().await;
    assert!(client.get("/").await.ends_with("ok"));
    assert_eq!(client.rest().await, "");
    let (mut client, connection) = http2_connection(server.connect().await.stream).await;
    within(client.send_request(request("/"))).await.unwrap();
    within(connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed_when_its_time_is_over_whatever_the_time_for_a_head() {
    let server = Server::start(ListenSettings {
        head_timeout: LONG,
        idle_timeout: SHORT,
        ..ListenSettings::default()
    })
    .await;
    let mut client = server.connect().await;
    assert!(client.get("/").await.ends_with("ok"));
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_gone_in_the_end() {
    let server = Server::start(ListenSettings {
        max_connections: 1,
        idle_timeout: SHORT,
        ..ListenSettings::default()
    })
    .await;
    let mut stalled = server.connect().await;
    stalled
        .send("GET /large HTTP/1.1\r\nhost: test\r\n\r\n")
        .await;
    // There is room for another only when the first one is gone.
    let mut next = server.connect().await;
    assert!(next.get("/").await.ends_with("ok"));
    let mut byte = [0];
    assert!(stalled.stream.try_read(&mut byte).is_ok());
}

#[tokio::test]
async fn connections_over_the_cap_are_served_when_others_end() {
    let server = Server::start(ListenSettings {
        max_connections: 1,
        ..ListenSettings::default()
    })
    .await;
    let mut first = server.connect().await;
    assert!(first.get("/").await.ends_with("ok"));
    let mut second = server.connect().await;
    second.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert!(first.get("/").await.ends_with("ok"));
    drop(first);
    assert!(second.answer().await.ends_with("ok"));
}
