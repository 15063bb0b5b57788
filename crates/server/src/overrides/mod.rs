//! The temporary overrides of a server: kept in the data directory, or in the Redis that servers share, apart from
//! the rules.
//!
//! A change is kept first and then in force. With Redis, the data directory has a copy for a start without Redis.
//! `change.rs` says what a change does, `kept.rs` how they are written down, `shared.rs` follows Redis.

mod change;
mod kept;
mod shared;

pub(crate) use change::{ChangedBy, MeantKey, OverrideChange, OverrideError};
pub(crate) use kept::{KeptOverride, KeptOverrides};

use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use tidegate::{Clock as _, Gate, Store, SystemClock, Timestamp};
use tidegate_redis::RedisStore;
use tokio::sync::Mutex;

use crate::data_dir::{DataDirError, LockedDir, Row};
use crate::telemetry::gauge;

/// The file in the data directory.
const FILE: &str = "overrides";
/// What happens if it cannot be used.
const LOST: &str = "the temporary overrides are lost and the rules' own values apply";

/// The temporary overrides of a server.
pub(crate) struct OverrideBook {
    /// The directory that they are kept in, if it can be written to.
    data: Option<Arc<LockedDir>>,
    /// The Redis that servers share, if there is one: then this decides.
    redis: Option<RedisStore>,
    /// How many rows of the history are kept.
    history: usize,
    /// Held while they change, one change after the other.
    changing: Mutex<()>,
    shown: RwLock<OverridesInForce>,
}

/// A row of the history of rules and overrides.
#[derive(Debug)]
pub(crate) struct HistoryRow {
    pub(crate) row: Row,
    /// Whether a temporary override was changed; then its version is that of the rules in force.
    pub(crate) is_override: bool,
}

/// Those in force, the version that they have in Redis, and what kept them from being read there.
#[derive(Default)]
struct OverridesInForce {
    kept: Arc<KeptOverrides>,
    version: u64,
    problem: Option<String>,
}

impl OverrideBook {
    /// Those of the data directory. A file that is damaged is set aside.
    pub(crate) fn open(
        data: Option<&Arc<LockedDir>>,
        redis: Option<&RedisStore>,
        history: usize,
    ) -> Self {
        let kept = data.and_then(|data| data.load(FILE, LOST, KeptOverrides::from_file));
        Self {
            data: data.filter(|data| data.is_writable()).cloned(),
            redis: redis.cloned(),
            history,
            changing: Mutex::new(()),
            shown: RwLock::new(OverridesInForce {
                kept: Arc::new(kept.unwrap_or_default()),
                ..OverridesInForce::default()
            }),
        }
    }

    /// Puts in force what was opened.
    pub(crate) fn begin<S: Store>(&self, gate: &Gate<S>) {
        gate.replace_overrides(self.kept().in_force());
    }

    fn kept(&self) -> Arc<KeptOverrides> {
        Arc::clone(&self.shown.read().kept)
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
        let of_override = |row: &Row| HistoryRow {
            row: row.clone(),
            is_override: true,
        };
        let mut overrides = kept.rows.iter().peekable();
        for row in rules {
            // Of two at the same time, the override is later: it was made by the rules of that version.
            while let Some(newer) = overrides.next_if(|next| next.at >= row.at) {
                rows.push(of_override(newer));
            }
            let is_override = false;
            rows.push(HistoryRow { row, is_override });
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

    /// Makes a change: keeps it, then puts it in force.
    pub(crate) async fn change<S: Store>(
        &self,
        gate: &Gate<S>,
        change: &OverrideChange,
        changed: &ChangedBy,
    ) -> Result<(), OverrideError> {
        let _changing = self.changing.lock().await;
        if let Some(store) = &self.redis {
            self.change_shared(store, gate, change, changed).await?;
        } else {
            self.change_own(gate, change, changed).await?;
        }
        let kept = self.kept();
        if let Some(row) = kept.rows.first().filter(|_| change.has_row()) {
            let by = &changed.by;
            tracing::info!(
                by,
                changes = row.changes.join(", "),
                "the temporary overrides were changed"
            );
        }
        Ok(())
    }

    /// Removes those that ended a while ago.
    pub(crate) async fn remove_ended<S: Store>(
        &self,
        gate: &Gate<S>,
        changed: &ChangedBy,
    ) -> Result<(), OverrideError> {
        let removal = OverrideChange::RemoveEnded;
        // Redis is asked only if there is something to do.
        match self.kept().after(&removal, changed, self.history)? {
            Some(_) => self.change(gate, &removal, changed).await,
            None => Ok(()),
        }
    }

    async fn change_own<S: Store>(
        &self,
        gate: &Gate<S>,
        change: &OverrideChange,
        changed: &ChangedBy,
    ) -> Result<(), OverrideError> {
        let Some(next) = self.kept().after(change, changed, self.history)? else {
            return Ok(());
        };
        if self.data.is_none() {
            tracing::warn!(
                "temporary overrides are lost with a restart, because there is no data directory that can be written to"
            );
        }
        self.keep(&next).await?;
        self.put_in_force(gate, next, 0);
        Ok(())
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

    fn put_in_force<S: Store>(&self, gate: &Gate<S>, kept: KeptOverrides, version: u64) {
        let in_force = kept.in_force();
        *self.shown.write() = OverridesInForce {
            kept: Arc::new(kept),
            version,
            problem: None,
        };
        gate.replace_overrides(in_force);
    }
}

#[cfg(test)]
mod tests;
