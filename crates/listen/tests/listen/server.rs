//! A server on a free port, and a client that sees every byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::routing::{get, post};
use axum::{Extension, Router};
use tidegate_listen::{Drain, ListenSettings, Peer, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(20);

/// Fails where a test would hang.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future).await.expect("in time")
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) drain: Drain,
    /// Notified when a request to `/slow` or `/never` has begun.
    pub(crate) has_begun: Arc<Notify>,
    /// Ends a request to `/slow`.
    pub(crate) release: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(settings: ListenSettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let drain = Drain::new();
        let (has_begun, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = {
            let (has_begun, release) = (Arc::clone(&has_begun), Arc::clone(&release));
            move || async move {
                has_begun.notify_one();
                release.notified().await;
                "slow"
            }
        };
        let never = {
            let has_begun = Arc::clone(&has_begun);
            move || async move {
                has_begun.notify_one();
                std::future::pending::<&str>().await
            }
        };
        let router = Router::new()
            .route("/", get(|| async { "ok" }))
            .route(
                "/peer",
                get(|Extension(Peer(peer))| async move { format!("{peer}") }),
            )
            .route("/echo", post(|body: String| async move { body }))
            .route(
                "/refuse",
                post(|| async { http::StatusCode::PAYLOAD_TOO_LARGE }),
            )
            .route("/large", get(|| async { "x".repeat(64 << 20) }))
            .route("/slow", get(slow))
            .route("/never", get(never));
        let task = tokio::spawn(serve(listener, router, settings, drain.clone()));
        Self {
            address,
            drain,
            has_begun,
            release,
            task,
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client {
            stream: within(TcpStream::connect(self.address)).await.unwrap(),
        }
    }

    /// Waits for `serve` to return.
    pub(crate) async fn ended(self) {
        within(self.task).await.unwrap();
    }
}

/// Speaks HTTP/1 by hand.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) async fn send(&mut self, text: &str) {
        within(self.stream.write_all(text.as_bytes()))
            .await
            .unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
            .await;
        self.answer().await
    }

    /// One answer, head and body: every body here has a length.
    pub(crate) async fn answer(&mut self) -> String {
        within(self.try_answer()).await.expect("a whole answer")
    }

    pub(crate) async fn try_answer(&mut self) -> Option<String> {
        let mut answer = String::new();
        loop {
            let byte = self.stream.read_u8().await.ok()?;
            answer.push(char::from(byte));
            if let Some((head, body)) = answer.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "))
                    .map_or(0, |length| length.parse().unwrap());
                if body.len() == length {
                    return Some(answer);
                }
            }
        }
    }

    /// Reads to the end of the connection, which may come as a reset too.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        within(self.stream.read_to_end(&mut rest)).await.ok();
        String::from_utf8(rest).unwrap()
    }
}
