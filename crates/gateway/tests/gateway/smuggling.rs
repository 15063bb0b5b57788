//! Requests that two servers could read in two ways are refused, and nothing of them is passed on.

use crate::running::Gateway;
use crate::upstream::Recorder;
use tidegate_testkit::header;

const EVIL: &str = "GET /evil HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test]
async fn what_can_be_read_in_two_ways_is_refused_and_the_connection_closed() {
    let recorder = Recorder::start().await;
    let gateway = Gateway::before(recorder.address);
    #[rustfmt::skip]
    let table = [
        ("both lengths",            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("both, the other way",     "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n"),
        ("two lengths",             "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nabcd"),
        ("two equal lengths",       "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ncontent-length: 4\r\n\r\nabcd"),
        ("a list of lengths",       "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4, 4\r\n\r\nabcd"),
        ("a length with a sign",    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +4\r\n\r\nabcd"),
        ("a length in hexadecimal", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0x4\r\n\r\nabcd"),
        ("a length below zero",     "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -4\r\n\r\nabcd"),
        ("another coding",          "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\nabcd"),
        ("two codings",             "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        ("chunked and another",     "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        ("chunked twice",           "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("a coding with a tab",     "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n"),
        ("a coding in HTTP/1.0",    "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("a folded header",         "GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n folded\r\n\r\n"),
        ("a bare newline",          "GET / HTTP/1.1\r\nhost: a\r\nx: 1\ny: 2\r\n\r\n"),
        ("bare newlines at the end", "GET / HTTP/1.1\r\nhost: a\n\n"),
        ("a bare newline first",    "GET / HTTP/1.1\nhost: a\r\n\r\n"),
        ("a bare return",           "GET / HTTP/1.1\r\nhost: a\r\nx: 1\ry: 2\r\n\r\n"),
        ("a zero byte",             "GET / HTTP/1.1\r\nhost: a\r\nx: 1\0\r\n\r\n"),
        ("a zero byte in a name",   "GET / HTTP/1.1\r\nhost: a\r\nx\0: 1\r\n\r\n"),
        ("a space before a colon",  "POST / HTTP/1.1\r\nhost: a\r\ncontent-length : 4\r\n\r\nabcd"),
        ("a space before a name",   "GET / HTTP/1.1\r\n host: a\r\n\r\n"),
        ("a header without a name", "GET / HTTP/1.1\r\nhost: a\r\n: 1\r\n\r\n"),
        ("a line without a colon",  "GET / HTTP/1.1\r\nhost: a\r\nnonsense\r\n\r\n"),
        ("two spaces",              "GET  / HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("a space in the path",     "GET /a b HTTP/1.1\r\nhost: a\r\n\r\n"),
    ];
    for (name, request) in table {
        let mut client = gateway.connect().await;
        client.send(&format!("{request}{EVIL}")).await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{name}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{name}: {answer}");
    }
    assert_eq!(recorder.text(), "");
}

#[tokio::test]
async fn what_is_refused_by_what_it_says_is_not_passed_on() {
    let recorder = Recorder::start().await;
    let gateway = Gateway::before(recorder.address);
    #[rustfmt::skip]
    let table = [
        ("no host",                 "GET / HTTP/1.1\r\n\r\n"),
        ("an empty host",           "GET / HTTP/1.1\r\nhost:\r\n\r\n"),
        ("two hosts",               "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"),
        ("two equal hosts",         "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n"),
        ("a host with a path",      "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n"),
        ("a host with a user",      "GET / HTTP/1.1\r\nhost: a@b\r\n\r\n"),
        ("a list of hosts",         "GET / HTTP/1.1\r\nhost: a, b\r\n\r\n"),
        ("a port that is none",     "GET / HTTP/1.1\r\nhost: a:x\r\n\r\n"),
        ("a port with a letter",    "GET / HTTP/1.1\r\nhost: a:8x\r\n\r\n"),
        ("two ports",               "GET / HTTP/1.1\r\nhost: a:80:80\r\n\r\n"),
        ("an empty port",           "GET / HTTP/1.1\r\nhost: a:\r\n\r\n"),
        ("a host of dots",          "GET / HTTP/1.1\r\nhost: ..\r\n\r\n"),
        ("two dots at the end",     "GET / HTTP/1.1\r\nhost: a..\r\n\r\n"),
        ("an escape in a host",     "GET / HTTP/1.1\r\nhost: a%2eb\r\n\r\n"),
        ("a name in brackets",      "GET / HTTP/1.1\r\nhost: [a]\r\n\r\n"),
        ("an open bracket",         "GET / HTTP/1.1\r\nhost: [::1\r\n\r\n"),
        ("a bad port in the URI",   "GET http://a:x/ HTTP/1.1\r\nhost: a:x\r\n\r\n"),
        ("another host in the URI", "GET http://b/ HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("a user in the URI",       "GET http://u@a/ HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("an encoded slash",        "GET /a%2fb HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("an encoded slash above",  "GET /a%2F..%2Fadmin HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("an encoded backslash",    "GET /a%5cb HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("a backslash",             "GET /a\\..\\b HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("an encoded zero byte",    "GET /a%00 HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("half an escape",          "GET /a%2 HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("an escape of no text",    "GET /a%ff HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("all of the server",       "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n"),
    ];
    for (name, request) in table {
        let answer = gateway.ask(request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{name}: {answer}");
        assert_eq!(
            header(&answer, "content-type"),
            Some("application/problem+json"),
            "{name}"
        );
    }
    let connect = gateway
        .ask("CONNECT b:443 HTTP/1.1\r\nhost: b:443\r\n\r\n")
        .await;
    assert!(connect.starts_with("HTTP/1.1 405 "), "{connect}");
    assert_eq!(recorder.text(), "");
}

#[tokio::test]
async fn a_malformed_chunk_ends_the_request_on_both_sides() {
    for chunk in [
        "x\r\n",
        "5 \nhello\r\n",
        "5\nhello\r\n",
        "ffffffffffffffffff\r\n",
        "5\r\nhelloX\r\n",
        "-1\r\n",
    ] {
        let mut upstream = crate::upstream::Upstream::start().await;
        let gateway = Gateway::before(upstream.address);
        let mut client = gateway.connect().await;
        client
            .send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n")
            .await;
        let mut server = upstream.accept().await;
        assert!(server.head().await.contains("transfer-encoding: chunked"));
        client.send(&format!("{chunk}{EVIL}")).await;
        let received = server.rest().await;
        assert!(
            !received.contains("evil") && !received.contains("0\r\n\r\n"),
            "{received:?}"
        );
        let answer = client.rest().await;
        assert!(!answer.contains(" 200 "), "{chunk:?}: {answer}");
    }
}

#[tokio::test]
async fn pipelined_requests_are_each_looked_at() {
    let recorder = Recorder::start().await;
    let gateway = Gateway::before(recorder.address);
    let mut client = gateway.connect().await;
    client
        .send("POST /1 HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\nPOST /3 HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
        .await;
    let answers = client.rest().await;
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2, "{answers}");
    assert!(answers.contains("HTTP/1.1 400 "), "{answers}");
    let seen = recorder.text();
    assert!(
        seen.contains("POST /1 ") && seen.contains("GET /2 ") && !seen.contains("/3"),
        "{seen}"
    );
}
