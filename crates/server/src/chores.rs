//! The background tasks of a server besides [`Gate::maintain`](tidegate::Gate::maintain): follow its files, return
//! memory, write counters, remove what has ended.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Clock as _, Gate, SystemClock};
use tidegate_identity::Identity;
use tidegate_listen::freed_connections;
use tokio::time::MissedTickBehavior;

use crate::activity::ServerActivity;
use crate::admin::Admin;
use crate::admin_token;
use crate::handle::Handle;
use crate::open::last_good_stores;
use crate::overrides::ChangedBy;
use crate::rulebook::Reloaded;
use crate::store::ServerStore;
use crate::token_files;
use crate::watch::FileWatch;

/// How often memory of closed connections is returned to the system, and for how many rounds after the last
/// one closed: the allocator keeps free memory for a second.
const RETURN_EVERY: Duration = Duration::from_secs(2);
const RETURN_ROUNDS: u32 = 3;

/// How often temporary overrides that have ended are removed.
const REMOVE_EVERY: Duration = Duration::from_secs(30);

/// How often the history of activity is written.
const WRITE_EVERY: Duration = Duration::from_mins(1);

/// How often the memory for states is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reads the rule file again when it changes, and all files on reload. A file that lacks rules in force may be
/// half written: it is used once it has not changed for a while.
pub(crate) async fn follow_rules(admin: Arc<Admin>, mut watch: Option<FileWatch>, handle: Handle) {
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
        let admin = Arc::clone(&admin);
        if is_asked {
            let admin = Arc::clone(&admin);
            let reload = move || {
                for files in &*admin.certificates {
                    files.reload();
                }
                admin.decider.identity.reload();
                admin_token::reload(&admin);
                token_files::reload(&admin.decider.access, |_| true);
                if let Some(record) = &admin.record {
                    record.reopen();
                }
            };
            let _ = tokio::task::spawn_blocking(reload).await;
        }
        // Dropped only when the program ends.
        let reloading = tokio::task::spawn_blocking(move || reload(&admin, may_go));
        is_held = reloading.await.unwrap_or(false);
    }
}

/// Keeps the last good rules, those of the start and whenever they change, for a start without their source.
pub(crate) async fn keep_last_good(admin: Arc<Admin>) {
    let mut last_good = admin.book.last_good();
    let stores = last_good_stores(&admin.store, admin.data.as_ref());
    last_good.mark_changed();
    while last_good.changed().await.is_ok() {
        let kept = last_good.borrow_and_update().clone();
        if let Some(kept) = kept {
            stores.keep(&kept).await;
        }
    }
}

/// Reads the identity files again when one of them changes.
pub(crate) async fn follow_clients(identity: Arc<Identity>, watches: Vec<FileWatch>) {
    let following = watches.into_iter().map(|mut watch| {
        let identity = Arc::clone(&identity);
        async move {
            loop {
                watch.changed().await;
                let identity = Arc::clone(&identity);
                let _ = tokio::task::spawn_blocking(move || identity.reload()).await;
            }
        }
    });
    futures_util::future::join_all(following).await;
}

/// An event of the rule file.
enum News {
    /// It should be read.
    Changed,
    /// It has not changed for a while since it was last read.
    Rested,
    /// It changed again before that.
    Unsettled,
}

/// Waits for the next event: a change, or for a held file whether it settled.
async fn news(watch: &mut Option<FileWatch>, is_held: bool) -> News {
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

/// Whether the file has not changed for a while.
async fn look_now(watch: &mut Option<FileWatch>) -> bool {
    match watch {
        Some(watch) => {
            watch.look_now().await;
            watch.has_rested()
        }
        None => true,
    }
}

/// Whether the file is held back because it lacks rules that may not be removed yet.
fn reload(admin: &Admin, may_go: bool) -> bool {
    match admin.book.reload(&admin.gate, may_go) {
        Ok(Reloaded::Held { removed }) => {
            tracing::info!(
                missing = removed.join(", "),
                "the rule file lacks rules that are in force; it is read again once it has not changed for 1.5 s"
            );
            return true;
        }
        Ok(Reloaded::Unchanged { was_stale: false }) => {
            tracing::debug!("the rules are the same as before");
        }
        Ok(Reloaded::Unchanged { was_stale: true }) => {
            tracing::info!("the rule file is valid again; its rules are the same as before");
        }
        Ok(Reloaded::NothingToRead) => {
            tracing::info!("the rules do not come from a file, so there is nothing to reload");
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
                    "the rule file no longer has these rules, so they are not in force any more"
                );
            }
            tracing::info!(
                version,
                changes = changes.join(", "),
                "the rules were reloaded"
            );
            admin.book.log_warnings(&problems);
        }
        Err(error) => tracing::error!("the rules stay as they were: {}", error.logged()),
    }
    false
}

/// Returns memory of closed and resting connections to the system. The allocator does so only on a large allocation or
/// when a thread ends; an idle server does neither, so this ends a thread.
pub(crate) async fn return_memory() {
    let mut times = tokio::time::interval(RETURN_EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut rounds) = (freed_connections(), 0);
    loop {
        times.tick().await;
        let freed = freed_connections();
        if freed != before {
            (before, rounds) = (freed, RETURN_ROUNDS);
        }
        if rounds > 0 {
            rounds -= 1;
            let ending = std::thread::Builder::new().name("return-memory".to_owned());
            // An allocation gives the thread a heap of its own.
            let ending = ending.spawn(|| drop(std::hint::black_box(Box::new([0_u8; 64]))));
            if let Err(error) = ending {
                tracing::debug!(%error, "cannot start a thread");
            }
        }
    }
}

/// Reads the counters of rules into live activity at each full second.
pub(crate) async fn sample_activity(activity: Option<Arc<ServerActivity>>, gate: Arc<Gate>) {
    let Some(activity) = activity else {
        return;
    };
    loop {
        let micros = SystemClock.now().as_micros() % 1_000_000;
        tokio::time::sleep(Duration::from_micros(1_000_000 - micros)).await;
        let (activity, rules) = (Arc::clone(&activity), gate.rules());
        // With many rules it takes some milliseconds.
        let _ = tokio::task::spawn_blocking(move || activity.sample(&rules)).await;
    }
}

/// Removes temporary overrides that have ended, for as long as the server runs. Decisions go by their time.
pub(crate) async fn remove_ended_overrides(admin: Arc<Admin>) {
    loop {
        tokio::time::sleep(REMOVE_EVERY).await;
        let changed = ChangedBy {
            by: String::new(),
            at: SystemClock.now(),
            version: admin.book.version(),
        };
        let removing = admin.overrides.remove_ended(&admin.gate, &changed);
        if let Err(error) = removing.await {
            tracing::debug!(%error, "temporary overrides that have ended could not be removed");
        }
    }
}

/// Warns once, when nine tenths of the memory for states are used.
pub(crate) async fn watch_memory(store: ServerStore) {
    let Some(store) = store.memory() else {
        return;
    };
    loop {
        let stats = store.stats();
        if stats.memory >= stats.max_memory / 10 * 9 {
            tracing::warn!(
                used = stats.memory,
                max_memory = stats.max_memory,
                "nine tenths of the memory for counters and permits are used; beyond it, counters are evicted and new permits are answered with 503: raise `max_memory`"
            );
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Publishes live activity in Redis, if there is one.
pub(crate) async fn publish_activity(activity: Option<Arc<ServerActivity>>, store: ServerStore) {
    if let (Some(activity), Some(redis)) = (activity, store.redis()) {
        activity.keep_publishing(redis.clone()).await;
    }
}

/// Writes the history of activity once a minute.
pub(crate) async fn keep_history(activity: Option<Arc<ServerActivity>>, gate: Arc<Gate>) {
    while activity.is_some() {
        tokio::time::sleep(WRITE_EVERY).await;
        write_history(activity.clone(), &gate).await;
    }
}

/// Writes the history of activity, and waits until that is done.
pub(crate) async fn write_history(activity: Option<Arc<ServerActivity>>, gate: &Gate) {
    if let Some(activity) = activity {
        let rules = gate.rules();
        let _ = tokio::task::spawn_blocking(move || activity.write_history(&rules)).await;
    }
}

/// Writes the counters of the in-memory store at their interval, for as long as the server runs.
pub(crate) async fn keep_counters(admin: Arc<Admin>) {
    let Some(kept) = &admin.counters else {
        return;
    };
    let mut pause = kept.pause_after(Duration::ZERO);
    loop {
        tokio::time::sleep(pause).await;
        pause = kept.pause_after(write_counters(&admin).await);
    }
}

/// Writes the counters if they have changed, and waits until that is done. Returns how long it took.
pub(crate) async fn write_counters(admin: &Arc<Admin>) -> Duration {
    let admin = Arc::clone(admin);
    let writing = tokio::task::spawn_blocking(move || {
        let kept = admin.counters.as_ref()?;
        let store = admin.store.memory()?;
        Some(kept.write(store))
    });
    writing.await.ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate::rules::{RuleSettings, ValueDigest};

    use super::*;
    use crate::admin::Opened;
    use crate::body_memory::BodyMemory;
    use crate::config::{Config, Overrides, RulePath};
    use crate::rulebook::RuleBook;
    use crate::telemetry::ExchangeSinks;

    const ONE: &str = "rules:\n- {id: a, per: [], limit: 1/s}\n";
    const TWO: &str = "rules:\n- {id: a, per: [], limit: 1/s}\n- {id: b, per: [], limit: 1/s}\n";
    const THREE: &str = "rules:\n- {id: a, per: [], limit: 1/s}\n- {id: b, per: [], limit: 1/s}\n- {id: c, per: [], limit: 1/s}\n";

    fn admin(file: &Path) -> Arc<Admin> {
        let overrides = Overrides {
            environment: &|_| None,
            variables: Vec::new(),
            flags: Vec::new(),
        };
        let config = Config::load(&overrides).unwrap();
        let settings = RuleSettings::default();
        let path = RulePath {
            path: file.to_path_buf(),
            ignore_dot_files: false,
            is_lenient: false,
        };
        let (book, rules, _) = RuleBook::of_file(path, settings).unwrap();
        let opened = Opened {
            store: ServerStore::Memory(Arc::default()),
            book: Arc::new(book),
            rules,
            digest: Arc::new(ValueDigest::new(b"")),
            record: None,
            identity: Arc::default(),
            bodies: BodyMemory::of(config.body_memory),
            gateway: None,
            data: None,
            counters: None,
            certificates: Vec::new(),
            sinks: ExchangeSinks::default(),
            otlp: None,
        };
        Arc::new(Admin::new(&config, opened))
    }

    async fn after(millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_cut_at_a_rule_for_a_moment_removes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.yaml");
        std::fs::write(&file, TWO).unwrap();
        let watch = FileWatch::new(&file);
        let admin = admin(&file);
        let handle = Handle::new();
        let following = follow_rules(Arc::clone(&admin), Some(watch), handle.clone());
        let following = tokio::spawn(following);
        let count = || admin.gate.rules().len();

        // Cut for a second, and reloaded meanwhile.
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
        assert_eq!(admin.book.version(), 1, "no other rules were ever in force");

        // A change that only adds rules does not wait.
        std::fs::write(&file, THREE).unwrap();
        after(750).await;
        assert_eq!(count(), 3);

        // A file that stays as it is is used within two seconds.
        std::fs::write(&file, ONE).unwrap();
        after(1_250).await;
        assert_eq!(count(), 3);
        after(750).await;
        assert_eq!(count(), 1);
        following.abort();
    }
}
