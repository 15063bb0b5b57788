//! What a server behind the gateway sees of a request, and a client of the answer.

use crate::running::{Gateway, NO_RULES};
use crate::upstream::{Recorder, Upstream};
use tidegate_testkit::header;
use tidegate_testkit::within;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn paths_go_on_as_they_were_matched() {
    let recorder = Recorder::start().await;
    let gateway = Gateway::before(recorder.address);
    for (sent, seen) in [
        ("/", "/"),
        ("/a?b=/../c&d=%2f;x", "/a?b=/../c&d=%2f;x"),
        ("/a/../admin?q", "/admin?q"),
        ("/%2e%2e/admin", "/admin"),
        ("//a///b/", "/a/b/"),
        ("/a;x=1/b", "/a/b"),
        ("/%61dmin", "/admin"),
        ("/caf%c3%a9%20%2c", "/caf%c3%a9%20%2c"),
        ("http://test/absolute", "/absolute"),
        ("http://test", "/"),
    ] {
        let answer = gateway.get(sent).await;
        let expected = format!("\r\n\r\nGET {seen} HTTP/1.1\r\n");
        assert!(answer.contains(&expected), "{sent}: {answer}");
    }
    let settings = format!(
        "upstream: http://{}\nencoded_slashes: keep\n",
        recorder.address
    );
    let gateway = Gateway::start(&settings, NO_RULES);
    let answer = gateway.get("/a%2f..%2fb/../c%2Fd").await;
    assert!(answer.contains("GET /c%2Fd HTTP/1.1\r\n"), "{answer}");
}

#[tokio::test]
async fn a_token_for_tidegate_is_not_passed_on_in_any_spelling() {
    let recorder = Recorder::start().await;
    let gateway = Gateway::before(recorder.address);
    let request = "GET / HTTP/1.1\r\nhost: a\r\nX-Tidegate-Token: s1\r\nX_Tidegate_Token: s2\r\nx-tidegate_token: s3\r\n\r\n";
    let answer = gateway.ask(request).await;
    assert!(answer.contains("GET / HTTP/1.1\r\n"), "{answer}");
    assert!(
        !answer.to_ascii_lowercase().contains("tidegate"),
        "{answer}"
    );
}

#[tokio::test]
async fn headers_of_one_leg_stay_and_the_client_is_named() {
    let recorder = Recorder::start().await;
    let gateway = Gateway::before(recorder.address);
    let request = "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: keep-alive, x-forwarded-for, x-hop, forwarded\r\n\
        X-Hop: 1\r\nKeep-Alive: 5\r\nTE: gzip, trailers\r\nProxy-Authorization: x\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\
        X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\nForwarded: for=1.2.3.4\r\nX-Real-IP: 1.2.3.4\r\n\
        X-Kept: 1\r\nX-Kept: 2\r\nAccept: */*\r\n\r\n";
    let answer = gateway.ask(request).await;
    let (_, seen) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = seen.trim_end().lines().collect();
    // It is another one for each request.
    let id = lines.extract_if(.., |line| line.starts_with("x-request-id: "));
    assert_eq!(id.count(), 1);
    lines.sort_unstable();
    let expected = [
        "GET / HTTP/1.1",
        "accept: */*",
        "forwarded: for=127.0.0.1;host=api.example.com;proto=http",
        "host: api.example.com",
        "te: trailers",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: api.example.com",
        "x-forwarded-proto: http",
        "x-kept: 1",
        "x-kept: 2",
    ];
    assert_eq!(lines, expected);

    let settings = format!(
        "upstream: http://{}\ntrusted_proxies: [127.0.0.0/8]\n",
        recorder.address
    );
    let gateway = Gateway::start(&settings, NO_RULES);
    let answer = gateway.ask("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 1.2.3.4\r\nx-forwarded-proto: https\r\n\r\n").await;
    let (_, seen) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(header(seen, "x-forwarded-for"), Some("1.2.3.4, 127.0.0.1"));
    assert_eq!(header(seen, "x-forwarded-proto"), Some("https"));
    assert_eq!(
        header(seen, "forwarded"),
        Some("for=1.2.3.4, for=127.0.0.1;host=a;proto=http")
    );
}

#[tokio::test]
async fn answers_come_without_what_is_for_one_leg_and_connections_are_used_again() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway
        .begin(&mut upstream, "HEAD /head HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\nkeep-alive: timeout=5\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\nx-kept: 1\r\n\r\n").await;
    let head = client.head().await;
    assert_eq!(header(&head, "content-length"), Some("1000"));
    assert_eq!(header(&head, "x-kept"), Some("1"));
    assert!(
        header(&head, "x-hop").is_none() && header(&head, "keep-alive").is_none(),
        "{head}"
    );
    for (status, body) in [
        ("204 No Content", ""),
        ("304 Not Modified", ""),
        ("200 OK", "ok"),
        ("500 Oops", "no"),
    ] {
        client.send("GET /next HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(server.head().await.starts_with("GET /next "));
        let length = match body {
            "" => String::new(),
            body => format!("content-length: {}\r\n", body.len()),
        };
        server
            .send(&format!("HTTP/1.1 {status}\r\n{length}\r\n{body}"))
            .await;
        let answer = client.answer().await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {}", &status[..3])),
            "{answer}"
        );
        assert!(answer.ends_with(body), "{answer}");
    }
    // Early hints are for those who ask for them; what follows is the answer.
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    server.head().await;
    server
        .send("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
        .await;
    server.send_ok("after").await;
    assert!(client.answer().await.ends_with("after"));
    assert!(upstream.is_unasked());
}

#[tokio::test]
async fn bodies_are_streamed_both_ways_while_they_come() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let mut client = gateway.connect().await;
    for method in ["POST", "GET"] {
        client
            .send(&format!(
                "{method} / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n"
            ))
            .await;
        let mut server = upstream.accept().await;
        assert!(
            server
                .head()
                .await
                .contains("\r\ntransfer-encoding: chunked\r\n")
        );
        assert_eq!(server.bytes(8).await, b"3\r\none\r\n");
        server
            .send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n")
            .await;
        assert!(client.head().await.contains("transfer-encoding: chunked"));
        assert_eq!(client.text(7).await, "2\r\nab\r\n");
        client.send("3\r\ntwo\r\n").await;
        assert_eq!(server.bytes(8).await, b"3\r\ntwo\r\n");
        client.send("0\r\n\r\n").await;
        assert_eq!(server.bytes(5).await, b"0\r\n\r\n");
        server.send("0\r\n\r\n").await;
        assert_eq!(client.text(5).await, "0\r\n\r\n");
        // The next one shall have a connection of its own.
        drop(server);
    }
}

#[tokio::test]
async fn a_client_gets_100_continue_when_its_body_is_read() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let mut client = gateway.connect().await;
    client
        .send("PUT / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
        .await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello").await;
    let mut server = upstream.accept().await;
    assert!(!server.head().await.contains("expect"));
    assert_eq!(server.bytes(5).await, b"hello");
    server.send_ok("done").await;
    assert!(client.answer().await.ends_with("done"));
}

#[tokio::test]
async fn a_slow_reader_slows_the_server_down_and_fills_no_memory() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let (mut client, mut server, _) = gateway
        .begin(&mut upstream, "GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    let length = 256 << 20;
    server
        .send(&format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"
        ))
        .await;
    client.head().await;
    let piece = vec![b'x'; 1 << 20];
    let mut sent = 0;
    // What fits into sockets and one buffer goes through; then it has to wait.
    while sent < length {
        let sending = server.stream.write(&piece);
        match tokio::time::timeout(std::time::Duration::from_millis(500), sending).await {
            Ok(written) => sent += written.unwrap(),
            Err(_) => break,
        }
    }
    assert!(sent < length / 2, "{sent} bytes were taken in");
    drop(client);
    within(async { while server.stream.write(&piece).await.is_ok() {} }).await;
}

#[tokio::test]
async fn routes_choose_by_host_and_prefix() {
    let (one, other) = (Recorder::start().await, Recorder::start().await);
    let settings = format!(
        "routes:\n  - {{host: api.example.com, prefix: /v1, upstreams: ['http://{}'], strip_prefix: true, host_header: upstream}}\n  \
         - {{prefix: /static, upstreams: ['http://{}']}}\n",
        one.address, other.address
    );
    let gateway = Gateway::start(&settings, NO_RULES);
    let ask = async |host: &str, path: &str| {
        gateway
            .ask(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"))
            .await
    };
    let answer = ask("API.example.com:80", "/v1/users?x=1").await;
    assert!(answer.contains("GET /users?x=1 HTTP/1.1"), "{answer}");
    assert!(
        answer.contains(&format!("\r\nhost: {}\r\n", one.address)),
        "{answer}"
    );
    assert!(
        answer.contains("x-forwarded-host: API.example.com:80"),
        "{answer}"
    );
    assert!(
        ask("api.example.com", "/v1")
            .await
            .contains("GET / HTTP/1.1")
    );
    assert!(
        ask("api.example.com", "/x/../%761/a")
            .await
            .contains("GET /a HTTP/1.1")
    );
    assert!(
        ask("b", "/static/a")
            .await
            .contains("GET /static/a HTTP/1.1")
    );
    for (host, path) in [
        ("b", "/v1/users"),
        ("api.example.com", "/v10"),
        ("b", "/statics"),
    ] {
        let answer = ask(host, path).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        assert_eq!(
            header(&answer, "content-type"),
            Some("application/problem+json")
        );
    }
}

#[tokio::test]
async fn a_server_of_another_time_makes_no_difference_to_the_client() {
    let mut upstream = Upstream::start().await;
    let gateway = Gateway::before(upstream.address);
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut server = upstream.accept().await;
        server.head().await;
        server
            .send("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .await;
        let answer = client.answer().await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
