//! Forgets what somebody has used.

use tidegate_core::{Store, StoreError};

use super::Gate;
use crate::attributes::Attributes;
use crate::rules::{Facts, Grant, Key, Rule};

/// Why nothing was forgotten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResetError {
    /// There is no such rule.
    #[error("there is no rule `{rule}`")]
    NoSuchRule {
        /// The id that was given.
        rule: String,
    },
    /// The attributes do not say whose counter is meant.
    #[error("rule `{rule}` counts by {per}; give these attributes")]
    WhoIsMissing {
        /// The rule's id.
        rule: String,
        /// What it counts by.
        per: String,
    },
    /// The store could not do it; the same call may work later.
    #[error("the store could not forget it")]
    Store(#[from] StoreError),
}

impl<S: Store> Gate<S> {
    /// Forgets what these attributes have used: of this rule, or of every rule that counts by
    /// attributes that are all given, whatever else the rule matches.
    ///
    /// A counter that all share is forgotten only if its rule is named, or if the attributes match
    /// it and no other counter is theirs.
    pub async fn reset(
        &self,
        attributes: &Attributes<'_>,
        rule: Option<&str>,
    ) -> Result<(), ResetError> {
        let rules = self.rules();
        if let Some(id) = rule {
            let rule = rules.get(id).ok_or_else(|| ResetError::NoSuchRule {
                rule: id.to_owned(),
            })?;
            let Key::Known(key) = rule.key(attributes) else {
                let per: Vec<String> = rule.per().iter().map(|name| format!("`{name}`")).collect();
                return Err(ResetError::WhoIsMissing {
                    rule: id.to_owned(),
                    per: per.join(" and "),
                });
            };
            return Ok(self.forget(rule, &key).await?);
        }
        let mut is_found = false;
        for rule in rules.iter().filter(|rule| !rule.per().is_empty()) {
            match rule.key(attributes) {
                Key::Known(key) if !key.is_empty() => {
                    is_found = true;
                    self.forget(rule, &key).await?;
                }
                Key::Known(_) | Key::Denied | Key::Skipped => {}
            }
        }
        if is_found {
            return Ok(());
        }
        for place in rules.candidates(attributes) {
            let rule = rules.at(place as usize);
            if let (Ok(true), Key::Known(key)) =
                (rule.matches(&Facts::of(attributes)), rule.key(attributes))
            {
                self.forget(rule, &key).await?;
            }
        }
        Ok(())
    }

    async fn forget(&self, rule: &Rule, key: &str) -> Result<(), StoreError> {
        for grant in rule.grants() {
            let Grant::Limits(limits) = grant else {
                continue;
            };
            for limit in limits {
                self.local.forget(rule.scope(), limit, key);
                self.store.forget(rule.scope(), limit, key).await?;
            }
        }
        Ok(())
    }
}
