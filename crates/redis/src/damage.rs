//! Values in Redis that are not the states that they should be: which rules met them, and when.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::Scope;
use tokio::time::Instant;

use crate::monotonic::now;

/// How long damage is reported after it was last met.
const REPORTED_FOR: Duration = Duration::from_mins(1);
/// How often the damage of one rule is logged at the most.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// How many rules are remembered at the most.
const MAX_RULES: usize = 1_000;

/// Damage that decisions of a rule have met within the last minute.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The rule's id.
    pub rule: String,
    /// The problem, and how it was handled.
    pub problem: &'static str,
    /// How many decisions have met it since it began.
    pub met: u64,
}

/// The kinds of damaged states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DamageKind {
    /// It has the right type and cannot be read.
    Unreadable,
    /// It had another type, and was removed.
    Foreign,
    /// It had numbers that no version writes, which were removed.
    Negative,
}

impl DamageKind {
    fn problem(self) -> &'static str {
        match self {
            Self::Unreadable => {
                "a counter in Redis cannot be read; until it is removed or expires, the rule does what its `on_store_failure` says"
            }
            Self::Foreign => {
                "a key in Redis had a type that no counter of this rule has; it was removed, and the counter restarts"
            }
            Self::Negative => {
                "a counter in Redis had numbers that Tidegate does not write; they were removed"
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct LastSeen {
    met: u64,
    last: Instant,
    logged: Option<Instant>,
}

/// All damage that was met.
#[derive(Debug, Default)]
pub(crate) struct Damages {
    seen: Mutex<HashMap<(Box<str>, DamageKind), LastSeen>>,
}

impl Damages {
    /// Notes that a decision by a rule has met something, and logs it now and then. Never the key, which
    /// names a client.
    pub(crate) fn note(&self, scope: &Scope, kind: DamageKind) {
        let (rule, now) = (rule_of(scope), now());
        let mut seen = self.seen.lock();
        if seen.len() >= MAX_RULES {
            seen.retain(|_, seen| now - seen.last < REPORTED_FOR);
        }
        if seen.len() >= MAX_RULES {
            return;
        }
        let new = LastSeen {
            met: 0,
            last: now,
            logged: None,
        };
        let of_rule = seen.entry((rule.into(), kind)).or_insert(new);
        of_rule.met += 1;
        of_rule.last = now;
        let is_due = of_rule.logged.is_none_or(|at| now - at >= LOG_EVERY);
        if is_due {
            of_rule.logged = Some(now);
        }
        drop(seen);
        if is_due {
            tracing::warn!(rule, "{}", kind.problem());
        }
    }

    /// The damage found within the last minute, by rule.
    pub(crate) fn current(&self) -> Vec<Damage> {
        let now = now();
        let mut seen = self.seen.lock();
        seen.retain(|_, seen| now - seen.last < REPORTED_FOR);
        let mut current: Vec<Damage> = seen
            .iter()
            .map(|((rule, kind), seen)| Damage {
                rule: rule.to_string(),
                problem: kind.problem(),
                met: seen.met,
            })
            .collect();
        current.sort_by(|one, other| (&one.rule, one.problem).cmp(&(&other.rule, other.problem)));
        current
    }
}

/// The id of the rule that a scope belongs to, without the attributes of `per`. A scope that several rules share begins
/// with `@` and is returned whole.
fn rule_of(scope: &Scope) -> &str {
    let name = scope.name();
    match name.split_once('@') {
        None | Some(("", _)) => name,
        Some((rule, _)) => rule,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_names_its_rule_or_itself() {
        for (scope, rule) in [
            ("per-user@user_id", "per-user"),
            ("cl.throttle", "cl.throttle"),
            ("@3.web@4.user", "@3.web@4.user"),
        ] {
            assert_eq!(rule_of(&Scope::new(scope)), rule);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn damage_is_reported_by_rule_for_a_minute() {
        let damages = Damages::default();
        let scope = Scope::new("per-user@user_id");
        damages.note(&scope, DamageKind::Unreadable);
        damages.note(&scope, DamageKind::Unreadable);
        damages.note(&Scope::new("other@"), DamageKind::Foreign);
        let reported: Vec<(String, u64)> = damages
            .current()
            .into_iter()
            .map(|damage| (damage.rule, damage.met))
            .collect();
        assert_eq!(
            reported,
            [("other".to_owned(), 1), ("per-user".to_owned(), 2)]
        );
        tokio::time::advance(Duration::from_secs(59)).await;
        damages.note(&scope, DamageKind::Unreadable);
        tokio::time::advance(Duration::from_secs(1)).await;
        let current = damages.current();
        assert_eq!((current.len(), current[0].met), (1, 3));
    }
}
