//! Rules that servers share in Redis: followed, stored here too, and never lost silently.
//!
//! Redis decides, also when it returns to an earlier version. Only if it has lost all rules, this server's stay
//! in force and are written back: an empty Redis must not mean that nothing is limited.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tidegate::document::Problems;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate::{Gate, StoreError};
use tidegate_redis::RedisStore;

use super::change::{ChangeError, between, new_version};
use super::{Origin, RuleBook, read_list};
use crate::data_dir::{DataDir, NewVersion, Row};
use crate::shared_document::{FollowError, Level, SharedDocument, VersionText, because};

/// How many invalid rules an error names.
const NAMED: usize = 5;

/// The rules in Redis, and the copy of this server for a start without Redis.
pub(super) struct SharedRules {
    document: SharedDocument,
    data_dir: Arc<DataDir>,
    /// Why the stored copy cannot be used, if so.
    damage: Option<String>,
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

impl RuleBook {
    /// The rules that servers share in `store`. The copy in `data_dir` is in force until Redis is
    /// [read](Self::follow); without a copy the rules are unknown. Also returns warnings about them.
    pub fn of_redis(
        store: &RedisStore,
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
                because(&unusable(problems))
            )),
            (Some(_), _) => None,
            (None, _) => {
                let warnings = data_dir.warnings().iter();
                let warnings: Vec<String> = warnings.map(ToString::to_string).collect();
                (!warnings.is_empty()).then(|| warnings.join("; "))
            }
        };
        let version = kept.and_then(|kept| kept.shared).unwrap_or(0);
        let redis = store.shared_rules(history);
        let shared = SharedRules {
            document: SharedDocument::new(redis, "the rules", "read the rules"),
            data_dir: Arc::new(data_dir),
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
    pub async fn follow(&self, gate: &Gate) -> Result<Followed, FollowError> {
        let Some(shared) = self.shared() else {
            return Ok(Followed::Same);
        };
        let _changing = self.changing.lock().await;
        self.level(shared, gate).await
    }

    /// Whether Redis answers and has the version in force.
    pub(crate) async fn is_level(&self) -> bool {
        match self.shared() {
            Some(shared) => shared.document.has_version(self.version()).await,
            None => true,
        }
    }

    /// Puts the rules of Redis in force, or writes those in force to a Redis that has none. The caller holds
    /// `changing`.
    async fn level(&self, shared: &SharedRules, gate: &Gate) -> Result<Followed, FollowError> {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        let read = |text: &str| self.read_text(text);
        let own = || self.own(shared, gate);
        let level = shared.document.level(read, own).await;
        match &level {
            Ok(_) => *self.problem.write() = None,
            Err(error) => {
                self.reload_failures.fetch_add(1, Ordering::Relaxed);
                *self.problem.write() = Some(self.explain(shared, error));
            }
        }
        let (version, list, rules) = match level? {
            Level::Version(version, (list, rules)) => (version, list, rules),
            Level::WrittenBack(version) => {
                let changes = self.reason_to_write_back();
                let before = self.version.swap(version, Ordering::AcqRel);
                let new = new_version("tidegate", &changes, Arc::new(gate.rules().written()));
                shared.keep(version, new).await;
                return Ok(Followed::WrittenBack { version, before });
            }
            Level::Empty => {
                let was_known = self.has_rules.swap(true, Ordering::AcqRel);
                let before = self.version.swap(0, Ordering::AcqRel);
                let is_same = was_known && before == 0;
                return Ok(if is_same {
                    Followed::Same
                } else {
                    Followed::None
                });
            }
        };
        let problems = rules.warnings().clone();
        let changes = between(&gate.rules(), &rules);
        let before = self.version.swap(version, Ordering::AcqRel);
        if !changes.is_empty() {
            gate.replace_rules(rules);
        }
        let was_known = self.has_rules.swap(true, Ordering::AcqRel);
        let new = new_version("redis", &changes, list);
        shared.keep(version, new).await;
        if was_known && before == version && changes.is_empty() {
            return Ok(Followed::Same);
        }
        Ok(Followed::Changed {
            version,
            before,
            changes,
            problems,
        })
    }

    /// The rules of a text in Redis, or the ids of those that are invalid.
    fn read_text(&self, text: &str) -> Result<(Arc<Value>, RuleSet), Vec<String>> {
        let list = list_of(text).ok_or_else(Vec::new)?;
        let rules = read_list(&list, &self.settings).map_err(|problems| unusable(&problems))?;
        Ok((list, rules))
    }

    /// The rules for a Redis that has none, unless they are unknown or an empty set.
    fn own(&self, shared: &SharedRules, gate: &Gate) -> Result<Option<VersionText>, FollowError> {
        if let Some(damage) = shared.damage.as_ref().filter(|_| !self.has_rules()) {
            return Err(FollowError::Lost(damage.clone()));
        }
        let rules = gate.rules();
        let new = || {
            let list = Arc::new(rules.written());
            new_version("tidegate", &self.reason_to_write_back(), list)
        };
        Ok((!rules.is_empty()).then(|| VersionText::from(&new())))
    }

    fn reason_to_write_back(&self) -> [String; 1] {
        [match self.version() {
            0 => "copied from the data directory of a server".to_owned(),
            before => {
                format!("written back from version {before}, because Redis had lost the rules")
            }
        }]
    }

    fn explain(&self, shared: &SharedRules, error: &FollowError) -> String {
        let what = match error {
            FollowError::Store(error) => {
                let problem = shared.document.redis().store().problem();
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

    /// The version that a change follows, after this server is level with Redis; and what to note if this program
    /// cannot use it: a change that `is_unconditional` does not depend on it.
    pub(super) async fn version_to_change(
        &self,
        gate: &Gate,
        is_unconditional: bool,
    ) -> Result<(u64, Option<String>), ChangeError> {
        let Some(shared) = self.shared() else {
            return Ok((self.version(), None));
        };
        let problem = || self.problem().unwrap_or_default();
        match self.level(shared, gate).await {
            Ok(_) => Ok((self.version(), None)),
            Err(FollowError::Unusable { version, .. }) if is_unconditional => {
                let because = format!("replaced version {version}, which could not be used");
                Ok((version, Some(because)))
            }
            Err(FollowError::Store(_)) => Err(shared.document.unreachable(&problem()).into()),
            Err(_) => Err(ChangeError::Unreadable(problem())),
        }
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

/// The rules of a text: a list.
fn list_of(text: &str) -> Option<Arc<Value>> {
    let list = serde_json::from_str(text).ok();
    list.filter(Value::is_array).map(Arc::new)
}

impl From<&NewVersion> for VersionText {
    fn from(new: &NewVersion) -> Self {
        let row = json!({"at": new.at.as_micros(), "by": new.by, "changes": new.changes});
        Self {
            text: new.rules.to_string(),
            row: row.to_string(),
        }
    }
}

impl SharedRules {
    /// Writes a version that follows `after`. Returns its number; `None` if another server was faster.
    pub(super) async fn write(
        &self,
        after: u64,
        new: &NewVersion,
    ) -> Result<Option<u64>, ChangeError> {
        Ok(self.document.write(after, &new.into()).await?)
    }

    /// The rules of an earlier version; `None` if it is not kept.
    pub(super) async fn read(&self, version: u64) -> Result<Option<Arc<Value>>, StoreError> {
        let text = self.document.redis().text(version).await?;
        Ok(text.as_deref().and_then(list_of))
    }

    /// The versions that are kept in Redis, newest first.
    pub(super) async fn history(&self) -> Result<Vec<Row>, StoreError> {
        let rows = self.document.redis().history().await?;
        let row = |(version, text): (u64, String)| {
            let row: Row = serde_json::from_str(&text).ok()?;
            Some(Row { version, ..row })
        };
        Ok(rows.into_iter().filter_map(row).collect())
    }

    /// Stores the rules for a start without Redis, unless they are stored already. The rules are in force even if
    /// this fails.
    pub(super) async fn keep(&self, version: u64, new: NewVersion) {
        let is_kept = self
            .data_dir
            .current()
            .is_some_and(|kept| kept.shared == Some(version) && kept.rules == new.rules);
        if is_kept {
            return;
        }
        let new = NewVersion {
            shared: Some(version),
            ..new
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
