//! The accept loop: one task per connection, and the drain.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::budget::ConnectionPermit;
use crate::connection::HttpConnections;
use crate::listener::Listener;
use crate::service::Handler;
use crate::{Drain, ListenSettings, Peer};

/// The pause after a failed accept: doubled each time, until one succeeds.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often a connection of this process has freed its memory.
static FREED: AtomicU64 = AtomicU64::new(0);

/// How often connections of this process have freed their memory, over all listeners: at their end, and when they
/// were idle for [`rest_after`](ListenSettings::rest_after).
pub fn freed_connections() -> u64 {
    FREED.load(Ordering::Relaxed)
}

pub(crate) fn note_freed() {
    FREED.fetch_add(1, Ordering::Relaxed);
}

/// Serves connections until the drain begins and the open ones have ended. `service` answers each request, and
/// gets the peer of its connection.
///
/// No error ends it. When the drain begins, connections in the kernel's queue are still accepted and served, and
/// then the port is closed. HTTP/1 connections end with their next answer or the
/// [last call](ListenSettings::last_call), HTTP/2 connections when their requests are answered, and the rest is
/// closed after [`drain_timeout`](ListenSettings::drain_timeout). Dropping the future closes all connections
/// immediately.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// use tidegate_listen::{Drain, ListenSettings, Peer, serve};
/// use tower::ServiceExt as _;
///
/// let router = axum::Router::new();
/// let service = move |request, _: Peer| router.clone().oneshot(request);
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// let drain = Drain::new();
/// serve(listener, service, ListenSettings::default(), drain).await;
/// # Ok(())
/// # }
/// ```
pub async fn serve<S: Handler>(
    listener: TcpListener,
    service: S,
    settings: ListenSettings,
    drain: Drain,
) {
    let http = Arc::new(HttpConnections::new(settings.clone(), drain.clone()));
    accept_all(listener, &settings, &drain, move |stream, address| {
        let http = Arc::clone(&http);
        let service = service.clone();
        async move {
            if let Err(error) = http.serve(stream, Peer::from(address), service).await {
                tracing::debug!(peer = %address, %error, "connection ended early");
            }
        }
    })
    .await;
}

/// Like [`serve`], but `worker` provides the runtime and the service of each connection.
pub async fn serve_on<S: Handler>(
    listener: impl Into<Listener>,
    settings: ListenSettings,
    drain: Drain,
    worker: impl Fn() -> (Handle, S),
) {
    let http = Arc::new(HttpConnections::new(settings.clone(), drain.clone()));
    accept_all(listener, &settings, &drain, move |stream, address| {
        let (runtime, service) = worker();
        let http = Arc::clone(&http);
        hand_over(&runtime, stream, move |stream| async move {
            if let Err(error) = http.serve(stream, Peer::from(address), service).await {
                tracing::debug!(peer = %address, %error, "connection ended early");
            }
        })
    })
    .await;
}

/// Serves a connection as a task of another runtime. The task is aborted when the returned future is dropped.
pub fn hand_over<S, F>(
    runtime: &Handle,
    stream: TcpStream,
    serve: S,
) -> impl Future<Output = ()> + Send + use<S, F>
where
    S: FnOnce(TcpStream) -> F + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let stream = stream.into_std();
    RemoteTask(runtime.spawn(async move {
        // A socket must be registered with the runtime that reads it.
        match stream.and_then(TcpStream::from_std) {
            Ok(stream) => serve(stream).await,
            Err(error) => tracing::warn!(%error, "cannot hand a connection over"),
        }
    }))
}

/// A task on another runtime, aborted when dropped.
struct RemoteTask(JoinHandle<()>);

impl Future for RemoteTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(note_panic)
    }
}

impl Drop for RemoteTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Accepts connections until the drain begins, and waits for the open ones. Each runs the future that `open`
/// returns as a task.
pub async fn accept_all<F>(
    listener: impl Into<Listener>,
    settings: &ListenSettings,
    drain: &Drain,
    open: impl Fn(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = listener.into();
    let mut connections = JoinSet::new();
    while let Some(accepted) = next(&listener, settings, drain, &mut connections).await {
        let (stream, address, permit) = accepted;
        let serving = open(stream, address);
        connections.spawn(async move {
            serving.await;
            drop(permit);
        });
    }
    for (stream, address) in backlog(listener) {
        connections.spawn(open(stream, address));
    }
    let ended = async {
        while let Some(ended) = connections.join_next().await {
            note_end(ended);
        }
    };
    if timeout(settings.drain_timeout, ended).await.is_err() {
        let left = connections.len();
        tracing::warn!(connections = left, "cut connections that were still busy");
    }
}

/// A connection, and its part of the budget.
type Accepted = (TcpStream, SocketAddr, Option<ConnectionPermit>);

/// The next connection, or `None` when the drain has begun. Meanwhile frees the memory of ended tasks.
async fn next(
    listener: &Listener,
    settings: &ListenSettings,
    drain: &Drain,
    connections: &mut JoinSet<()>,
) -> Option<Accepted> {
    let mut accept = pin!(async {
        let permit = match &settings.budget {
            Some(budget) => budget.permit().await,
            None => None,
        };
        let (stream, address) = accept(listener).await;
        (stream, address, permit)
    });
    let mut begun = pin!(drain.begun());
    loop {
        let has_room = connections.len() < settings.max_connections.max(1);
        tokio::select! {
            biased;
            () = &mut begun => return None,
            Some(ended) = connections.join_next(), if !connections.is_empty() => note_end(ended),
            accepted = &mut accept, if has_room => return Some(accepted),
        }
    }
}

/// Accepts a connection, with retries.
async fn accept(listener: &Listener) -> (TcpStream, SocketAddr) {
    let mut pause = FIRST_PAUSE;
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_the_client(&error) => {
                tracing::debug!(%error, "a connection was gone before it was accepted");
            }
            // For example no file descriptor left: the connection stays in the queue, and an
            // immediate retry would fail too.
            Err(error) => {
                let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(%error, pause_ms, "cannot accept connections");
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
            }
        }
    }
}

/// Accepts the connections in the kernel's queue: they would be reset when the port closes. Their number is
/// bounded by the kernel.
fn backlog(listener: Listener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    let listener = listener.into_waiting().inspect_err(|error| {
        tracing::warn!(%error, "cannot look for waiting connections");
    });
    std::iter::from_fn(move || {
        let listener = listener.as_ref().ok()?;
        loop {
            match listener.accept() {
                Ok(accepted) => return Some(accepted),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept the connections that wait");
                    return None;
                }
            }
        }
    })
}

/// Whether an error of accept concerns one client only.
fn is_of_the_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn note_end(ended: Result<(), JoinError>) {
    note_freed();
    note_panic(ended);
}

fn note_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task failed");
    }
}
