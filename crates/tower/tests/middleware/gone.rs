//! Clients that go away, over a real connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Router, serve};
use http_body_util::channel::Channel;
use tidegate::{Attributes, Gate};
use tidegate_tower::RateLimitLayer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::gate;

const RULES: &str = "
- {id: places, match: {path: /stream}, per: [ip], missing: deny, limit: 1, algorithm: concurrency}
- {id: shaped, match: {path: /shaped}, per: [], limit: 1/hour burst 5, algorithm: leaky_bucket, shape: true}";

/// A server on a free port; it ends with the test.
async fn start(gate: &Arc<Gate>) -> (SocketAddr, JoinHandle<()>) {
    let layer = RateLimitLayer::new(Arc::clone(gate)).peer_address(|request| {
        let peer = request.extensions.get::<ConnectInfo<SocketAddr>>()?;
        Some(peer.0.ip())
    });
    let endless = async || {
        let (mut sender, body) = Channel::<Bytes>::new(1);
        tokio::spawn(async move {
            while sender.send_data(Bytes::from_static(b"more")).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Body::new(body)
    };
    let app = Router::new()
        .route("/stream", get(endless))
        .route("/shaped", get(async || "served"))
        .layer(layer)
        .into_make_service_with_connect_info::<SocketAddr>();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { serve(listener, app).await.unwrap() });
    (address, server)
}

async fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn status(stream: &mut TcpStream) -> String {
    let mut line = [0; 12];
    stream.read_exact(&mut line).await.unwrap();
    String::from_utf8_lossy(&line[9..]).into_owned()
}

/// Waits until so much is left of the limit on a path.
async fn until_left(gate: &Gate, path: &str, expected: u64) {
    let mut attributes = Attributes::new().with_cost(0);
    attributes.insert("path", path).unwrap();
    attributes.insert("ip", "127.0.0.1").unwrap();
    let waiting = async {
        loop {
            let decision = gate.decide(&attributes).await;
            if decision.headline().unwrap().outcome.remaining == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let soon = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    soon.unwrap_or_else(|_| panic!("{path} never had {expected} left"));
}

#[tokio::test]
async fn a_stream_holds_its_place_until_the_client_goes() {
    let gate = gate(RULES);
    let (address, server) = start(&gate).await;
    let mut first = ask(address, "/stream").await;
    assert_eq!(status(&mut first).await, "200");
    assert_eq!(status(&mut ask(address, "/stream").await).await, "429");
    drop(first);
    until_left(&gate, "/stream", 1).await;
    assert_eq!(status(&mut ask(address, "/stream").await).await, "200");
    server.abort();
}

#[tokio::test]
async fn a_client_that_goes_while_it_waits_is_given_back() {
    let gate = gate(RULES);
    let (address, server) = start(&gate).await;
    assert_eq!(status(&mut ask(address, "/shaped").await).await, "200");
    until_left(&gate, "/shaped", 4).await;
    let waiting = ask(address, "/shaped").await;
    until_left(&gate, "/shaped", 3).await;
    drop(waiting);
    until_left(&gate, "/shaped", 4).await;
    server.abort();
}
