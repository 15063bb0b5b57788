//! Changes of temporary overrides: what they do to those that are kept, and their rows in the history.

use tidegate::rules::OverrideKey;
use tidegate::{Micros, Timestamp};

use super::kept::{ChangeOfOverride, KeptOverride, KeptOverrides, OverrideMark, OverrideRow};
use crate::data_dir::{DataDirError, Row};
use crate::seconds::date_time;
use crate::shared_document::SharedChangeError;

/// How many a rule may have at a time.
pub(super) const MOST_PER_RULE: usize = 1_000;

/// The largest text that is kept. A start must be able to read it, and each change writes it.
const MOST_BYTES: usize = 16 << 20;

/// How long one that has ended is kept for requests with a time of their own that is a little late.
const GRACE: Micros = Micros::MINUTE;

/// How many characters of a key a row shows.
const SHOWN: usize = 64;

/// A change of the overrides.
#[derive(Debug, Clone)]
pub(crate) enum OverrideChange {
    /// Adds an override, or replaces the one of the same client.
    Put {
        new: Box<KeptOverride>,
        named: MeantKey,
    },
    /// Removes those of a rule whose keys are meant.
    Remove { rule: String, named: MeantKey },
    /// Removes those that ended a while ago.
    RemoveEnded,
}

impl OverrideChange {
    /// Whether it is a row in the history.
    pub(super) fn has_row(&self) -> bool {
        !matches!(self, Self::RemoveEnded)
    }
}

/// Which key a caller means.
#[derive(Debug, Clone)]
pub(crate) struct MeantKey {
    /// As the caller wrote it.
    pub(crate) written: String,
    /// As its rule reads it, if the rule exists.
    pub(crate) read: Option<OverrideKey>,
}

impl MeantKey {
    fn is_for(&self, key: &OverrideKey) -> bool {
        self.read.as_ref() == Some(key) || key.is_written(&self.written)
    }
}

/// The author and the time of a change, and the rules at that time.
#[derive(Debug, Clone)]
pub(crate) struct ChangedBy {
    pub(crate) by: String,
    pub(crate) at: Timestamp,
    /// The version of the rules in force.
    pub(crate) version: u64,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OverrideError {
    #[error(
        "rule `{0}` has no temporary override for this key; `/v1/rules/{0}/overrides` lists those that it has"
    )]
    // Without the key, which may be a secret.
    NoSuchOverride(String),
    #[error(
        "rule `{0}` has {MOST_PER_RULE} temporary overrides already; remove some, or add `overrides` to the rule"
    )]
    TooMany(String),
    #[error("there is no room for more temporary overrides; remove some, or give shorter reasons")]
    TooLarge,
    #[error(transparent)]
    Shared(#[from] SharedChangeError),
    #[error(
        "version {0} of the temporary overrides in Redis cannot be read by this program; change them with a server of the version that wrote them"
    )]
    Unreadable(u64),
    #[error("other servers changed the temporary overrides at the same time; repeat the change")]
    Contended,
    #[error(transparent)]
    NotKept(#[from] DataDirError),
}

impl KeptOverrides {
    /// These after a change, with its row; at most `history` rows are kept. `None` if there is nothing to do.
    pub(super) fn after(
        &self,
        change: &OverrideChange,
        changed: &ChangedBy,
        history: usize,
    ) -> Result<Option<Self>, OverrideError> {
        let mut next = self.clone();
        let mark = match change {
            OverrideChange::Put { new, named } => Some(next.put(new, named, changed.at)?),
            OverrideChange::Remove { rule, named } => Some(next.remove(rule, named)?),
            OverrideChange::RemoveEnded => {
                next.overrides.retain(|one| one.is_live(changed.at - GRACE));
                if next.overrides.len() == self.overrides.len() {
                    return Ok(None);
                }
                None
            }
        };
        if let Some(mark) = mark {
            let row = Row {
                version: changed.version,
                at: changed.at,
                by: changed.by.clone(),
                changes: vec![mark.text.clone()],
            };
            next.rows.insert(0, OverrideRow { row, mark });
            next.rows.truncate(history.max(1));
        }
        let is_larger = next.overrides.len() > self.overrides.len();
        if is_larger && next.to_json().len() > MOST_BYTES {
            return Err(OverrideError::TooLarge);
        }
        Ok(Some(next))
    }

    fn put(
        &mut self,
        new: &KeptOverride,
        named: &MeantKey,
        now: Timestamp,
    ) -> Result<OverrideMark, OverrideError> {
        let is_same = |one: &KeptOverride| one.rule == new.rule && named.is_for(&one.grant.key);
        let is_changed = |one: &KeptOverride| is_same(one) && one.is_live(now);
        let (what, verb) = if self.overrides.iter().any(is_changed) {
            (ChangeOfOverride::Changed, "changed")
        } else {
            (ChangeOfOverride::Added, "added")
        };
        self.overrides.retain(|one| !is_same(one));
        let is_counted = |one: &&KeptOverride| one.rule == new.rule && one.is_live(now);
        if self.overrides.iter().filter(is_counted).count() >= MOST_PER_RULE {
            return Err(OverrideError::TooMany(new.rule.clone()));
        }
        self.overrides.push(new.clone());
        let reason = new.reason.as_deref();
        let because = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        let key = shortened(&new.grant.key.text());
        let text = format!(
            "{verb} override of {} for {key}: {} until {}{because}",
            new.rule,
            new.grant.limit,
            date_time(new.grant.expires_at),
        );
        Ok(OverrideMark {
            rule: new.rule.clone(),
            key,
            what,
            text,
        })
    }

    fn remove(&mut self, rule: &str, named: &MeantKey) -> Result<OverrideMark, OverrideError> {
        let is_meant = |one: &KeptOverride| one.rule == rule && named.is_for(&one.grant.key);
        let Some(found) = self.overrides.iter().find(|one| is_meant(one)) else {
            return Err(OverrideError::NoSuchOverride(rule.to_owned()));
        };
        let key = shortened(&found.grant.key.text());
        self.overrides.retain(|one| !is_meant(one));
        Ok(OverrideMark {
            rule: rule.to_owned(),
            text: format!("removed override of {rule} for {key}"),
            key,
            what: ChangeOfOverride::Removed,
        })
    }
}

fn shortened(key: &str) -> String {
    match key.char_indices().nth(SHOWN) {
        Some((end, _)) if !key.starts_with("sha256:") => format!("{}…", &key[..end]),
        _ => key.to_owned(),
    }
}
