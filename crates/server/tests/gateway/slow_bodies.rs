//! Clients that send the bodies of their requests as slowly as they can.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use crate::client::Client;
use crate::place::{Gateway, NO_RULES};
use crate::upstream::Upstream;

/// Between two bytes of a body.
const DRIP: Duration = Duration::from_millis(100);

/// A gateway that measures bodies over a second.
async fn gateway(upstream: &Upstream, settings: &str) -> Gateway {
    let settings = format!("upstream: http://{}\n{settings}", upstream.address);
    let folder = tempfile::tempdir().unwrap();
    Gateway::start_with(folder, &settings, NO_RULES, |gateway| {
        gateway.body_rate_window = Duration::from_secs(1);
    })
    .await
}

fn post(headers: &str) -> String {
    format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 30\r\n{headers}\r\n")
}

#[tokio::test]
async fn a_body_that_drips_is_408_and_the_server_is_let_go() {
    let mut upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "").await;
    let (client, mut server, _) = gateway.begin(&mut upstream, &post("")).await;
    let (reads, mut writes) = client.stream.into_split();
    let drips = tokio::spawn(async move {
        while writes.write_all(b"x").await.is_ok() {
            tokio::time::sleep(DRIP).await;
        }
    });
    let mut answer = Vec::new();
    let mut reads = reads;
    let reading = tokio::io::AsyncReadExt::read_to_end(&mut reads, &mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let came = server.rest().await;
    assert!(came.len() < 30, "{came:?}");
    drips.abort();
}

#[tokio::test]
async fn streams_of_grpc_and_bodies_without_a_rate_may_take_their_time() {
    for (settings, headers) in [
        ("", "content-type: application/grpc+proto\r\n"),
        ("body_min_rate: off\n", ""),
    ] {
        let mut upstream = Upstream::start().await;
        let gateway = gateway(&upstream, settings).await;
        let (client, mut server, _) = gateway.begin(&mut upstream, &post(headers)).await;
        let mut client: Client = client;
        for _ in 0..30 {
            client.send("x").await;
            tokio::time::sleep(DRIP).await;
        }
        assert_eq!(server.bytes(30).await.len(), 30);
        server.send_ok("ok").await;
        assert!(client.answer().await.ends_with("ok"));
    }
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_not_the_fault_of_the_client() {
    const LENGTH: usize = 24 << 20;
    let mut upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "body_min_rate: 1KiB/s\n").await;
    let request = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n");
    let (mut client, mut server, _) = gateway.begin(&mut upstream, &request).await;
    let sending = tokio::spawn(async move {
        client.send(&"x".repeat(LENGTH)).await;
        client
    });
    // Longer than the rate is measured over.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(server.bytes(LENGTH).await.len(), LENGTH);
    server.send_ok("ok").await;
    let mut client = sending.await.unwrap();
    assert!(client.answer().await.ends_with("ok"));
}
