//! Keys of tokens that are fetched from their issuer: at the start, at intervals, and when a token names an unknown
//! key. The last good set stays in force, and is stored in the data directory for a start without the issuer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_listen::TlsError;
use tokio::sync::{Notify, watch};

use crate::fetch::Fetcher;
use crate::kept_files::KeptFiles;
use crate::keys::Keys;
use crate::tokens::Tokens;

/// The file in the data directory.
const FILE: &str = "jwks.json";
/// The consequence if it cannot be used, for the log.
const LOST: &str = "the keys of tokens are not known until they are fetched";
/// How often a set is fetched whose server gives no cache lifetime.
const EVERY: Duration = Duration::from_mins(10);
const SHORTEST: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_hours(24);
/// How long unknown keys cause no further fetch: a client can name any number of them.
const QUIET: Duration = Duration::from_secs(30);
/// How often keys are requested that were never loaded.
const WITHOUT_KEYS: Duration = Duration::from_secs(5);
/// How long a request waits for a key that its token names.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Fetched keys, and the state of fetching them.
pub(crate) struct RemoteKeys {
    fetcher: Fetcher,
    /// A token named an unknown key.
    unknown_key: Notify,
    /// The operator requested a fetch.
    is_asked: Notify,
    state: Mutex<FetchState>,
    /// Changes when a fetch has ended.
    ended: watch::Sender<()>,
    fetched: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct FetchState {
    /// The set in force, as fetched.
    set: Option<Bytes>,
    /// Why the last attempt failed, if it did.
    problem: Option<String>,
    is_fetching: bool,
    /// Whether unknown keys cause no further fetch now.
    is_quiet: bool,
}

/// A set as it is stored.
#[derive(Serialize, Deserialize)]
struct KeptSet {
    /// Where it came from.
    url: String,
    set: Value,
}

impl RemoteKeys {
    pub(crate) fn new(fetcher: Fetcher) -> Self {
        Self {
            fetcher,
            unknown_key: Notify::new(),
            is_asked: Notify::new(),
            state: Mutex::default(),
            ended: watch::Sender::default(),
            fetched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// A token names an unknown key: requests a fetch, unless one was made recently for the same reason.
    pub(crate) fn miss(&self) {
        self.unknown_key.notify_one();
    }

    /// Whether keys are fetched now, or would be for an unknown key.
    pub(crate) fn fetches_for_unknown(&self) -> bool {
        let state = self.state.lock();
        state.is_fetching || !state.is_quiet
    }

    /// Waits for the fetch that an unknown key causes, unless there is none.
    pub(crate) async fn next_attempt(&self) {
        let mut ended = self.ended.subscribe();
        if self.fetches_for_unknown() {
            self.miss();
            let _ = tokio::time::timeout(LONGEST_WAIT, ended.changed()).await;
        }
    }

    /// Whether no set was ever loaded.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().set.is_none()
    }

    /// Requests a fetch.
    pub(crate) fn ask(&self) {
        self.is_asked.notify_one();
    }

    /// Reads the authorities that are trusted again, and requests a fetch.
    pub(crate) fn reload_authorities(&self) -> Result<(), TlsError> {
        self.fetcher.caller.reload_authorities()?;
        self.ask();
        Ok(())
    }

    /// A warning, if the last fetch failed.
    pub(crate) fn warning(&self) -> Option<String> {
        let state = self.state.lock();
        let problem = state.problem.as_ref()?;
        let and = match state.set {
            Some(_) => "the last ones stay in use",
            None => "requests with a token get 503 where a rule reads it",
        };
        let url = &self.fetcher.url;
        Some(format!(
            "the keys of tokens cannot be fetched from {url}: {problem}; {and}"
        ))
    }

    /// How often they were fetched, and how often that failed.
    pub(crate) fn fetches(&self) -> (u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.fetched), count(&self.failed))
    }
}

impl Tokens {
    /// Fetches the keys for the first time. Without an answer, the stored set is used.
    pub(crate) async fn first_fetch(&self, data: Option<&Arc<dyn KeptFiles>>) -> Duration {
        let Some(remote) = self.remote() else {
            return LONGEST;
        };
        let next = self.fetch(remote, data).await;
        if remote.state.lock().set.is_none()
            && let Some(data) = data
        {
            self.use_kept(remote, &**data);
        }
        if let Some(warning) = remote.warning() {
            tracing::warn!("{warning}");
        }
        next
    }

    /// Fetches the keys for ever, `next` from now for the first time. Never returns.
    pub(crate) async fn keep_fetching(
        &self,
        mut next: Duration,
        data: Option<&Arc<dyn KeptFiles>>,
    ) {
        let Some(remote) = self.remote() else {
            return std::future::pending().await;
        };
        let mut quiet = Box::pin(tokio::time::sleep(Duration::ZERO));
        loop {
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = remote.is_asked.notified() => {}
                () = async {
                    quiet.as_mut().await;
                    remote.state.lock().is_quiet = false;
                    remote.unknown_key.notified().await;
                } => {
                    remote.state.lock().is_quiet = true;
                    quiet.set(tokio::time::sleep(QUIET));
                }
            }
            let before = remote.state.lock().problem.clone();
            next = self.fetch(remote, data).await;
            let after = remote.warning();
            match (before, after) {
                (None, Some(warning)) => tracing::warn!("{warning}"),
                (Some(_), None) => tracing::info!("the keys of tokens can be fetched again"),
                _ => {}
            }
        }
    }

    /// Fetches the keys once. Returns the time until the next fetch.
    async fn fetch(&self, remote: &RemoteKeys, data: Option<&Arc<dyn KeptFiles>>) -> Duration {
        remote.state.lock().is_fetching = true;
        let next = self.fetch_once(remote, data).await;
        remote.state.lock().is_fetching = false;
        remote.ended.send_replace(());
        next
    }

    async fn fetch_once(&self, remote: &RemoteKeys, data: Option<&Arc<dyn KeptFiles>>) -> Duration {
        let fetched = remote.fetcher.fetch().await;
        let read = fetched.and_then(|fetched| {
            let keys = Keys::of_fetched(&self.settings, &fetched.body)?;
            Ok((keys, fetched))
        });
        match read {
            Ok((keys, fetched)) => {
                let count = keys.len();
                self.put(keys);
                remote.fetched.fetch_add(1, Ordering::Relaxed);
                let before = {
                    let mut state = remote.state.lock();
                    state.problem = None;
                    state.set.replace(fetched.body.clone())
                };
                if before.as_ref() != Some(&fetched.body) {
                    tracing::info!(keys = count, url = %&remote.fetcher.url, "the keys of tokens were fetched");
                    keep(remote, fetched.body, data).await;
                }
                fetched.max_age.unwrap_or(EVERY).clamp(SHORTEST, LONGEST)
            }
            Err(problem) => {
                remote.failed.fetch_add(1, Ordering::Relaxed);
                let mut state = remote.state.lock();
                state.problem = Some(problem);
                match state.set {
                    Some(_) => SHORTEST,
                    None => WITHOUT_KEYS,
                }
            }
        }
    }

    /// Uses the stored set, if it came from the same URL.
    fn use_kept(&self, remote: &RemoteKeys, data: &dyn KeptFiles) {
        let mut kept = None;
        data.load(FILE, LOST, &mut |text| {
            kept = serde_json::from_slice(text).ok();
            kept.is_some()
        });
        let Some(KeptSet { url, set }) = kept else {
            return;
        };
        if url != remote.fetcher.url.to_full() {
            return tracing::info!(
                "the stored keys of tokens came from another URL and are not used"
            );
        }
        let set = set.to_string();
        match Keys::of_fetched(&self.settings, set.as_bytes()) {
            Ok(keys) => {
                self.put(keys);
                remote.state.lock().set = Some(Bytes::from(set));
            }
            Err(problem) => tracing::warn!("the stored keys of tokens cannot be used: {problem}"),
        }
    }
}

/// Writes a set to the data directory. A failure is logged; the set is in force anyway.
async fn keep(remote: &RemoteKeys, set: Bytes, data: Option<&Arc<dyn KeptFiles>>) {
    let Some(data) = data.filter(|data| data.is_writable()) else {
        return;
    };
    let Ok(set) = serde_json::from_slice::<Value>(&set) else {
        return;
    };
    let url = remote.fetcher.url.to_full();
    let Ok(text) = serde_json::to_vec(&KeptSet { url, set }) else {
        return;
    };
    let data = Arc::clone(data);
    let writing = tokio::task::spawn_blocking(move || data.write(FILE, &text));
    if let Ok(Err(error)) = writing.await {
        tracing::warn!(
            "the keys of tokens could not be stored for a start without their issuer: {error}"
        );
    }
}
