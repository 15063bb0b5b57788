//! The connections to a server: when one is used again, and what goes through it.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use crate::running::Gateway;
use crate::upstream::Upstream;
use tidegate_testkit::header;
use tidegate_testkit::within;

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test]
async fn a_connection_is_used_again_after_an_answer_that_has_an_end() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let mut client = gateway.connect().await;
    let mut kept = None;
    for (method, answer, seen) in [
        (
            "GET",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            "ok",
        ),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", ""),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
            "",
        ),
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", ""),
        (
            "GET",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "2\r\nok\r\n0\r\n\r\n",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx-sum: 7\r\n\r\n",
            "1\r\nx\r\n0\r\n\r\n",
        ),
        (
            "GET",
            "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
            "ok",
        ),
        ("GET", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ""),
    ] {
        client
            .send(&format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n"))
            .await;
        let mut server = match kept.take() {
            Some(server) => server,
            None => upstream.accept().await,
        };
        assert!(server.head().await.starts_with(method));
        server.send(answer).await;
        client.head().await;
        assert_eq!(client.text(seen.len()).await, seen, "{answer:?}");
        kept = Some(server);
    }
    assert!(upstream.is_unasked());
}

#[tokio::test]
async fn a_connection_that_cannot_be_trusted_is_not_used_again() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    for (answer, later) in [
        (
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
            "",
        ),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", ""),
        // More than was asked for, at once or later.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
            "",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        ),
    ] {
        let (mut client, mut server, _) = gateway.begin(&mut upstream, GET).await;
        server.send(answer).await;
        assert!(client.answer().await.ends_with("ok"), "{answer:?}");
        server.send(later).await;
        client.send(GET).await;
        let mut another = upstream.accept().await;
        another.head().await;
        another
            .send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\ngood")
            .await;
        assert!(client.answer().await.ends_with("good"), "{answer:?}");
    }
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway.begin(&mut upstream, GET).await;
    server.send("HTTP/1.1 200 OK\r\n\r\nall ").await;
    client.head().await;
    assert_eq!(client.text(9).await, "4\r\nall \r\n");
    server.send("of it").await;
    assert_eq!(client.text(10).await, "5\r\nof it\r\n");
    drop(server);
    assert_eq!(client.text(5).await, "0\r\n\r\n");
}

#[tokio::test]
async fn an_answer_that_has_begun_is_not_asked_for_twice() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    for begun in [
        "H",
        "HTTP/1.1 200 OK\r\ncontent-",
        "HTTP/1.1 103 Early Hints\r\n\r\n",
    ] {
        let (mut client, mut server, _) = gateway.begin(&mut upstream, GET).await;
        server.send(begun).await;
        drop(server);
        let answer = client.answer().await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{begun:?}: {answer}");
        assert!(upstream.is_unasked(), "{begun:?}");
    }
}

#[tokio::test]
async fn the_rest_of_a_request_is_sent_when_the_answer_has_begun() {
    const LENGTH: usize = 24 << 20;
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway
        .begin(
            &mut upstream,
            &format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n"),
        )
        .await;
    server
        .send("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        .await;
    client.head().await;
    // More than fits into the socket buffers, while the other end does not read.
    let (mut reading, mut writing) = client.stream.into_split();
    let sending = tokio::spawn(async move {
        let sent = writing.write_all(&vec![b'x'; LENGTH]).await;
        (sent, writing)
    });
    // Nothing can be awaited: the sending does not end.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!sending.is_finished());
    assert_eq!(server.bytes(LENGTH).await.len(), LENGTH);
    let (sent, _writing) = within(sending).await.unwrap();
    sent.unwrap();
    server.send("done").await;
    let mut answer = [0; 4];
    within(tokio::io::AsyncReadExt::read_exact(
        &mut reading,
        &mut answer,
    ))
    .await
    .unwrap();
    assert_eq!(&answer, b"done");
}

#[tokio::test]
async fn a_server_that_answers_before_it_has_read_all_is_believed() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway
        .begin(
            &mut upstream,
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nabc",
        )
        .await;
    assert_eq!(server.bytes(3).await, b"abc");
    server
        .send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig")
        .await;
    let answer = client.answer().await;
    assert!(
        answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("big"),
        "{answer}"
    );
    // Half of a request is in it: no other request gets this connection.
    assert_eq!(server.rest().await, "");
}

#[tokio::test]
async fn trailers_go_on_if_they_were_announced_and_may_be_trailers() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, head) = gateway.begin(&mut upstream, "POST / HTTP/1.1\r\nhost: a\r\ntrailer: x-sum, host\r\ntrailer: authorization\r\ntransfer-encoding: chunked\r\n\r\n\
             1\r\nx\r\n0\r\nx-sum: 7\r\nhost: b\r\nauthorization: c\r\nx-forwarded-for: 1.2.3.4\r\nx-other: d\r\ncontent-length: 9\r\n\r\n",).await;
    assert_eq!(header(&head, "trailer"), Some("x-sum"));
    assert_eq!(server.bytes(6).await, b"1\r\nx\r\n");
    assert_eq!(server.head().await, "0\r\nx-sum: 7\r\n\r\n");
    server.send_ok("ok").await;
    assert!(client.answer().await.ends_with("ok"));
}

#[tokio::test]
async fn trailers_named_like_identities_do_not_go_on() {
    let mut upstream = Upstream::start().await;
    let settings = format!(
        "upstream: http://{}\nidentify: {{api_key: [{{header: x-api-key}}]}}\n",
        upstream.address
    );
    let rules = "rules: [{id: team, per: [header.x-team], limit: 9/day}]\n";
    let gateway = Gateway::start(&settings, rules);
    let names = [
        "x-api-key",
        "x_api_key",
        "x.api~key",
        "X-Team",
        "x_team",
        "X.Team",
        "x-real-ip",
        "upgrade",
    ];
    let announced = names.join(", ");
    let sent = names.join(": 1\r\n");
    let request = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ntrailer: {announced}, x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
         1\r\nx\r\n0\r\n{sent}: 1\r\nx-sum: 7\r\n\r\n"
    );
    let (_client, mut server, head) = gateway.begin(&mut upstream, &request).await;
    assert_eq!(header(&head, "trailer"), Some("x-sum"));
    server.bytes(6).await;
    assert_eq!(server.head().await, "0\r\nx-sum: 7\r\n\r\n");
}

#[tokio::test]
async fn a_server_that_only_announces_is_given_up() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway.begin(&mut upstream, GET).await;
    server
        .send(&"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(200))
        .await;
    let answer = client.answer().await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn the_protocol_does_not_change_in_the_middle_of_a_request() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway.begin(&mut upstream, "POST / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 5\r\n\r\nab").await;
    assert_eq!(server.bytes(2).await, b"ab");
    server
        .send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        )
        .await;
    let answer = client.head().await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn the_length_of_a_body_is_sent_once_and_in_one_way() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    for (request, length) in [
        ("POST / HTTP/1.1\r\nhost: a\r\n\r\n", Some("0")),
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", None),
        (
            "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
            Some("0"),
        ),
        (
            "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 002\r\n\r\nab",
            Some("2"),
        ),
        ("GET http://a?x=1 HTTP/1.1\r\nhost: a\r\n\r\n", None),
    ] {
        let (mut client, mut server, head) = gateway.begin(&mut upstream, request).await;
        assert_eq!(header(&head, "content-length"), length, "{head}");
        let lines = head
            .lines()
            .filter(|line| line.starts_with("content-length"));
        assert!(lines.count() <= 1, "{head}");
        let path = if request.contains("?x") {
            " /?x=1 "
        } else {
            " / "
        };
        assert!(head.contains(path), "{head}");
        server
            .send("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
            .await;
        client.head().await;
    }
}
