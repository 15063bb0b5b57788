//! What a server does beside answering: follow its files, forget what is as good as new, settle.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::handle::Handle;
use crate::listen::Tls;
use crate::rulebook::Reloaded;
use crate::run::log_warnings;
use crate::server::Server;
use crate::watch::Watch;

/// How often keys that are as good as new are looked for, for times without traffic.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// How often the store is told what was admitted without it, once it is back.
const SETTLE_EVERY: Duration = Duration::from_millis(100);

/// Reads the rule file again when it changes, and all files when the program says so.
pub(crate) async fn follow_rules(
    server: Arc<Server>,
    mut watch: Option<Watch>,
    certificates: Vec<Tls>,
    handle: Handle,
) {
    loop {
        let is_asked = tokio::select! {
            () = changed(&mut watch) => false,
            () = handle.reloads() => true,
        };
        for tls in certificates.iter().filter(|_| is_asked) {
            match tls.reload() {
                Ok(()) => tracing::info!("the certificate was read again"),
                Err(error) => tracing::error!("the certificate stays as it was: {error}"),
            }
        }
        let server = Arc::clone(&server);
        if is_asked {
            let server = Arc::clone(&server);
            let _ = tokio::task::spawn_blocking(move || server.identity.reload()).await;
        }
        // Given up only when the program ends.
        let _ = tokio::task::spawn_blocking(move || reload(&server)).await;
    }
}

/// Reads what is known of clients again when one of its files changes.
pub(crate) async fn follow_clients(server: Arc<Server>, watches: Vec<Watch>) {
    let following = watches.into_iter().map(|mut watch| {
        let server = Arc::clone(&server);
        async move {
            loop {
                watch.changed().await;
                let server = Arc::clone(&server);
                let _ = tokio::task::spawn_blocking(move || server.identity.reload()).await;
            }
        }
    });
    futures_util::future::join_all(following).await;
}

async fn changed(watch: &mut Option<Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

fn reload(server: &Server) {
    match server.book.reload(&server.gate) {
        Ok(Reloaded::Unchanged { was_stale: false }) => {
            tracing::debug!("the rules are the same as before");
        }
        Ok(Reloaded::Unchanged { was_stale: true }) => {
            tracing::info!("the file of the rules can be used again, and says the same as before");
        }
        Ok(Reloaded::NothingToRead) => {
            tracing::info!("the rules do not come from a file, so there is nothing to read again");
        }
        Ok(Reloaded::Changed {
            version,
            changes,
            problems,
        }) => {
            tracing::info!(
                version,
                changes = changes.join(", "),
                "the rules were reloaded"
            );
            log_warnings(&server.book, &problems);
        }
        Err(error) => tracing::error!("the rules stay as they were: {}", error.brief()),
    }
}

pub(crate) async fn sweep(server: Arc<Server>) {
    let mut times = tokio::time::interval(SWEEP_EVERY);
    loop {
        times.tick().await;
        let server = Arc::clone(&server);
        let sweeping = move || {
            server.gate.store().inner().sweep();
            server.gate.sweep();
        };
        let _ = tokio::task::spawn_blocking(sweeping).await;
    }
}

pub(crate) async fn settle(server: Arc<Server>) {
    let mut times = tokio::time::interval(SETTLE_EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        server.gate.settle_back().await;
    }
}
