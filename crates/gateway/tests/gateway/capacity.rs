//! How many connections there are to servers, in all and for one client.

use crate::running::{Gateway, NO_RULES};
use crate::upstream::Upstream;
use tidegate_testkit::header;

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Refused, with what a client needs to know.
#[track_caller]
fn assert_refused(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(header(answer, "retry-after"), Some("1"));
    assert_eq!(
        header(answer, "content-type"),
        Some("application/problem+json")
    );
}

#[tokio::test]
async fn beyond_the_connections_of_one_client_is_503() {
    let mut upstream = Upstream::start().await;
    let settings = format!(
        "upstream: http://{}\nmax_upstream_connections_per_client: 2\n",
        upstream.address
    );
    let gateway = Gateway::start(&settings, NO_RULES);
    let (mut first, mut server, _) = gateway.begin(&mut upstream, GET).await;
    let (_second, _other, _) = gateway.begin(&mut upstream, GET).await;
    assert_refused(&gateway.ask(GET).await);
    assert!(upstream.is_unasked());
    // As many as before when an answer has ended.
    server.send_ok("ok").await;
    assert!(first.answer().await.ends_with("ok"));
    first.send(GET).await;
    server.head().await;
    server.send_ok("again").await;
    assert!(first.answer().await.ends_with("again"));
    let line = "tidegate_upstream_connections_refused_total{limit=\"client\"}";
    assert_eq!(gateway.metric(line).await, Some(1));
    let up = format!(
        "tidegate_upstream_up{{upstream=\"http://{}\"}}",
        upstream.address
    );
    assert_eq!(gateway.metric(&up).await, Some(1));
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_are_counted_by_their_own_addresses() {
    let mut upstream = Upstream::start().await;
    let settings = format!(
        "upstream: http://{}\nmax_upstream_connections_per_client: 1\ntrusted_proxies: [127.0.0.1]\n",
        upstream.address
    );
    let gateway = Gateway::start(&settings, NO_RULES);
    let from = |ip: &str| format!("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {ip}\r\n\r\n");
    let (_first, _server, _) = gateway.begin(&mut upstream, &from("1.2.3.4")).await;
    assert_refused(&gateway.ask(&from("1.2.3.4")).await);
    let (mut other, mut server, _) = gateway.begin(&mut upstream, &from("5.6.7.8")).await;
    server.send_ok("ok").await;
    assert!(other.answer().await.ends_with("ok"));
}

#[tokio::test]
async fn beyond_all_connections_is_503_and_those_that_wait_make_room() {
    let (mut one, mut other) = (Upstream::start().await, Upstream::start().await);
    let settings = format!(
        "routes:\n  - {{prefix: /other, upstreams: ['http://{}']}}\nupstream: http://{}\nmax_upstream_connections: 2\nmax_upstream_connections_per_client: 10\n",
        other.address, one.address
    );
    let gateway = Gateway::start(&settings, NO_RULES);
    let (mut first, mut server, _) = gateway.begin(&mut one, GET).await;
    let (_second, _busy, _) = gateway.begin(&mut one, GET).await;
    assert_refused(&gateway.ask(GET).await);
    server.send_ok("ok").await;
    assert!(first.answer().await.ends_with("ok"));
    // The connection that was used is kept, but not when another server needs one.
    let (mut third, mut elsewhere, _) = gateway
        .begin(&mut other, "GET /other HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    elsewhere.send_ok("there").await;
    assert!(third.answer().await.ends_with("there"));
    assert_eq!(server.rest().await, "");
    let line = "tidegate_upstream_connections_refused_total{limit=\"all\"}";
    assert_eq!(gateway.metric(line).await, Some(1));
    assert_eq!(
        gateway.metric("tidegate_upstream_connections").await,
        Some(2)
    );
}
