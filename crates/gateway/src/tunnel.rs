//! Tunnels of upgraded connections, such as WebSocket: bytes both ways, until one end closes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tidegate_listen::stall::copy_both_ways;
use tidegate_tower::RequestPermit;
use tokio::time::sleep;

use crate::DrainGuard;
use crate::http1::{Tunnel, close};

/// How long a server may take to close a connection that the gateway has closed.
const CLOSING: Duration = Duration::from_secs(5);

/// The server's end of an upgraded connection, as an extension of its 101 answer.
#[derive(Clone)]
pub(crate) struct ServerEnd {
    tunnel: Arc<Mutex<Option<Tunnel>>>,
    /// How long both sides may be silent.
    timeout: Duration,
    /// The permit that the request holds.
    permit: Option<RequestPermit>,
}

impl ServerEnd {
    pub(crate) fn new(tunnel: Tunnel, timeout: Duration, permit: Option<RequestPermit>) -> Self {
        Self {
            tunnel: Arc::new(Mutex::new(Some(tunnel))),
            timeout,
            permit,
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
    let ServerEnd {
        tunnel,
        timeout,
        permit,
    } = server;
    let Some(mut server) = tunnel.lock().take() else {
        return Ok(());
    };
    let copying = async {
        let changed = tokio::time::timeout(timeout, client).await?;
        let client = changed.map_err(io::Error::other)?;
        copy_both_ways(TokioIo::new(client), &mut server, timeout).await
    };
    let copied = tokio::select! {
        copied = copying => copied,
        () = last_moment(&guard) => return Err(io::Error::other("the server shuts down")),
    };
    // A client that broke off does not free its permit before the server has noticed.
    if copied.is_err()
        && let Some(permit) = permit
        && let Err(_) = tokio::time::timeout(CLOSING, close(&mut server)).await
    {
        permit.leave();
    }
    copied
}

async fn last_moment(guard: &DrainGuard) {
    guard.drain.begun().await;
    sleep(guard.timeout).await;
}
