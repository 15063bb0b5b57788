//! Connections that change their protocol.

use crate::running::{Gateway, NO_RULES};
use crate::upstream::Upstream;
use tidegate_testkit::header;

const ASKS: &str = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: k\r\n\r\n";

#[tokio::test]
async fn bytes_go_both_ways_after_an_upgrade_and_a_place_is_held_meanwhile() {
    let mut upstream = Upstream::start().await;
    let rules = "rules:\n  - {id: sockets, per: [], limit: 1, algorithm: concurrency}\n";
    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start(&settings, rules);
    let (mut client, mut server, head) = gateway.begin(&mut upstream, ASKS).await;
    assert_eq!(header(&head, "upgrade"), Some("websocket"));
    assert_eq!(header(&head, "connection"), Some("upgrade"));
    assert_eq!(header(&head, "sec-websocket-key"), Some("k"));
    server.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: s\r\n\r\nhi").await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(header(&head, "upgrade"), Some("websocket"));
    assert_eq!(header(&head, "connection"), Some("upgrade"));
    assert_eq!(client.text(2).await, "hi");
    // Nothing of it is read as HTTP.
    for text in [
        "\n\n\0POST",
        "GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ] {
        client.send(text).await;
        assert_eq!(server.bytes(text.len()).await, text.as_bytes());
        server.send(text).await;
        assert_eq!(client.text(text.len()).await, text);
    }
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 429 "));
    drop(client);
    assert_eq!(server.rest().await, "");
    drop(server);
    gateway.metric_is("tidegate_leases", 0).await;
    gateway.leaves_alone(&upstream).await;
}

#[tokio::test]
async fn an_upgrade_that_is_refused_is_an_answer_like_any_other() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway.begin(&mut upstream, ASKS).await;
    server.send_ok("no").await;
    assert!(client.answer().await.ends_with("no"));
    client
        .send("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n")
        .await;
    assert!(client.rest().await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn a_client_that_asked_for_no_tunnel_gets_none() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    for headers in [
        "",
        "upgrade: websocket\r\n",
        "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        // Only WebSocket is forwarded.
        "connection: upgrade\r\nupgrade: h2c/1.0\r\n",
        "connection: upgrade\r\nupgrade: \"h2c\"\r\n",
        "connection: upgrade\r\nupgrade: HTTP/2.0\r\n",
        "connection: upgrade\r\nupgrade: TLS/1.0\r\n",
        "connection: upgrade\r\nupgrade: websocket, TLS/1.0\r\n",
        "connection: upgrade\r\nupgrade: other\r\n",
    ] {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
        let (mut client, mut server, head) = gateway.begin(&mut upstream, &request).await;
        assert!(
            header(&head, "upgrade").is_none() && header(&head, "http2-settings").is_none(),
            "{head}"
        );
        server
            .send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
            .await;
        let answer = client.answer().await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
}

#[tokio::test]
async fn a_silent_tunnel_is_closed_and_so_is_one_at_the_end_of_the_server() {
    let mut upstream = Upstream::start().await;
    let settings = format!(
        "routes: [{{upstreams: ['http://{}'], idle_timeout: 50ms}}]\n",
        upstream.address
    );
    let gateway = Gateway::start(&settings, NO_RULES);
    let accepts =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let (mut client, mut server, _) = gateway.begin(&mut upstream, ASKS).await;
    server.send(accepts).await;
    client.head().await;
    assert_eq!(
        (client.rest().await.as_str(), server.rest().await.as_str()),
        ("", "")
    );

    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway.begin(&mut upstream, ASKS).await;
    server.send(accepts).await;
    client.head().await;
    gateway.begin_to_drain();
    client.send("still").await;
    assert_eq!(server.bytes(5).await, b"still");
    gateway.ended().await;
    assert_eq!(
        (client.rest().await.as_str(), server.rest().await.as_str()),
        ("", "")
    );
}

#[tokio::test]
async fn bytes_that_arrive_before_the_upgrade_are_bounded() {
    let mut upstream = Upstream::start().await;
    let rules = "rules:\n  - {id: sockets, per: [], limit: 1, algorithm: concurrency}\n";
    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start(&settings, rules);
    let (mut client, mut server, _) = gateway.begin(&mut upstream, &format!("{ASKS}x\n")).await;
    server
        .send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        )
        .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    // The connection is cut, and there is an end to what the server gets.
    let got = server.rest().await;
    assert!(got.len() <= 2, "{} bytes", got.len());
    drop(server);
    gateway.metric_is("tidegate_leases", 0).await;
}
