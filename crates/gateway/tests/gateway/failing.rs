//! Servers that do not answer, and requests that are sent again.

use std::net::SocketAddr;
use std::time::Duration;

use crate::running::{Gateway, NO_RULES};
use crate::upstream::{Recorder, Upstream};
use tidegate_testkit::header;
use tidegate_testkit::within;

/// An address where no program listens.
async fn unused_address() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

fn status(answer: &str) -> &str {
    &answer["HTTP/1.1 ".len()..][..3]
}

#[tokio::test]
async fn a_server_that_is_away_is_502_and_soon_there_again() {
    let address = unused_address().await;
    let gateway = Gateway::before(address);
    for _ in 0..3 {
        let answer = gateway.get("/").await;
        assert!(["502", "503"].contains(&status(&answer)), "{answer}");
        assert_eq!(
            header(&answer, "content-type"),
            Some("application/problem+json")
        );
        assert!(!answer.contains(&address.port().to_string()), "{answer}");
    }
    let line = format!("tidegate_upstream_up{{upstream=\"http://{address}\"}}");
    assert_eq!(gateway.metric(&line).await, Some(0));
    let mut upstream = Upstream::start_at(address).await;
    let (mut client, mut server, _) = gateway
        .begin(
            &mut upstream,
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nab",
        )
        .await;
    server.send_ok("back").await;
    assert!(client.answer().await.ends_with("back"));
    assert_eq!(gateway.metric(&line).await, Some(1));
}

#[tokio::test]
async fn requests_go_to_the_servers_that_are_there() {
    // In this order: the recorder could be given the address that is to stay unused.
    let recorder = Recorder::start().await;
    let away = unused_address().await;
    let settings = format!(
        "routes: [{{upstreams: ['http://{away}', 'http://{}']}}]\n",
        recorder.address
    );
    let gateway = Gateway::start(&settings, NO_RULES);
    for method in ["GET", "POST", "GET", "POST", "GET", "POST"] {
        let answer = gateway
            .ask(&format!(
                "{method} / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
            ))
            .await;
        assert_eq!(status(&answer), "200", "{answer}");
    }
    let retries = gateway
        .metric(&format!(
            "tidegate_upstream_retries_total{{upstream=\"http://{away}\"}}"
        ))
        .await;
    assert!(
        retries.is_some_and(|count| (1..=3).contains(&count)),
        "{retries:?}"
    );
}

#[tokio::test]
async fn only_what_is_safe_is_sent_again() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    for (method, length, is_repeated) in [
        ("GET", 0, true),
        ("DELETE", 0, true),
        ("POST", 0, false),
        ("PUT", 2, false),
    ] {
        let mut client = gateway.connect().await;
        let body = "x".repeat(length);
        client
            .send(&format!(
                "{method} / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}"
            ))
            .await;
        let mut server = upstream.accept().await;
        server.head().await;
        server.bytes(length).await;
        drop(server);
        if is_repeated {
            let mut server = upstream.accept().await;
            assert!(server.head().await.starts_with(method));
            // It is not tried for ever.
            drop(server);
        }
        let answer = client.answer().await;
        assert_eq!(status(&answer), "502", "{method}: {answer}");
        assert!(upstream.is_unasked(), "{method}");
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_noticed() {
    let mut upstream = Upstream::start().await;
    let settings = format!(
        "routes: [{{upstreams: ['http://{}'], retries: 0}}]\n",
        upstream.address
    );
    let gateway = Gateway::start(&settings, NO_RULES);
    for _ in 0..20 {
        let (mut client, mut server, _) = gateway
            .begin(
                &mut upstream,
                "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
            )
            .await;
        server.send_ok("once").await;
        assert!(client.answer().await.ends_with("once"));
        drop(server);
    }
}

#[tokio::test]
async fn no_client_waits_for_ever() {
    let mut upstream = Upstream::start().await;
    let address = upstream.address;
    let gateway_with = |timeouts: &str| {
        let settings = format!("routes: [{{upstreams: ['http://{address}'], {timeouts}}}]\n");
        Gateway::start(&settings, NO_RULES)
    };
    // No head.
    let gateway = gateway_with("timeout: 300ms");
    let answer = gateway.get("/").await;
    assert_eq!(status(&answer), "504", "{answer}");
    let mut silent = upstream.accept().await;
    assert!(silent.rest().await.starts_with("GET / "));
    // No body from the client.
    let (mut client, mut server, _) = gateway
        .begin(
            &mut upstream,
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nab",
        )
        .await;
    let answer = client.rest().await;
    assert_eq!(status(&answer), "408", "{answer}");
    assert_eq!(server.rest().await, "ab");
    // No body.
    let gateway = gateway_with("timeout: 30s, idle_timeout: 300ms");
    let (mut client, mut server, _) = gateway
        .begin(&mut upstream, "GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    server
        .send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")
        .await;
    client.head().await;
    assert_eq!(client.rest().await, "ab");
    // A slow client that goes on sending is waited for.
    let gateway = gateway_with("timeout: 3s");
    let (mut client, mut server, _) = gateway
        .begin(
            &mut upstream,
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n",
        )
        .await;
    for letter in ["he", "l", "l", "o"] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.send(letter).await;
    }
    assert_eq!(server.bytes(5).await, b"hello");
    server.send_ok("ok").await;
    assert!(client.answer().await.ends_with("ok"));
}

#[tokio::test]
async fn answers_that_are_none_are_502() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    for nonsense in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
    ] {
        let (mut client, mut server, _) = gateway
            .begin(
                &mut upstream,
                "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
            )
            .await;
        server.send(nonsense).await;
        let answer = client.answer().await;
        assert_eq!(status(&answer), "502", "{nonsense:?}: {answer}");
    }
}

#[tokio::test]
async fn who_goes_away_is_not_worked_for() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (client, mut server, _) = gateway
        .begin(&mut upstream, "GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    drop(client);
    assert_eq!(server.rest().await, "");
    gateway.leaves_alone(&upstream).await;
}

#[tokio::test]
async fn servers_are_asked_whether_they_are_well() {
    let (mut sick, well) = (Upstream::start().await, Recorder::start().await);
    let settings = format!(
        "upstream_health: {{path: /up, interval: 20ms}}\nroutes: [{{upstreams: ['http://{}', 'http://{}']}}]\n",
        sick.address, well.address
    );
    let gateway = Gateway::start(&settings, NO_RULES);
    for _ in 0..2 {
        let mut server = sick.accept().await;
        let head = server.head().await;
        assert!(head.starts_with("GET /up HTTP/1.1"), "{head}");
        server
            .send("HTTP/1.1 500 Sick\r\ncontent-length: 0\r\n\r\n")
            .await;
    }
    let line = format!(
        "tidegate_upstream_up{{upstream=\"http://{}\"}}",
        sick.address
    );
    gateway.metric_is(&line, 0).await;
    for _ in 0..6 {
        assert_eq!(status(&gateway.get("/").await), "200");
    }
    within(async {
        loop {
            let mut server = sick.accept().await;
            server.head().await;
            server.send_ok("").await;
            if gateway.metric(&line).await == Some(1) {
                return;
            }
        }
    })
    .await;
}
