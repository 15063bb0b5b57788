//! Changes to rules through the API: planned, stored, and only then in force.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tidegate::Gate;
use tidegate::document::Problems;
use tidegate::rules::{Rule, RuleSet, RuleSettings};

use super::kept::VersionError;
use super::{Origin, RuleBook, etag, etag_of, now, read_list};
use crate::data_dir::{DataDirError, NewVersion};
use crate::shared_document::{ATTEMPTS, SharedChangeError};

/// A change to the rules.
#[derive(Debug)]
pub enum RuleChange {
    /// Replaces all rules.
    ReplaceAll(Box<RuleSet>),
    /// Adds a rule.
    Create(Arc<Rule>),
    /// Replaces the rule with this id, or adds it.
    Put(Arc<Rule>),
    /// Removes the rule with this id.
    Delete(String),
    /// Replaces all rules with those of an earlier version.
    RollBack(u64),
    /// Takes the rule with this id to its [next step](Rule::promoted).
    Promote(String),
}

impl RuleChange {
    /// Whether it replaces all rules, whatever they were.
    fn is_whole(&self) -> bool {
        matches!(self, Self::ReplaceAll(_) | Self::RollBack(_))
    }
}

/// The precondition of a change, from the caller's `If-Match` and `If-None-Match`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// The target exists and has one of these tags; `*` for any.
    pub tags: Option<Vec<String>>,
    /// The target does not exist yet.
    pub is_absent: bool,
    /// The rules have this version.
    pub version: Option<u64>,
}

/// The result of a change.
#[derive(Debug, PartialEq, Eq)]
pub struct Changed {
    /// The version in force now.
    pub version: u64,
    /// Whether a rule was added by [`RuleChange::Put`] or [`RuleChange::Create`].
    pub is_created: bool,
    /// The differences, in words.
    pub changes: Vec<String>,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The rules come from a file.
    #[error("the rules come from the file `{file}`; change that instead, it is reloaded by itself")]
    FromFile {
        /// The file.
        file: String,
    },
    /// The rules come from a management server.
    #[error("these rules come from the management server {server}; change them there")]
    FromServer {
        /// Its address.
        server: String,
    },
    /// Another change came first.
    #[error("{0} has changed meanwhile; read it again and repeat the change with its new ETag")]
    Stale(String),
    /// The body was based on another version.
    #[error(
        "the body is of version {given}, and the rules are of version {current} now; read them again, or leave `version` out to replace them all the same"
    )]
    OtherVersion {
        /// The version that the caller has seen.
        given: u64,
        /// The version in force.
        current: u64,
    },
    /// There is no such rule.
    #[error("there is no rule `{0}`")]
    NoSuchRule(String),
    /// The version to return to cannot be read.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The rule has no next step.
    #[error(
        "there is nothing to promote in rule `{0}`: it has no `candidate`, no `rollout` and no `mode: shadow`"
    )]
    NothingToPromote(String),
    /// The rule already exists.
    #[error("there is a rule `{0}` already; change it with PUT, or choose another id")]
    Duplicate(String),
    /// The rules of that version cannot be used by this program.
    #[error("the rules cannot be used")]
    Invalid(Problems),
    /// The rules are in Redis, which does not answer.
    #[error(transparent)]
    Shared(#[from] SharedChangeError),
    /// This program cannot read the rules in Redis.
    #[error(
        "{0}; replace all rules, or roll back, or change them with a server of the version that wrote them"
    )]
    Unreadable(String),
    /// The new rules could not be stored.
    #[error(transparent)]
    NotKept(#[from] DataDirError),
    /// The server is shutting down; the change may or may not be made.
    #[error(
        "the change was interrupted because the server is shutting down; read the rules before you repeat it"
    )]
    Interrupted,
}

impl ChangeError {
    fn from_file(file: &Path) -> Self {
        Self::FromFile {
            file: file.display().to_string(),
        }
    }
}

/// What a change would do.
#[derive(Debug)]
pub struct Preview {
    /// The version that would be changed.
    pub version: u64,
    /// Its rules: a list.
    pub before: Value,
    /// The rules after the change: a list.
    pub after: Value,
}

impl RuleBook {
    /// Makes a change: stores the new rules, then puts them in force. If another server was faster, the change is
    /// tried again on its result, if that is still as `expected`.
    pub async fn change(
        &self,
        gate: &Gate,
        by: &str,
        expected: &Expected,
        change: RuleChange,
    ) -> Result<Changed, ChangeError> {
        let _changing = self.changing.lock().await;
        for _ in 0..ATTEMPTS {
            let (planned, after) = self.plan(gate, expected, &change).await?;
            if planned.changes.is_empty() {
                return Ok(planned.with_version(after));
            }
            let new = new_version(by, &planned.changes, Arc::new(planned.rules.written()));
            let written = match &self.origin {
                Origin::File(file) => return Err(ChangeError::from_file(&file.rules.path)),
                Origin::Xds(xds) => return Err(xds.change_error()),
                Origin::DataDir(data_dir) => {
                    let (data_dir, new) = (Arc::clone(data_dir), new.clone());
                    let writing = tokio::task::spawn_blocking(move || data_dir.write(&new));
                    let written = writing.await.map_err(|_| ChangeError::Interrupted)??;
                    Some(written.version)
                }
                Origin::Shared(shared) => shared.write(after, &new).await?,
            };
            let Some(version) = written else {
                continue;
            };
            let (rules, changed) = planned.split(version);
            // Counters carry over to the new rules only if this holds the last reference.
            drop(change);
            self.version.store(version, Ordering::Release);
            gate.replace_rules(rules);
            if let Some(shared) = self.shared() {
                self.has_rules.store(true, Ordering::Release);
                *self.problem.write() = None;
                shared.keep(version, new).await;
            }
            return Ok(changed);
        }
        Err(ChangeError::Stale("the set of rules".to_owned()))
    }

    /// What a change would do. Fails as the change would, and changes nothing.
    pub async fn preview(
        &self,
        gate: &Gate,
        expected: &Expected,
        change: &RuleChange,
    ) -> Result<Preview, ChangeError> {
        let _changing = self.changing.lock().await;
        let (planned, version) = self.plan(gate, expected, change).await?;
        Ok(Preview {
            version,
            before: gate.rules().written(),
            after: planned.rules.written(),
        })
    }

    /// The rules after a change, and the version that they would follow. The caller holds `changing`.
    async fn plan(
        &self,
        gate: &Gate,
        expected: &Expected,
        change: &RuleChange,
    ) -> Result<(PlannedChange, u64), ChangeError> {
        if let Some(path) = self.file() {
            return Err(ChangeError::from_file(path));
        }
        if let Some(xds) = self.xds() {
            return Err(xds.change_error());
        }
        let is_unconditional = change.is_whole() && *expected == Expected::default();
        let (version, replaced) = self.version_to_change(gate, is_unconditional).await?;
        let current = gate.rules();
        expected.check(version, &current, change)?;
        let mut planned = self.planned(&current, change).await?;
        planned.changes.splice(0..0, replaced);
        Ok((planned, version))
    }

    /// Applies a change to the rules in force.
    async fn planned(
        &self,
        current: &RuleSet,
        change: &RuleChange,
    ) -> Result<PlannedChange, ChangeError> {
        let mut is_created = false;
        let mut rules: Vec<Arc<Rule>> = current.iter().map(Arc::clone).collect();
        let position = |id: &str| current.iter().position(|rule| rule.id() == id);
        let mut because = None;
        match change {
            RuleChange::ReplaceAll(set) => rules = set.iter().map(Arc::clone).collect(),
            RuleChange::Create(rule) => {
                if position(rule.id()).is_some() {
                    return Err(ChangeError::Duplicate(rule.id().to_owned()));
                }
                is_created = true;
                rules.push(Arc::clone(rule));
            }
            RuleChange::Put(rule) => {
                if let Some(at) = position(rule.id()) {
                    rules[at] = Arc::clone(rule);
                } else {
                    is_created = true;
                    rules.push(Arc::clone(rule));
                }
            }
            RuleChange::Delete(id) => match position(id) {
                Some(at) => drop(rules.remove(at)),
                None => return Err(ChangeError::NoSuchRule(id.clone())),
            },
            RuleChange::RollBack(version) => {
                let earlier = self.kept(*version).await?.rules;
                let set = read_list(&earlier, &self.settings).map_err(ChangeError::Invalid)?;
                rules = set.iter().map(Arc::clone).collect();
                because = Some(format!("rolled back to version {version}"));
            }
            RuleChange::Promote(id) => {
                let at = position(id).ok_or_else(|| ChangeError::NoSuchRule(id.clone()))?;
                let nothing = || ChangeError::NothingToPromote(id.clone());
                let promoted = rules[at].promoted().ok_or_else(nothing)?;
                rules[at] = Arc::new(read_one(&promoted, &self.settings)?);
            }
        }
        let rules = RuleSet::from_rules(rules).map_err(ChangeError::Invalid)?;
        let mut changes = match change {
            RuleChange::Promote(id) => vec![format!("promoted {id}")],
            _ => between(current, &rules),
        };
        changes.splice(0..0, because);
        Ok(PlannedChange {
            rules,
            is_created,
            changes,
        })
    }
}

/// Reads one rule.
fn read_one(rule: &Value, settings: &RuleSettings) -> Result<Rule, ChangeError> {
    let rules = Value::Array(vec![rule.clone()]);
    let set = read_list(&rules, settings).map_err(ChangeError::Invalid)?;
    let rule = set.iter().next().map(|rule| Rule::clone(rule));
    rule.ok_or_else(|| ChangeError::Unreadable("the rule was not read".to_owned()))
}

/// A version of the rules that is made now.
pub(super) fn new_version(by: &str, changes: &[String], rules: Arc<Value>) -> NewVersion {
    NewVersion {
        at: now(),
        by: by.to_owned(),
        changes: changes.to_vec(),
        rules,
        shared: None,
    }
}

/// The rules after a change that is not stored yet.
struct PlannedChange {
    rules: RuleSet,
    is_created: bool,
    /// The differences, in words; empty if there is nothing to do.
    changes: Vec<String>,
}

impl PlannedChange {
    fn with_version(self, version: u64) -> Changed {
        self.split(version).1
    }

    fn split(self, version: u64) -> (RuleSet, Changed) {
        let changed = Changed {
            version,
            is_created: self.is_created,
            changes: self.changes,
        };
        (self.rules, changed)
    }
}

impl Expected {
    /// Checks the precondition against the rules in force and their version.
    fn check(
        &self,
        version: u64,
        current: &RuleSet,
        change: &RuleChange,
    ) -> Result<(), ChangeError> {
        let id = match change {
            RuleChange::ReplaceAll(_) | RuleChange::RollBack(_) => None,
            RuleChange::Create(rule) | RuleChange::Put(rule) => Some(rule.id()),
            RuleChange::Delete(id) | RuleChange::Promote(id) => Some(id.as_str()),
        };
        let name = id.map_or_else(
            || "the set of rules".to_owned(),
            |id| format!("rule `{id}`"),
        );
        let tag = match id {
            Some(id) => current.get(id).map(|rule| etag_of(rule)),
            None => Some(etag(&current.written())),
        };
        if self.is_absent && tag.is_some() {
            return Err(ChangeError::Stale(name));
        }
        if let Some(wanted) = &self.tags {
            let fits = |tag: &String| wanted.iter().any(|one| one == "*" || one == tag);
            if !tag.is_some_and(|tag| fits(&tag)) {
                return Err(ChangeError::Stale(name));
            }
        }
        match self.version {
            Some(given) if given != version => Err(ChangeError::OtherVersion {
                given,
                current: version,
            }),
            _ => Ok(()),
        }
    }
}

/// The differences between two sets of rules, in words.
pub(super) fn between(before: &RuleSet, after: &RuleSet) -> Vec<String> {
    let mut changes = Vec::new();
    for rule in after.iter() {
        match before.get(rule.id()) {
            None => changes.push(format!("added {}", rule.id())),
            Some(earlier) if etag_of(earlier) != etag_of(rule) => {
                changes.push(format!("changed {}", rule.id()));
            }
            Some(_) => {}
        }
    }
    for rule in before.iter().filter(|rule| after.get(rule.id()).is_none()) {
        changes.push(format!("removed {}", rule.id()));
    }
    let order = |set: &RuleSet, other: &RuleSet| -> Vec<String> {
        let ids = set.iter().map(|rule| rule.id().to_owned());
        ids.filter(|id| other.get(id).is_some()).collect()
    };
    if order(before, after) != order(after, before) {
        changes.push("changed the order".to_owned());
    }
    // A descriptor without a limit matters too: it keeps those with a limit from applying.
    if changes.is_empty() && before.descriptors() != after.descriptors() {
        changes.push("changed the descriptors".to_owned());
    }
    changes
}
