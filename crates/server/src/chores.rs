//! What a server does in the background besides [`Gate::maintain`](tidegate::Gate::maintain): follow its
//! files, return memory, write counters.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Store as _;
use tidegate_listen::{Tls, ended_connections};
use tokio::time::MissedTickBehavior;

use crate::admin_token;
use crate::handle::Handle;
use crate::rulebook::Reloaded;
use crate::server::Server;
use crate::token_files;
use crate::watch::Watch;

/// How often memory of connections that have ended is given back to the system, and for how many rounds after
/// the last of them: the allocator holds on to what is free for a second before it lets it go.
const RETURN_EVERY: Duration = Duration::from_secs(2);
const RETURN_ROUNDS: u32 = 3;

/// Reads the rule file again when it changes, and all files when the program says so. A file that lacks
/// rules that are in force may be half written: it counts once it has not changed for a while.
pub(crate) async fn follow_rules(
    server: Arc<Server>,
    mut watch: Option<Watch>,
    certificates: Vec<Tls>,
    handle: Handle,
) {
    let mut is_held = false;
    loop {
        let (is_asked, may_go) = tokio::select! {
            news = news(&mut watch, is_held) => match news {
                News::Changed => (false, false),
                News::Rested => (false, true),
                News::Unsettled => {
                    is_held = false;
                    continue;
                }
            },
            () = handle.reloads() => (true, look_now(&mut watch).await),
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
                token_files::reload(&server.access, |_| true);
            };
            let _ = tokio::task::spawn_blocking(reload).await;
        }
        // Given up only when the program ends.
        let reloading = tokio::task::spawn_blocking(move || reload(&server, may_go));
        is_held = reloading.await.unwrap_or(false);
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

/// What is new about the rule file.
enum News {
    /// It should be read.
    Changed,
    /// It has not changed for a while since it was read.
    Rested,
    /// It changes again, before that.
    Unsettled,
}

/// What is new about the file: that it changed, or of one that is held, whether it rests.
async fn news(watch: &mut Option<Watch>, is_held: bool) -> News {
    let Some(watch) = watch else {
        return std::future::pending().await;
    };
    if !is_held {
        watch.changed().await;
        return News::Changed;
    }
    if watch.rested().await {
        News::Rested
    } else {
        News::Unsettled
    }
}

/// Whether the file has not changed for a while, as of now.
async fn look_now(watch: &mut Option<Watch>) -> bool {
    match watch {
        Some(watch) => {
            watch.look_now().await;
            watch.has_rested()
        }
        None => true,
    }
}

/// Whether the file waits to be read again, because it lacks rules that may not go yet.
fn reload(server: &Server, may_go: bool) -> bool {
    match server.book.reload(&server.gate, may_go) {
        Ok(Reloaded::Held { removed }) => {
            tracing::info!(
                missing = removed.join(", "),
                "the file of the rules lacks rules that are in force; it is read again once it has not changed for 1.5 s"
            );
            return true;
        }
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
            removed,
            problems,
        }) => {
            if !removed.is_empty() {
                tracing::warn!(
                    removed = removed.join(", "),
                    "the file of the rules has these no longer, so they are not in force any more"
                );
            }
            tracing::info!(
                version,
                changes = changes.join(", "),
                "the rules were reloaded"
            );
            server.book.log_warnings(&problems);
        }
        Err(error) => tracing::error!("the rules stay as they were: {}", error.brief()),
    }
    false
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

/// Writes the counters of the in-memory store at their interval, for as long as the server runs.
pub(crate) async fn keep_counters(server: Arc<Server>) {
    let Some(kept) = &server.counters else {
        return;
    };
    let mut pause = kept.pause_after(Duration::ZERO);
    loop {
        tokio::time::sleep(pause).await;
        pause = kept.pause_after(write_counters(&server).await);
    }
}

/// Writes the counters if they have changed, and waits until that is done. How long it took.
pub(crate) async fn write_counters(server: &Arc<Server>) -> Duration {
    let server = Arc::clone(server);
    let writing = tokio::task::spawn_blocking(move || {
        let kept = server.counters.as_ref()?;
        let store = server.gate.store().memory()?;
        Some(kept.write(store))
    });
    writing.await.ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate::MemoryStore;
    use tidegate::rules::RuleSettings;

    use super::*;
    use crate::config::{Config, Outside};
    use crate::rulebook::RuleBook;
    use crate::store::AnyStore;

    const ONE: &str = "rules:\n- {id: a, per: [], limit: 1/s}\n";
    const TWO: &str = "rules:\n- {id: a, per: [], limit: 1/s}\n- {id: b, per: [], limit: 1/s}\n";
    const THREE: &str = "rules:\n- {id: a, per: [], limit: 1/s}\n- {id: b, per: [], limit: 1/s}\n- {id: c, per: [], limit: 1/s}\n";

    fn server(file: &Path) -> Arc<Server> {
        let outside = Outside {
            environment: &|_| None,
            variables: Vec::new(),
            flags: Vec::new(),
        };
        let config = Config::load(&outside).unwrap();
        let settings = RuleSettings::default();
        let (book, rules, _) = RuleBook::of_file(file.to_path_buf(), settings).unwrap();
        let store = AnyStore::Memory(MemoryStore::new());
        Arc::new(Server::new(&config, store, book, rules))
    }

    async fn after(millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_cut_at_a_rule_for_a_moment_removes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.yaml");
        std::fs::write(&file, TWO).unwrap();
        let watch = Watch::new(&file);
        let server = server(&file);
        let handle = Handle::new();
        let following = follow_rules(Arc::clone(&server), Some(watch), Vec::new(), handle.clone());
        let following = tokio::spawn(following);
        let count = || server.gate.rules().len();

        // Cut for a second, and asked to read it meanwhile.
        for ask in [false, true] {
            std::fs::write(&file, ONE).unwrap();
            after(500).await;
            if ask {
                handle.reload();
            }
            after(500).await;
            assert_eq!(count(), 2);
            std::fs::write(&file, TWO).unwrap();
            after(5_000).await;
            assert_eq!(count(), 2);
        }
        assert_eq!(
            server.book.version(),
            1,
            "no other rules were ever in force"
        );

        // What only adds rules does not wait.
        std::fs::write(&file, THREE).unwrap();
        after(750).await;
        assert_eq!(count(), 3);

        // What stays as it is counts, within two seconds.
        std::fs::write(&file, ONE).unwrap();
        after(1_250).await;
        assert_eq!(count(), 3);
        after(750).await;
        assert_eq!(count(), 1);
        following.abort();
    }
}
