//! Rules that servers share in Redis: followed, stored here too, and never lost silently.
//!
//! Redis decides, also when it returns to an earlier version. Only if it has lost all rules, this server's stay
//! in force and are written back: an empty Redis must not mean that nothing is limited.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::document::Problems;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate::{Gate, Store, StoreError, Timestamp};
use tidegate_redis::{NewRules, RedisStore, Written};

use super::change::{ChangeError, between};
use super::{Origin, RuleBook, now, read_list};
use crate::data_dir::{DataDir, NewVersion, Row};

/// How many invalid rules an error names.
const NAMED: usize = 5;

/// The rules in Redis, and the copy of this server for a start without Redis.
pub(super) struct SharedRules {
    store: RedisStore,
    data_dir: Arc<DataDir>,
    /// How many versions are kept in Redis.
    history: usize,
    /// Why the stored copy cannot be used, if so.
    damage: Option<String>,
}

/// The history entry of a version in Redis.
#[derive(Serialize, Deserialize)]
struct SharedRow {
    at: u64,
    by: String,
    changes: Vec<String>,
}

/// The result of reading the rules in Redis.
#[derive(Debug)]
pub enum Followed {
    /// They are those in force.
    Same,
    /// They differ, and are in force now.
    Changed {
        /// Their version.
        version: u64,
        /// The version before; a larger one if Redis went back.
        before: u64,
        /// The differences.
        changes: Vec<String>,
        /// Warnings about the rules.
        problems: Problems,
    },
    /// Redis never had rules.
    None,
    /// Redis had none, and this server's have been written to it.
    WrittenBack {
        /// Their version now.
        version: u64,
        /// The version that they had; zero if they were never in Redis.
        before: u64,
    },
}

/// Why the rules in Redis were not followed. The rules in force stay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// Redis is unreachable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its rules are invalid.
    #[error(
        "version {version} of the rules in Redis cannot be used by this program{}",
        named(rules)
    )]
    Unusable {
        /// Which version.
        version: u64,
        /// The invalid rules, as far as they are known.
        rules: Vec<String>,
    },
    /// Redis has no rules, and the stored copy cannot be used.
    #[error("Redis has no rules, and those stored here cannot be used: {0}")]
    Lost(String),
}

fn named(rules: &[String]) -> String {
    if rules.is_empty() {
        return String::new();
    }
    format!(" because of {}", rules.join(", "))
}

impl RuleBook {
    /// The rules that servers share in `store`. The copy in `data_dir` is in force until Redis is
    /// [read](Self::follow); without a copy the rules are unknown. Also returns warnings about them.
    pub fn of_redis(
        store: RedisStore,
        data_dir: DataDir,
        history: usize,
        settings: RuleSettings,
    ) -> (Self, RuleSet, Problems) {
        let kept = data_dir.current();
        let read = kept.as_ref().map(|kept| read_list(&kept.rules, &settings));
        let damage = match (&kept, &read) {
            (Some(kept), Some(Err(problems))) => Some(format!(
                "version {} of the data directory{}",
                kept.version,
                named(&unusable(problems))
            )),
            (Some(_), _) => None,
            (None, _) => {
                let warnings = data_dir.warnings().iter();
                let warnings: Vec<String> = warnings.map(ToString::to_string).collect();
                (!warnings.is_empty()).then(|| warnings.join("; "))
            }
        };
        let version = kept.and_then(|kept| kept.shared).unwrap_or(0);
        let shared = SharedRules {
            store,
            data_dir: Arc::new(data_dir),
            history,
            damage,
        };
        let book = Self::new(Origin::Shared(shared), settings, version);
        book.has_rules
            .store(matches!(read, Some(Ok(_))), Ordering::Release);
        let rules = read.unwrap_or_else(|| Ok(RuleSet::empty()));
        let problems = rules
            .as_ref()
            .map_or_else(Clone::clone, |rules| rules.warnings().clone());
        (book, rules.unwrap_or_default(), problems)
    }

    /// Reads the rules in Redis and puts them in force, if all of them are valid.
    pub async fn follow<S: Store>(&self, gate: &Gate<S>) -> Result<Followed, FollowError> {
        let Origin::Shared(shared) = &self.origin else {
            return Ok(Followed::Same);
        };
        let _changing = self.changing.lock().await;
        self.follow_alone(shared, gate).await
    }

    /// The same; the caller holds `changing`.
    async fn follow_alone<S: Store>(
        &self,
        shared: &SharedRules,
        gate: &Gate<S>,
    ) -> Result<Followed, FollowError> {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        let followed = match self.adopt(shared, gate).await {
            Ok(Some(followed)) => Ok(followed),
            Ok(None) => self.write_back(shared, gate).await,
            Err(error) => Err(error),
        };
        match &followed {
            Ok(_) => *self.problem.write() = None,
            Err(error) => {
                self.reload_failures.fetch_add(1, Ordering::Relaxed);
                *self.problem.write() = Some(self.explain(shared, error));
            }
        }
        followed
    }

    fn explain(&self, shared: &SharedRules, error: &FollowError) -> String {
        let what = match error {
            FollowError::Store(error) => {
                let problem = shared.store.problem();
                let problem = problem.unwrap_or_else(|| error.to_string());
                format!("Redis is unreachable: {problem}")
            }
            other => other.to_string(),
        };
        let and = if self.has_rules() {
            "those in force may be older"
        } else {
            "none are kept here"
        };
        format!("{what}; {and}")
    }

    /// Puts the rules of Redis in force. Returns `None` if it has none.
    async fn adopt<S: Store>(
        &self,
        shared: &SharedRules,
        gate: &Gate<S>,
    ) -> Result<Option<Followed>, FollowError> {
        let version = shared.store.rules_version().await?;
        if version == 0 {
            return Ok(None);
        }
        let text = shared.store.rules_text(version).await?;
        let list = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let list = list.filter(Value::is_array);
        let unreadable = |rules| FollowError::Unusable { version, rules };
        let list = list.ok_or_else(|| unreadable(Vec::new()))?;
        let rules =
            read_list(&list, &self.settings).map_err(|problems| unreadable(unusable(&problems)))?;
        let problems = rules.warnings().clone();

        let changes = between(&gate.rules(), &rules);
        if !changes.is_empty() {
            gate.replace_rules(rules);
        }
        let was_known = self.has_rules.swap(true, Ordering::AcqRel);
        let before = self.version.swap(version, Ordering::AcqRel);
        shared.keep(version, "redis", &changes, list).await;
        if was_known && before == version && changes.is_empty() {
            return Ok(Some(Followed::Same));
        }
        Ok(Some(Followed::Changed {
            version,
            before,
            changes,
            problems,
        }))
    }

    /// Writes the rules in force to a Redis that has none.
    async fn write_back<S: Store>(
        &self,
        shared: &SharedRules,
        gate: &Gate<S>,
    ) -> Result<Followed, FollowError> {
        if let Some(damage) = shared.damage.as_ref().filter(|_| !self.has_rules()) {
            return Err(FollowError::Lost(damage.clone()));
        }
        let rules = gate.rules();
        if rules.is_empty() {
            let was_known = self.has_rules.swap(true, Ordering::AcqRel);
            let before = self.version.swap(0, Ordering::AcqRel);
            let is_same = was_known && before == 0;
            return Ok(if is_same {
                Followed::Same
            } else {
                Followed::None
            });
        }
        let before = self.version();
        let because = match before {
            0 => "copied from the data directory of a server".to_owned(),
            _ => format!("written back from version {before}, because Redis had lost the rules"),
        };
        let list = rules.written();
        let changes = vec![because];
        match shared.write(0, "tidegate", &changes, &list).await? {
            Written::Version(version) => {
                self.version.store(version, Ordering::Release);
                shared.keep(version, "tidegate", &changes, list).await;
                Ok(Followed::WrittenBack { version, before })
            }
            // Another server wrote rules first, perhaps different ones.
            Written::Stale(_) => {
                let adopted = self.adopt(shared, gate).await?;
                Ok(adopted.unwrap_or(Followed::Same))
            }
        }
    }

    /// Follows Redis before a change. Returns the version to change, and what to note if this program cannot use
    /// it: a change that is `unconditional` does not depend on it.
    pub(super) async fn newest_shared<S: Store>(
        &self,
        shared: &SharedRules,
        gate: &Gate<S>,
        is_unconditional: bool,
    ) -> Result<(u64, Option<String>), ChangeError> {
        match self.follow_alone(shared, gate).await {
            Ok(_) => Ok((self.version(), None)),
            Err(FollowError::Unusable { version, .. }) if is_unconditional => {
                let because = format!("replaced version {version}, which could not be used");
                Ok((version, Some(because)))
            }
            Err(FollowError::Store(_)) => Err(ChangeError::Unreachable(self.said())),
            Err(_) => Err(ChangeError::Unreadable(self.said())),
        }
    }

    /// The current problem, as text; empty without one.
    fn said(&self) -> String {
        self.problem().unwrap_or_default()
    }
}

/// The error of a failed change: [`Unknown`](ChangeError::Unknown) if it may have been made in Redis.
fn may_have_happened(error: &StoreError) -> ChangeError {
    let text = error.to_string();
    match error {
        StoreError::Unreachable(source) => ChangeError::Unreachable(source.to_string()),
        _ => ChangeError::Unknown(text),
    }
}

/// The ids of the invalid rules; never their content, which may include customers' keys.
fn unusable(problems: &Problems) -> Vec<String> {
    let named = problems.errors().filter_map(|problem| problem.rule.clone());
    let mut named: Vec<String> = named.map(|rule| format!("rule `{rule}`")).collect();
    named.dedup();
    named.truncate(NAMED);
    named
}

impl SharedRules {
    /// Writes rules that follow version `after`.
    async fn write(
        &self,
        after: u64,
        by: &str,
        changes: &[String],
        list: &Value,
    ) -> Result<Written, StoreError> {
        let row = SharedRow {
            at: now().as_micros(),
            by: by.to_owned(),
            changes: changes.to_vec(),
        };
        let row = serde_json::to_string(&row).unwrap_or_default();
        let new = NewRules {
            after,
            text: &list.to_string(),
            row: &row,
            keep: self.history,
        };
        self.store.write_rules(new).await
    }

    /// Writes a change that follows version `after`. Returns its version; `None` if another server was faster.
    pub(super) async fn write_after(
        &self,
        after: u64,
        by: &str,
        changes: &[String],
        list: &Value,
    ) -> Result<Option<u64>, ChangeError> {
        match self.write(after, by, changes, list).await {
            Ok(Written::Version(version)) => Ok(Some(version)),
            Ok(Written::Stale(_)) => Ok(None),
            Err(error) => Err(may_have_happened(&error)),
        }
    }

    /// The rules of an earlier version; `None` if it is not kept.
    pub(super) async fn read(&self, version: u64) -> Result<Option<Arc<Value>>, StoreError> {
        let text = self.store.rules_text(version).await?;
        let list = text.and_then(|text| serde_json::from_str(&text).ok());
        Ok(list.filter(Value::is_array).map(Arc::new))
    }

    /// The versions that are kept in Redis, newest first.
    pub(super) async fn history(&self) -> Result<Vec<Row>, StoreError> {
        let rows = self.store.rules_history().await?;
        let row = |(version, text): (u64, String)| {
            let row: SharedRow = serde_json::from_str(&text).ok()?;
            Some(Row {
                version,
                at: Timestamp::from_micros(row.at),
                by: row.by,
                changes: row.changes,
            })
        };
        Ok(rows.into_iter().filter_map(row).collect())
    }

    /// Stores the rules for a start without Redis, unless they are stored already. The rules are in force even if
    /// this fails.
    pub(super) async fn keep(&self, version: u64, by: &str, changes: &[String], list: Value) {
        let is_kept = self
            .data_dir
            .current()
            .is_some_and(|kept| kept.shared == Some(version) && *kept.rules == list);
        if is_kept {
            return;
        }
        let new = NewVersion {
            at: now(),
            by: by.to_owned(),
            changes: changes.to_vec(),
            rules: Arc::new(list),
            shared: Some(version),
        };
        let data_dir = Arc::clone(&self.data_dir);
        let writing = tokio::task::spawn_blocking(move || data_dir.write(&new).map(drop));
        if let Ok(Err(error)) = writing.await {
            tracing::error!(
                version,
                "the rules are in force but could not be stored for a start without Redis: {error}"
            );
        }
    }
}
