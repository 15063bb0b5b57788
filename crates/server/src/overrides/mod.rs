//! The temporary overrides of a server: kept in the data directory, or in the Redis that servers share, apart from
//! the rules.
//!
//! A change is kept first and then in force. With Redis, the data directory has a copy for a start without Redis.
//! `change.rs` says what a change does, `kept.rs` how they are written down.

mod change;
mod kept;

pub(crate) use change::{ChangedBy, MeantKey, OverrideChange, OverrideError};
pub(crate) use kept::{KeptOverride, KeptOverrides, OverrideMark, OverrideRow};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use tidegate::{Clock as _, Gate, SystemClock, Timestamp};
use tidegate_redis::RedisStore;
use tokio::sync::Mutex;

use crate::data_dir::{DataDirError, LockedDir, Row};
use crate::shared_document::{ATTEMPTS, FollowError, Level, SharedDocument};
use crate::telemetry::gauge;

/// The file in the data directory.
const FILE: &str = "overrides";
/// What happens if it cannot be used.
const LOST: &str = "the temporary overrides are lost and the rules' own values apply";

/// The temporary overrides of a server.
pub(crate) struct OverrideBook {
    /// The directory that they are kept in, if it can be written to.
    data: Option<Arc<LockedDir>>,
    /// Those in the Redis that servers share, if there is one: then it decides.
    shared: Option<SharedDocument>,
    /// How many rows of the history are kept.
    history: usize,
    /// Held while they change, one change after the other.
    changing: Mutex<()>,
    /// Those in force.
    kept: RwLock<Arc<KeptOverrides>>,
    /// The version that they have in Redis.
    version: AtomicU64,
    /// What kept them from being read there.
    problem: RwLock<Option<String>>,
}

/// A row of the history of rules and overrides.
#[derive(Debug)]
pub(crate) struct HistoryRow {
    pub(crate) row: Row,
    /// The temporary override that was changed, if it is not a change of the rules.
    pub(crate) mark: Option<OverrideMark>,
}

impl OverrideBook {
    /// Those of the data directory. A file that is damaged is set aside.
    pub(crate) fn open(
        data: Option<&Arc<LockedDir>>,
        redis: Option<&RedisStore>,
        history: usize,
    ) -> Self {
        let kept = data.and_then(|data| data.load(FILE, LOST, KeptOverrides::from_file));
        let shared = redis.map(|store| {
            let redis = store.shared_overrides();
            SharedDocument::new(redis, "temporary overrides", "list them")
        });
        Self {
            data: data.filter(|data| data.is_writable()).cloned(),
            shared,
            history,
            changing: Mutex::new(()),
            kept: RwLock::new(Arc::new(kept.unwrap_or_default())),
            version: AtomicU64::new(0),
            problem: RwLock::new(None),
        }
    }

    /// Puts in force what was opened.
    pub(crate) fn begin(&self, gate: &Gate) {
        gate.replace_overrides(self.kept().in_force());
    }

    fn kept(&self) -> Arc<KeptOverrides> {
        Arc::clone(&self.kept.read())
    }

    /// Those that have not ended, of one rule or of all, in the order in which they were made.
    pub(crate) fn list(&self, rule: Option<&str>, now: Timestamp) -> Vec<KeptOverride> {
        let kept = self.kept();
        let is_meant =
            |one: &&KeptOverride| one.is_live(now) && rule.is_none_or(|rule| one.rule == rule);
        kept.overrides.iter().filter(is_meant).cloned().collect()
    }

    /// The history of the rules with that of the overrides, newest first.
    pub(crate) fn with_rows(&self, rules: Vec<Row>) -> Vec<HistoryRow> {
        let mut rows = Vec::with_capacity(rules.len());
        let kept = self.kept();
        let of_override = |changed: &OverrideRow| HistoryRow {
            row: changed.row.clone(),
            mark: Some(changed.mark.clone()),
        };
        let mut overrides = kept.rows.iter().peekable();
        for row in rules {
            // Of two at the same time, the override is later: it was made by the rules of that version.
            while let Some(newer) = overrides.next_if(|next| next.row.at >= row.at) {
                rows.push(of_override(newer));
            }
            rows.push(HistoryRow { row, mark: None });
        }
        rows.extend(overrides.map(of_override));
        rows
    }

    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        let (kept, now) = (self.kept(), SystemClock.now());
        let live = kept.overrides.iter().filter(|one| one.is_live(now));
        registry.register(
            "temporary_overrides",
            "Temporary overrides that have not ended",
            gauge(live.count() as u64),
        );
    }

    /// Whether Redis answers and has those in force. True without Redis.
    pub(crate) async fn is_level(&self) -> bool {
        let version = self.version.load(Ordering::Acquire);
        match &self.shared {
            Some(shared) => shared.has_version(version).await,
            None => true,
        }
    }

    /// Reads those in Redis and puts them in force. Logs what is wrong, once. Returns whether those in force are
    /// those in Redis.
    pub(crate) async fn follow(&self, gate: &Gate) -> bool {
        let Some(shared) = &self.shared else {
            return true;
        };
        let _changing = self.changing.lock().await;
        let problem = match self.level(shared, gate).await {
            Ok(_) => None,
            // Without the cause, which changes while Redis is down: each problem is logged once.
            Err(FollowError::Store(_)) => Some("Redis is unreachable".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let earlier = std::mem::replace(&mut *self.problem.write(), problem.clone());
        if problem != earlier {
            if let Some(problem) = &problem {
                tracing::warn!("the temporary overrides stay as they were: {problem}");
            } else {
                tracing::info!("the temporary overrides in Redis can be read again");
            }
        }
        problem.is_none()
    }

    /// Puts those of Redis in force, or writes those in force to a Redis that has none. Returns the version. The
    /// caller holds `changing`.
    async fn level(&self, shared: &SharedDocument, gate: &Gate) -> Result<u64, FollowError> {
        let read = |text: &str| KeptOverrides::from_json(text.as_bytes()).ok_or_else(Vec::new);
        let own = || {
            let (kept, now) = (self.kept(), SystemClock.now());
            let is_needed = kept.overrides.iter().any(|one| one.is_live(now));
            Ok(is_needed.then(|| kept.to_shared()))
        };
        let version = match shared.level(read, own).await? {
            Level::Version(version, kept) => {
                if *self.kept() != kept {
                    self.put_in_force(gate, kept, version);
                    self.copy().await;
                }
                version
            }
            Level::WrittenBack(version) => {
                tracing::warn!(
                    "Redis had no temporary overrides; those in force here were written to it"
                );
                version
            }
            Level::Empty => 0,
        };
        self.version.store(version, Ordering::Release);
        Ok(version)
    }

    /// Makes a change: keeps it, then puts it in force. If another server was faster, it is tried again on the
    /// result.
    pub(crate) async fn change(
        &self,
        gate: &Gate,
        change: &OverrideChange,
        changed: &ChangedBy,
    ) -> Result<(), OverrideError> {
        let _changing = self.changing.lock().await;
        for _ in 0..ATTEMPTS {
            let after = match &self.shared {
                Some(shared) => match self.level(shared, gate).await {
                    Ok(version) => version,
                    Err(FollowError::Unusable { version, .. }) => {
                        return Err(OverrideError::Unreadable(version));
                    }
                    Err(error) => return Err(shared.unreachable(&error.to_string()).into()),
                },
                None => 0,
            };
            let Some(next) = self.kept().after(change, changed, self.history)? else {
                return Ok(());
            };
            let written = match &self.shared {
                Some(shared) => shared.write(after, &next.to_shared()).await?,
                None => self.keep_alone(&next).await.map(|()| Some(0))?,
            };
            let Some(version) = written else {
                continue;
            };
            if let Some(row) = next.rows.first().filter(|_| change.has_row()) {
                tracing::info!(
                    by = changed.by,
                    changes = row.mark.text,
                    "the temporary overrides were changed"
                );
            }
            self.put_in_force(gate, next, version);
            if self.shared.is_some() {
                self.copy().await;
            }
            return Ok(());
        }
        Err(OverrideError::Contended)
    }

    /// Removes those that ended a while ago.
    pub(crate) async fn remove_ended(
        &self,
        gate: &Gate,
        changed: &ChangedBy,
    ) -> Result<(), OverrideError> {
        let removal = OverrideChange::RemoveEnded;
        // Redis is asked only if there is something to do.
        match self.kept().after(&removal, changed, self.history)? {
            Some(_) => self.change(gate, &removal, changed).await,
            None => Ok(()),
        }
    }

    /// Writes the file, if there is a directory for it.
    async fn keep(&self, kept: &KeptOverrides) -> Result<(), DataDirError> {
        let Some(data) = self.data.clone() else {
            return Ok(());
        };
        let text = kept.to_file();
        let writing = tokio::task::spawn_blocking(move || data.write(FILE, &text));
        // The task does not panic; it is cancelled only with the whole program.
        writing.await.unwrap_or(Ok(()))
    }

    /// Keeps those that no other server has.
    async fn keep_alone(&self, kept: &KeptOverrides) -> Result<(), DataDirError> {
        if self.data.is_none() {
            tracing::warn!(
                "temporary overrides are lost with a restart, because there is no data directory that can be written to"
            );
        }
        self.keep(kept).await
    }

    /// Keeps a copy for a start without Redis. They are in force even if this fails.
    async fn copy(&self) {
        if let Err(error) = self.keep(&self.kept()).await {
            tracing::error!(
                "the temporary overrides could not be stored for a start without Redis: {error}"
            );
        }
    }

    fn put_in_force(&self, gate: &Gate, kept: KeptOverrides, version: u64) {
        gate.replace_overrides(kept.in_force());
        *self.kept.write() = Arc::new(kept);
        self.version.store(version, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
