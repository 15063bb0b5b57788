//! Serves connections on threads of their own, each of which runs one runtime.
//!
//! A connection whose requests are many and short is best served where nobody else takes part of it
//! away: all that came together is answered before the answers are written, together.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::accept::accept_all;
use super::connection::Door;
use super::{Drain, ListenSettings, Peer};

/// The threads, until it is dropped.
struct Threads {
    runtimes: Vec<(Handle, oneshot::Sender<()>)>,
    next: AtomicUsize,
}

impl Threads {
    /// One for each core.
    fn start() -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, NonZero::get);
        let runtimes = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(Self {
            runtimes,
            next: AtomicUsize::new(0),
        })
    }

    /// They take turns.
    fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.runtimes[turn % self.runtimes.len()].0
    }
}

/// Starts a thread. It ends when the sender is dropped.
fn start(number: usize) -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (sender, stop) = oneshot::channel();
    std::thread::Builder::new()
        .name(format!("connections-{number}"))
        .spawn(move || {
            let _ = runtime.block_on(stop);
        })?;
    Ok((handle, sender))
}

/// Like [`serve`](super::serve), on a thread for each core. Connections are handed out in turns.
pub(crate) async fn serve_on_threads<S, B>(
    listener: TcpListener,
    service: S,
    settings: ListenSettings,
    drain: Drain,
) where
    S: tower::Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let threads = match Threads::start() {
        Ok(threads) => threads,
        Err(error) => {
            tracing::warn!(%error, "cannot start threads for connections, so they share those that are there");
            return super::serve(listener, service, settings, drain).await;
        }
    };
    let door = Arc::new(Door::new(settings.clone(), drain.clone()));
    accept_all(listener, &settings, &drain, |stream, address| {
        let (door, service) = (Arc::clone(&door), service.clone());
        // It is registered with the runtime that accepted it, and has to be with the one that serves it.
        let stream = stream.into_std();
        let serving = async move {
            let served = match stream.and_then(TcpStream::from_std) {
                Ok(stream) => door.serve(stream, Peer(address), service).await,
                Err(error) => {
                    tracing::debug!(peer = %address, %error, "connection ended early");
                    return;
                }
            };
            if let Err(error) = served {
                tracing::debug!(peer = %address, %error, "connection ended early");
            }
        };
        let elsewhere = Elsewhere(threads.next().spawn(serving));
        async move { elsewhere.ended().await }
    })
    .await;
}

/// A task on another thread, which ends with this.
struct Elsewhere(JoinHandle<()>);

impl Elsewhere {
    async fn ended(mut self) {
        if let Err(error) = (&mut self.0).await {
            tracing::error!(%error, "a connection's task failed");
        }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.abort();
    }
}
