//! What a server does beside answering: follow its files, forget what is as good as new, settle.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::admin_token;
use crate::handle::Handle;
use crate::listen::{Tls, ended_connections};
use crate::rulebook::Reloaded;
use crate::run::log_warnings;
use crate::server::Server;
use crate::watch::Watch;

/// How often keys that are as good as new are looked for, for times without traffic.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// How often the store is told what was admitted without it, once it is back.
const SETTLE_EVERY: Duration = Duration::from_millis(100);

/// How often memory of connections that have ended is given back to the system, and for how many rounds after
/// the last of them: the allocator holds on to what is free for a second before it lets it go.
const RETURN_EVERY: Duration = Duration::from_secs(2);
const RETURN_ROUNDS: u32 = 3;

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
            let reload = move || {
                server.identity.reload();
                admin_token::reload(&server);
            };
            let _ = tokio::task::spawn_blocking(reload).await;
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

/// Gives memory of connections that have ended back to the system. The allocator does so only when it is asked
/// for much, or when a thread ends: a server that has become quiet does neither, so a thread is ended for it.
pub(crate) async fn return_memory() {
    let mut times = tokio::time::interval(RETURN_EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut rounds) = (ended_connections(), 0);
    loop {
        times.tick().await;
        let ended = ended_connections();
        if ended != before {
            (before, rounds) = (ended, RETURN_ROUNDS);
        }
        if rounds > 0 {
            rounds -= 1;
            let ending = std::thread::Builder::new().name("return-memory".to_owned());
            // Something is allocated, so that the thread has a part in it.
            let ending = ending.spawn(|| drop(std::hint::black_box(Box::new([0_u8; 64]))));
            if let Err(error) = ending {
                tracing::debug!(%error, "cannot start a thread");
            }
        }
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
