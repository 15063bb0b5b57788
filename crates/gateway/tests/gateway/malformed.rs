//! Answers of a server that are not as HTTP wants them: the client gets 502, and nothing of them.

use crate::running::Gateway;
use crate::upstream::Upstream;

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// What a client gets when the server sends this.
async fn answer_to(request: &str, sent: &str) -> String {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway.begin(&mut upstream, request).await;
    server.send(sent).await;
    client.head().await
}

#[tokio::test]
async fn an_answer_to_head_with_a_length_that_is_no_number_is_502() {
    for length in ["-5", "5, 5", "+5", "0x5", "five", ""] {
        let sent = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        let answer = answer_to("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", &sent).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{length:?}: {answer}");
    }
    let sent = "HTTP/1.1 304 Not Modified\r\ncontent-length: -5\r\n\r\n";
    let answer = answer_to(GET, sent).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn an_answer_whose_first_chunk_is_malformed_is_502() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for chunk in [
        "zz\r\nhello\r\n",
        "-5\r\nhello\r\n",
        "5\nhello\n",
        "\r\n",
        "5 5\r\nhello",
    ] {
        let answer = answer_to(GET, &format!("{head}{chunk}")).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{chunk:?}: {answer}");
    }
}

#[tokio::test]
async fn a_first_chunk_that_comes_in_pieces_is_waited_for() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    for (last, status) in [("\r\nhello\r\n0\r\n\r\n", "200"), ("x\r\nhello", "502")] {
        let (mut client, mut server, _) = gateway.begin(&mut upstream, GET).await;
        server
            .send("HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n5")
            .await;
        server.send(last).await;
        let answer = client.head().await;
        assert_eq!(&answer[9..12], status, "{last:?}: {answer}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_later_ends_after_what_came_before() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway.begin(&mut upstream, GET).await;
    server
        .send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(client.rest().await, "5\r\nhello\r\n");
}

#[tokio::test]
async fn a_head_of_more_than_256_kib_is_502() {
    let sent = format!(
        "HTTP/1.1 200 OK\r\na: {}\r\ncontent-length: 0\r\n\r\n",
        "b".repeat(300_000)
    );
    let answer = answer_to(GET, &sent).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer:.100}");
    let sent = format!(
        "HTTP/1.1 200 OK\r\na: {}\r\ncontent-length: 0\r\n\r\n",
        "b".repeat(200_000)
    );
    let answer = answer_to(GET, &sent).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:.100}");
}
