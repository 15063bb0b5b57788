//! Forgets what a client has used, and says whether it has used anything.

use std::sync::Arc;

use tidegate_core::{Charge, Limit, Outcome, Request, StoreError, Timestamp};

use super::Gate;
use super::in_force::InForce;
use crate::attributes::Attributes;
use crate::rules::{CounterKey, Grant, Rule, RuleSet, limits_text};

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
    /// The attributes do not say whose counter of the rule is meant.
    #[error("rule `{rule}` counts by {per}; give these attributes")]
    WhoIsMissing {
        /// The rule's id.
        rule: String,
        /// What it counts by.
        per: String,
    },
    /// The attributes name no counter of any rule.
    #[error(
        "these attributes name no counter{}; a counter that all clients share is reset only if `rule` names its rule",
        counted_by(per)
    )]
    NoCounter {
        /// What the rules count by.
        per: Vec<String>,
    },
    /// The store could not do it; the same call may work later. Some counters may be reset already.
    #[error("the store could not forget it")]
    Store(#[from] StoreError),
}

fn counted_by(per: &[String]) -> String {
    match per {
        [] => ", because no rule counts by any".to_owned(),
        _ => format!("; the rules count by {}", per.join(", ")),
    }
}

/// What was forgotten.
#[derive(Debug, Default)]
pub struct Reset {
    /// The counters, in the order of their rules, one for each limit.
    pub counters: Vec<ResetCounter>,
    /// The attributes that were given and that no rule counts by.
    pub ignored: Vec<String>,
}

/// A counter that was forgotten.
#[derive(Debug)]
pub struct ResetCounter {
    /// Its rule.
    pub rule: Arc<Rule>,
    /// What the limit grants: requests per window, or the capacity of a bucket; 0 if the client is blocked.
    pub limit: u64,
    /// What was used of it before the reset; more than the limit if it was lowered meanwhile.
    pub used: u64,
    /// What the rule grants to the client now, as rules write it: `100/minute`, `unlimited`, `blocked`.
    pub grant: String,
}

impl Gate {
    /// Forgets what these attributes have used: of this rule, or of every rule that counts by
    /// attributes that are all given, whatever else the rule matches and whether it has expired.
    ///
    /// What was used is reported as of the attributes' own time, if they have one. A counter that all
    /// clients share is forgotten only if its rule is named. What is charged between
    /// the report and the reset is forgotten and not reported.
    pub async fn reset(
        &self,
        attributes: &Attributes<'_>,
        rule: Option<&str>,
    ) -> Result<Reset, ResetError> {
        let rules = self.rules();
        let mut reset = Reset {
            counters: Vec::new(),
            ignored: ignored(&rules, attributes),
        };
        if let Some(id) = rule {
            let no_such_rule = || ResetError::NoSuchRule {
                rule: id.to_owned(),
            };
            let index = rules.index_of(id).ok_or_else(no_such_rule)?;
            let rule = rules.at(index);
            let CounterKey::Known(key) = rule.key(attributes) else {
                return Err(ResetError::WhoIsMissing {
                    rule: id.to_owned(),
                    per: quoted(rule.per()).join(" and "),
                });
            };
            self.forget(&rules.0, index, attributes, &key, &mut reset)
                .await?;
            return Ok(reset);
        }
        let mut is_found = false;
        // Lines of a file that differ in their limits alone have the same counters.
        let line = rules.descriptor_rule(attributes).map(Rule::id);
        let is_meant = |rule: &Rule| !rules.is_by_descriptors() || line == Some(rule.id());
        let all = rules.iter().enumerate();
        for (index, rule) in all.filter(|(_, rule)| is_meant(rule)) {
            match rule.key(attributes) {
                CounterKey::Known(key) if !key.is_empty() && !rule.per().is_empty() => {
                    is_found = true;
                    self.forget(&rules.0, index, attributes, &key, &mut reset)
                        .await?;
                }
                CounterKey::Known(_) | CounterKey::Denied | CounterKey::Skipped => {}
            }
        }
        if !is_found {
            let mut per: Vec<String> = rules.iter().flat_map(|rule| quoted(rule.per())).collect();
            per.sort();
            per.dedup();
            return Err(ResetError::NoCounter { per });
        }
        Ok(reset)
    }

    /// Whether these attributes have used anything: of this rule, or of any rule that counts by `attribute`. Only
    /// counters are asked that all of the attributes of their rule are given for.
    pub async fn has_used(
        &self,
        attributes: &Attributes<'_>,
        attribute: &str,
        rule: Option<&str>,
    ) -> Result<bool, StoreError> {
        let rules = self.rules();
        for (index, one) in rules.iter().enumerate() {
            let is_meant = rule.is_none_or(|rule| rule == one.id());
            if !is_meant || !one.per().iter().any(|name| name == attribute) {
                continue;
            }
            let CounterKey::Known(key) = one.key(attributes) else {
                continue;
            };
            if key.is_empty() {
                continue;
            }
            for state in states(&[], rules.0.grants(index)) {
                let used = self.used(&one, state.largest, &key, attributes.time());
                if used.await? > 0 {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Forgets every state that a rule keeps under this key, also those of tiers and overrides that do
    /// not apply now.
    async fn forget(
        &self,
        in_force: &InForce,
        index: usize,
        attributes: &Attributes<'_>,
        key: &str,
        reset: &mut Reset,
    ) -> Result<(), StoreError> {
        let rule = in_force.shared(index);
        let moved = in_force.current_limit(index);
        let (grant, _) = in_force.grant_for(index, attributes, self.time_of(attributes));
        let grant = in_force.grant(index, grant);
        let is_blocked = *grant == Grant::Blocked;
        let mut is_reported = false;
        let current = moved.as_deref();
        let granted = match current {
            Some(limit) => limits_text(std::slice::from_ref(limit)),
            None => grant.text(),
        };
        let current = current.map_or(grant.limits(), std::slice::from_ref);
        for state in states(current, in_force.grants(index)) {
            let limit = state.in_force.unwrap_or(state.largest);
            let at = attributes.time();
            let mut used = self.used(rule, limit, key, at).await?;
            if used >= limit.capacity() && limit.capacity() < state.largest.capacity() {
                used = used.max(self.used(rule, state.largest, key, at).await?);
            }
            self.local.forget(rule.scope(), limit, key);
            self.store.forget(rule.scope(), limit, key).await?;
            // A tier that does not apply is worth a word only if something was used of it.
            if state.in_force.is_some() || used > 0 {
                is_reported = true;
                reset.counters.push(ResetCounter {
                    rule: Arc::clone(rule),
                    limit: if is_blocked { 0 } else { limit.capacity() },
                    used,
                    grant: granted.clone(),
                });
            }
        }
        if let Some(candidate) = rule.candidate() {
            for state in states(&[], candidate.grants().iter()) {
                let (scope, limit) = (candidate.scope(), state.largest);
                self.local.forget(scope, limit, key);
                self.store.forget(scope, limit, key).await?;
            }
        }
        // That nothing was reset would not say why the client is denied.
        if is_blocked && !is_reported {
            reset.counters.push(ResetCounter {
                rule: Arc::clone(rule),
                limit: 0,
                used: 0,
                grant: granted,
            });
        }
        Ok(())
    }

    async fn used(
        &self,
        rule: &Rule,
        limit: &Limit,
        key: &str,
        at: Option<Timestamp>,
    ) -> Result<u64, StoreError> {
        let charges = [Charge {
            scope: rule.scope(),
            limit,
            key,
            cost: 0,
        }];
        let request = Request {
            at,
            ..Request::new(&charges)
        };
        let outcomes = self.store.peek(&request).await?;
        let used = |outcome: &Outcome| outcome.limit.saturating_sub(outcome.remaining);
        Ok(outcomes.first().map_or(0, used))
    }
}

/// A state that a rule keeps, which limits of the same shape share.
struct ResetState<'r> {
    shape: u64,
    /// The limit that applies, if one does.
    in_force: Option<&'r Limit>,
    /// The largest that tiers and overrides grant.
    largest: &'r Limit,
}

/// The states of a rule: those of the limits that apply to a request, then the others.
fn states<'r>(
    in_force: &'r [Limit],
    grants: impl Iterator<Item = &'r Grant>,
) -> Vec<ResetState<'r>> {
    let mut states: Vec<ResetState<'r>> = in_force
        .iter()
        .map(|limit| ResetState {
            shape: limit.shape(),
            in_force: Some(limit),
            largest: limit,
        })
        .collect();
    for limit in grants.flat_map(Grant::limits) {
        let known = states
            .iter_mut()
            .filter(|state| state.shape == limit.shape());
        let mut is_known = false;
        for state in known {
            is_known = true;
            if state.largest.capacity() < limit.capacity() {
                state.largest = limit;
            }
        }
        if !is_known {
            states.push(ResetState {
                shape: limit.shape(),
                in_force: None,
                largest: limit,
            });
        }
    }
    states
}

/// The attributes that were given and that no rule counts by, nor chooses a limit by.
fn ignored(rules: &RuleSet, attributes: &Attributes<'_>) -> Vec<String> {
    let is_read = |name: &str| {
        rules.iter().any(|rule| {
            rule.per().iter().any(|per| per == name) || name == "tier" && rule.has_tiers()
        })
    };
    let names = attributes.iter().map(|(name, _)| name);
    let names = names.filter(|name| !is_read(name));
    names.map(str::to_owned).collect()
}

fn quoted(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("`{name}`")).collect()
}
