//! Temporary overrides that servers share in Redis: followed and changed there, with a copy in the data directory.
//!
//! Redis decides. Only if it has lost them all, those in force here are written back.

use tidegate::{Clock as _, Gate, Store, StoreError, SystemClock};
use tidegate_redis::{RedisStore, Written};

use super::change::{ChangedBy, OverrideChange, OverrideError};
use super::{KeptOverrides, OverrideBook};

/// How often a change is tried again when another server was faster.
const ATTEMPTS: usize = 8;

/// Why the overrides in Redis were not followed. Those in force stay.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowOverridesError {
    // Without the cause, which changes while Redis is down: each problem is logged once.
    #[error("Redis is unreachable")]
    Store(#[from] StoreError),
    #[error("version {0} in Redis cannot be read by this program")]
    Unreadable(u64),
}

impl OverrideBook {
    /// Reads those in Redis and puts them in force, unless `is_cheap` and the version is known. Logs what is wrong,
    /// once. Returns whether those in force are those in Redis.
    pub(crate) async fn follow<S: Store>(&self, gate: &Gate<S>, is_cheap: bool) -> bool {
        let Some(store) = &self.redis else {
            return true;
        };
        let known = self.shown.read().version;
        if is_cheap && store.overrides_version().await.ok() == Some(known) {
            return true;
        }
        let _changing = self.changing.lock().await;
        let followed = self.adopt(store, gate).await;
        let problem = followed.err().map(|error| error.to_string());
        let earlier = std::mem::replace(&mut self.shown.write().problem, problem.clone());
        if problem != earlier {
            if let Some(problem) = &problem {
                tracing::warn!("the temporary overrides stay as they were: {problem}");
            } else {
                tracing::info!("the temporary overrides in Redis can be read again");
            }
        }
        problem.is_none()
    }

    /// The version in Redis, after putting it in force; the caller holds `changing`.
    async fn adopt<S: Store>(
        &self,
        store: &RedisStore,
        gate: &Gate<S>,
    ) -> Result<u64, FollowOverridesError> {
        let Some((version, text)) = store.overrides_text().await? else {
            return self.write_back(store).await;
        };
        let kept = KeptOverrides::from_json(text.as_bytes())
            .ok_or(FollowOverridesError::Unreadable(version))?;
        if *self.kept() != kept {
            self.put_in_force(gate, kept.clone(), version);
            self.copy(&kept).await;
        }
        self.shown.write().version = version;
        Ok(version)
    }

    /// Writes those in force to a Redis that has none.
    async fn write_back(&self, store: &RedisStore) -> Result<u64, FollowOverridesError> {
        let (kept, now) = (self.kept(), SystemClock.now());
        let mut version = 0;
        // If another server is faster, the next look reads what it wrote.
        if kept.overrides.iter().any(|one| one.is_live(now))
            && let Written::Version(written) = store.write_overrides(0, &kept.to_json()).await?
        {
            tracing::warn!(
                "Redis had no temporary overrides; those in force here were written to it"
            );
            version = written;
        }
        self.shown.write().version = version;
        Ok(version)
    }

    /// Makes a change in Redis, and then here; the caller holds `changing`.
    pub(super) async fn change_shared<S: Store>(
        &self,
        store: &RedisStore,
        gate: &Gate<S>,
        change: &OverrideChange,
        changed: &ChangedBy,
    ) -> Result<(), OverrideError> {
        for _ in 0..ATTEMPTS {
            let after = match self.adopt(store, gate).await {
                Ok(version) => version,
                Err(FollowOverridesError::Store(error)) => {
                    return Err(OverrideError::Unreachable(error.to_string()));
                }
                Err(FollowOverridesError::Unreadable(version)) => {
                    return Err(OverrideError::Unreadable(version));
                }
            };
            let Some(next) = self.kept().after(change, changed, self.history)? else {
                return Ok(());
            };
            match store.write_overrides(after, &next.to_json()).await {
                Ok(Written::Version(version)) => {
                    self.put_in_force(gate, next.clone(), version);
                    self.copy(&next).await;
                    return Ok(());
                }
                Ok(Written::Stale(_)) => {}
                Err(StoreError::Unreachable(error)) => {
                    return Err(OverrideError::Unreachable(error.to_string()));
                }
                Err(error) => return Err(OverrideError::Unknown(error.to_string())),
            }
        }
        Err(OverrideError::Contended)
    }

    /// Keeps a copy for a start without Redis. They are in force even if this fails.
    async fn copy(&self, kept: &KeptOverrides) {
        if let Err(error) = self.keep(kept).await {
            tracing::error!(
                "the temporary overrides could not be stored for a start without Redis: {error}"
            );
        }
    }
}
