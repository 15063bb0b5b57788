//! The RESP front end: `CL.THROTTLE`, `TG.CHECK`, and what Redis clients say beside.
//!
//! `connection.rs` moves bytes, `arguments.rs` finds the commands in them, `session.rs` knows who
//! speaks and what a command is, `throttle.rs` and `check.rs` read and answer the two that decide,
//! `replies.rs` writes. A decision is made where its bytes were read; only where the store is
//! elsewhere are those that came together asked together, and answered in their order.

mod arguments;
mod check;
mod commands;
mod connection;
mod inline;
mod questions;
mod replies;
mod session;
mod throttle;

use std::sync::Arc;

use tidegate_listen::{Drain, ListenSettings, accept_all};
use tokio::net::TcpListener;

use crate::server::Server;

/// What is said when no one could decide, and that is to deny.
const UNDECIDED: &str = "the store cannot answer, so it is not known; try again in a second";

/// Serves connections until the drain begins, and then until those that are open have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    server: Arc<Server>,
    settings: ListenSettings,
    drain: Drain,
) {
    let connections = Arc::new(connection::RespConnections::new(
        server,
        &settings,
        drain.clone(),
    ));
    accept_all(listener, &settings, &drain, move |stream, peer| {
        let connections = Arc::clone(&connections);
        async move {
            if let Err(error) = connections.serve(stream).await {
                tracing::debug!(%peer, %error, "connection ended early");
            }
        }
    })
    .await;
}

/// What a client sent, as it can be shown in a message: short, and one line.
fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let more = if bytes.len() > SHOWN { "..." } else { "" };
    format!("{}{more}", shown.escape_ascii())
}
