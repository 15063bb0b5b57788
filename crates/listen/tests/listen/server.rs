//! A server on a free port.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Extension, Router};
use tidegate_listen::{Drain, ListenSettings, Peer, serve};
use tidegate_testkit::{RawConnection, within};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

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
                get(|Extension(peer): Extension<Peer>| async move { format!("{}", peer.address) }),
            )
            .route("/echo", post(|body: String| async move { body }))
            .route(
                "/refuse",
                post(|| async { http::StatusCode::PAYLOAD_TOO_LARGE }),
            )
            .route("/large", get(|| async { "x".repeat(64 << 20) }))
            .route("/slow", get(slow))
            .route("/never", get(never));
        let service = move |mut request: http::Request<hyper::body::Incoming>, peer: Peer| {
            request.extensions_mut().insert(peer);
            router.clone().oneshot(request)
        };
        let task = tokio::spawn(serve(listener, service, settings, drain.clone()));
        Self {
            address,
            drain,
            has_begun,
            release,
            task,
        }
    }

    pub(crate) async fn connect(&self) -> RawConnection {
        RawConnection::to(self.address).await
    }

    /// Waits for `serve` to return.
    pub(crate) async fn ended(self) {
        within(self.task).await.unwrap();
    }
}
