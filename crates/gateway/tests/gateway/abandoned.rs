//! Requests that hold a permit and whose client leaves: their permit is held until the server is done with them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::any;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use http::Request;
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_listen::clock::now;
use tidegate_testkit::{RawConnection, eventually, within};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::running::{Gateway, NO_RULES};
use crate::upstream::Upstream;

const LIMIT: usize = 5;
/// How long the server works on a request.
const WORK: Duration = Duration::from_millis(300);
const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const ONE: &str =
    "rules: [{id: jobs, per: [ip], limit: 1, algorithm: concurrency, lease_ttl: 2s}]\n";

/// A server that works on each request, whether its client is there or not.
#[derive(Default)]
struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

impl Busy {
    /// Starts one, for HTTP/1 and HTTP/2.
    async fn start() -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let busy = Arc::new(Self::default());
        let (before, after) = (Arc::clone(&busy), Arc::clone(&busy));
        let app = Router::new()
            .route("/", any(async move || before.work().await.unwrap()))
            // The head comes at once, and the body when the work is done.
            .route(
                "/{late}",
                any(async move |Path(late): Path<String>| {
                    let kind = match late.as_str() {
                        "events" => "text/event-stream; charset=utf-8",
                        _ => "text/plain",
                    };
                    let working = after.work();
                    let first = stream::iter([Ok::<_, axum::Error>(Bytes::from_static(b"a"))]);
                    let last = stream::once(async move {
                        working.await.unwrap();
                        Ok(Bytes::from_static(b"b"))
                    });
                    let body = Body::from_stream(first.chain(last));
                    ([("content-type", kind)], body)
                }),
            );
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        (busy, address)
    }

    fn work(self: &Arc<Self>) -> tokio::task::JoinHandle<()> {
        let busy = Arc::clone(self);
        tokio::spawn(async move {
            let now = 1 + busy.now.fetch_add(1, Ordering::Relaxed);
            busy.most.fetch_max(now, Ordering::Relaxed);
            busy.all.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(WORK).await;
            busy.now.fetch_sub(1, Ordering::Relaxed);
        })
    }
}

/// When a client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    WhileItSendsItsBody,
    BeforeTheHead,
    InTheMiddleOfTheAnswer,
    InTheMiddleOfAStreamOfEvents,
}

impl Leaves {
    fn path(self) -> &'static str {
        match self {
            Self::WhileItSendsItsBody | Self::BeforeTheHead => "/",
            Self::InTheMiddleOfTheAnswer => "/late",
            Self::InTheMiddleOfAStreamOfEvents => "/events",
        }
    }
}

const ALL: [Leaves; 4] = [
    Leaves::WhileItSendsItsBody,
    Leaves::BeforeTheHead,
    Leaves::InTheMiddleOfTheAnswer,
    Leaves::InTheMiddleOfAStreamOfEvents,
];

/// A request over HTTP/1 whose client leaves after 4 ms, or after the first bytes of the answer.
async fn leave_http1(address: SocketAddr, leaves: Leaves) {
    let mut client = RawConnection::to(address).await;
    let (path, has_body) = (leaves.path(), leaves == Leaves::WhileItSendsItsBody);
    let body = if has_body {
        "transfer-encoding: chunked\r\n\r\n1\r\nx\r\n"
    } else {
        "\r\n"
    };
    let request = format!("POST {path} HTTP/1.1\r\nhost: a\r\n{body}");
    client.send(&request).await;
    if path == "/" {
        tokio::time::sleep(Duration::from_millis(4)).await;
    } else {
        client.head().await;
    }
    client.stream.set_zero_linger().unwrap();
}

/// The same over HTTP/2: the stream is reset.
async fn leave_http2(address: SocketAddr, leaves: Leaves) {
    let stream = within(TcpStream::connect(address)).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = within(handshake).await.unwrap();
    let driving = tokio::spawn(connection);
    let path = leaves.path();
    let body = if leaves == Leaves::WhileItSendsItsBody {
        let first = Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")));
        let start = stream::iter([first]);
        Either::Left(StreamBody::new(start.chain(stream::pending())))
    } else {
        Either::Right(Full::<Bytes>::default())
    };
    let asking = client.send_request(Request::post(format!("http://a{path}")).body(body).unwrap());
    if path == "/" {
        let _ = tokio::time::timeout(Duration::from_millis(4), asking).await;
    } else {
        let mut answer = within(asking).await.unwrap();
        if answer.status() == 200 {
            within(answer.body_mut().frame()).await.unwrap().unwrap();
        }
    }
    // The reset is sent before the connection ends.
    tokio::time::sleep(Duration::from_millis(2)).await;
    driving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_hang_up_do_not_escape_a_concurrency_limit() {
    let rules = format!("rules: [{{id: jobs, per: [ip], limit: {LIMIT}, algorithm: concurrency}}]");
    let escape = async |scheme: &str, is_http2: bool, leaves: Leaves| {
        let (busy, address) = Busy::start().await;
        let gateway = Gateway::start(&format!("upstream: {scheme}://{address}\n"), &rules);
        for _ in 0..60 {
            if is_http2 {
                leave_http2(gateway.address, leaves).await;
            } else {
                leave_http1(gateway.address, leaves).await;
            }
        }
        // Before the permit was held, some thirty.
        let [most, all] = [&busy.most, &busy.all].map(|count| count.load(Ordering::Relaxed));
        assert!(
            most <= LIMIT && all >= LIMIT,
            "{scheme} {is_http2} {leaves:?}: {most} of {all}"
        );
        gateway.metric_is("tidegate_leases", 0).await;
        gateway.metric_is("tidegate_background_requests", 0).await;
        assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
    };
    let mut escapes = Vec::new();
    for scheme in ["http", "h2c"] {
        for is_http2 in [false, true] {
            escapes.extend(ALL.map(|leaves| escape(scheme, is_http2, leaves)));
        }
    }
    join_all(escapes).await;
}

#[tokio::test]
async fn an_answer_without_its_client_is_read_to_its_end() {
    let mut upstream = Upstream::start().await;
    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start(&settings, ONE);
    let (mut client, mut server, _) = gateway.begin(&mut upstream, GET).await;
    server
        .send("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
        .await;
    client.head().await;
    drop(client);
    gateway.metric_is("tidegate_background_requests", 1).await;
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 429 "));
    server.send("cd").await;
    gateway.metric_is("tidegate_background_requests", 0).await;
    gateway.metric_is("tidegate_leases", 0).await;
    // The connection is used again.
    let mut client = gateway.connect().await;
    client.send(GET).await;
    assert!(server.head().await.starts_with("GET / "));
    server.send_ok("ok").await;
    assert!(client.answer().await.ends_with("ok"));
}

#[tokio::test]
async fn a_request_without_a_permit_ends_with_its_client() {
    let mut upstream = Upstream::start().await;
    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start(&settings, NO_RULES);
    let (client, mut server, _) = gateway.begin(&mut upstream, GET).await;
    drop(client);
    assert_eq!(server.rest().await, "");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_after_the_timeout() {
    let mut upstream = Upstream::start().await;
    let settings = format!(
        "routes: [{{upstreams: ['http://{}'], timeout: 200ms}}]\n",
        upstream.address
    );
    let gateway = Gateway::start(&settings, ONE);
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab"] {
        let (mut client, mut server, _) = gateway.begin(&mut upstream, GET).await;
        server.send(answer).await;
        if !answer.is_empty() {
            client.head().await;
        }
        drop(client);
        assert_eq!(server.rest().await, "");
        gateway.metric_is("tidegate_leases", 0).await;
    }
}

#[tokio::test]
async fn beyond_the_bound_the_connection_is_closed_and_the_permit_lasts() {
    let mut upstream = Upstream::start().await;
    let settings = format!(
        "upstream: http://{}\nmax_background_requests: 0\n",
        upstream.address
    );
    let gateway = Gateway::start(&settings, ONE);
    let (client, mut server, _) = gateway.begin(&mut upstream, GET).await;
    let left = now();
    drop(client);
    assert_eq!(server.rest().await, "");
    gateway
        .metric_is("tidegate_background_requests_refused_total", 1)
        .await;
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 429 "));
    let is_free = async || {
        let mut client = gateway.connect().await;
        client.send(GET).await;
        tokio::select! {
            _ = client.head() => false,
            _ = upstream.accept() => true,
        }
    };
    eventually("a free permit", is_free).await;
    assert!(
        left.elapsed() > Duration::from_secs(1),
        "{:?}",
        left.elapsed()
    );
}

#[tokio::test]
async fn a_shutdown_waits_for_requests_without_a_client() {
    let mut upstream = Upstream::start().await;
    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start(&settings, ONE);
    let (client, mut server, _) = gateway.begin(&mut upstream, GET).await;
    drop(client);
    gateway.metric_is("tidegate_background_requests", 1).await;
    gateway.begin_to_drain();
    let began = now();
    let answering = tokio::spawn(async move {
        tokio::time::sleep(WORK).await;
        server.send_ok("ok").await;
    });
    gateway.ended().await;
    assert!(began.elapsed() >= WORK, "{:?}", began.elapsed());
    answering.await.unwrap();
}

#[tokio::test]
async fn a_stream_without_its_client_is_read_until_the_timeout() {
    let mut upstream = Upstream::start().await;
    let settings = format!(
        "routes: [{{upstreams: ['http://{}'], timeout: 4s}}]\n",
        upstream.address
    );
    let gateway = Gateway::start(&settings, ONE);
    for kind in ["text/event-stream", "application/grpc"] {
        let (mut client, mut server, _) = gateway.begin(&mut upstream, GET).await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\ndata: 1\n\n");
        server.send(&head).await;
        client.head().await;
        let left = now();
        drop(client);
        gateway.metric_is("tidegate_background_requests", 1).await;
        server.send("data: 2\n\n").await;
        assert!(gateway.get("/").await.starts_with("HTTP/1.1 429 "));
        assert_eq!(server.rest().await, "");
        assert!(left.elapsed() >= Duration::from_secs(4), "{kind}");
        gateway.metric_is("tidegate_leases", 0).await;
    }
}

#[tokio::test]
async fn a_long_answer_without_its_client_is_cut_and_its_permit_lasts() {
    let mut upstream = Upstream::start().await;
    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start(&settings, ONE);
    let (mut client, mut server, _) = gateway.begin(&mut upstream, GET).await;
    server
        .send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\nab")
        .await;
    client.head().await;
    let left = now();
    drop(client);
    let (mut reads, mut writes) = server.stream.split();
    let piece = vec![b'x'; 1 << 20];
    let mut sent = 0;
    let closed = async {
        let mut byte = [0];
        let _ = tokio::io::AsyncReadExt::read(&mut reads, &mut byte).await;
    };
    let writing = async {
        while writes.write_all(&piece).await.is_ok() {
            sent += piece.len();
        }
    };
    within(async {
        tokio::select! { () = closed => {}, () = writing => {} }
    })
    .await;
    assert!((16 << 20..64 << 20).contains(&sent), "{sent}");
    drop(server);
    gateway.metric_is("tidegate_background_requests", 0).await;
    gateway.metric_is("tidegate_leases", 0).await;
    assert!(
        left.elapsed() > Duration::from_secs(1),
        "{:?}",
        left.elapsed()
    );
}

/// A client and a server that speak WebSocket.
async fn open_tunnel(gateway: &Gateway, upstream: &mut Upstream) -> (RawConnection, RawConnection) {
    let asks = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let (mut client, mut server, _) = gateway.begin(upstream, asks).await;
    server
        .send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        )
        .await;
    client.head().await;
    (client, server)
}

#[tokio::test]
async fn a_client_that_breaks_its_tunnel_holds_its_permit_until_the_server_closes() {
    let mut upstream = Upstream::start().await;
    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start(&settings, ONE);
    let (client, mut server) = open_tunnel(&gateway, &mut upstream).await;
    client.stream.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(server.rest().await, "");
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 429 "));
    drop(server);
    gateway.metric_is("tidegate_leases", 0).await;
}

#[tokio::test]
async fn a_permit_of_a_broken_tunnel_lasts_if_the_server_does_not_close() {
    let mut upstream = Upstream::start().await;
    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start(&settings, ONE);
    let (client, mut server) = open_tunnel(&gateway, &mut upstream).await;
    let left = now();
    client.stream.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(server.rest().await, "");
    gateway.metric_is("tidegate_leases", 0).await;
    // The gateway gives the server five seconds; the permit lasts for two more.
    assert!(
        left.elapsed() > Duration::from_secs(6),
        "{:?}",
        left.elapsed()
    );
}
