//! Tunnels of upgraded connections, such as WebSocket: bytes both ways, until one end closes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tidegate_listen::stall::copy_both_ways;
use tokio::time::sleep;

use crate::DrainGuard;
use crate::http1::Tunnel;

/// The server's end of an upgraded connection, as an extension of its 101 answer.
#[derive(Clone)]
pub(crate) struct ServerEnd {
    tunnel: Arc<Mutex<Option<Tunnel>>>,
    /// How long both sides may be silent.
    timeout: Duration,
}

impl ServerEnd {
    pub(crate) fn new(tunnel: Tunnel, timeout: Duration) -> Self {
        Self {
            tunnel: Arc::new(Mutex::new(Some(tunnel))),
            timeout,
        }
    }
}

/// Copies bytes both ways. Keeps `held` until the end.
pub(crate) async fn relay<H>(client: OnUpgrade, server: ServerEnd, guard: DrainGuard, held: H) {
    let ended = copy(client, server, guard).await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection with another protocol ended early");
    }
    drop(held);
}

async fn copy(client: OnUpgrade, server: ServerEnd, guard: DrainGuard) -> io::Result<()> {
    let ServerEnd { tunnel, timeout } = server;
    let Some(server) = tunnel.lock().take() else {
        return Ok(());
    };
    let changed = tokio::time::timeout(timeout, client).await?;
    let client = changed.map_err(io::Error::other)?;
    tokio::select! {
        copied = copy_both_ways(TokioIo::new(client), server, timeout) => copied,
        () = last_moment(&guard) => Err(io::Error::other("the server shuts down")),
    }
}

async fn last_moment(guard: &DrainGuard) {
    guard.drain.begun().await;
    sleep(guard.timeout).await;
}
