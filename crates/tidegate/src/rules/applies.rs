//! Whether a rule applies to a request, and if not, why: the same code decides and explains.

use tidegate_core::Timestamp;

use super::facts::Facts;
use super::rule::Rule;

/// The first condition of a rule that a request does not meet, in the order in which they are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unmet {
    StartsAt,
    ExpiresAt,
    Method,
    Host,
    Path,
    Ip,
    /// The attribute of `match` with this index.
    Attribute(usize),
    When,
    /// `when` cannot be evaluated for the request.
    Unevaluable,
    /// The item of `except` with this index holds.
    Except(usize),
    /// An attribute of `per` is missing, and the rule skips such requests.
    Missing,
}

/// Whether a rule applies to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RuleCheck {
    pub(crate) result: Result<(), Unmet>,
    /// Whether a condition could not be evaluated.
    pub(crate) has_failed: bool,
}

impl Rule {
    /// Whether it applies to a request at `now`, as far as `per` does not matter.
    pub(crate) fn check(&self, facts: &Facts<'_, '_>, now: Timestamp) -> RuleCheck {
        let met = self.lives(now).and_then(|()| self.matches(facts));
        if let Err(unmet) = met {
            return RuleCheck {
                result: met,
                has_failed: unmet == Unmet::Unevaluable,
            };
        }
        let mut has_failed = false;
        let excepted = self.except.iter().position(|item| {
            let holds = facts.all(|reading| item.check(reading));
            has_failed |= holds == Err(Unmet::Unevaluable);
            holds.is_ok()
        });
        RuleCheck {
            result: excepted.map_or(Ok(()), |index| Err(Unmet::Except(index))),
            has_failed,
        }
    }

    /// Whether it has started and has not expired at `now`.
    fn lives(&self, now: Timestamp) -> Result<(), Unmet> {
        if self.starts_at.is_some_and(|start| now < start) {
            return Err(Unmet::StartsAt);
        }
        if self.expires_at.is_some_and(|end| end <= now) {
            return Err(Unmet::ExpiresAt);
        }
        Ok(())
    }

    /// Whether all parts of `match` hold, for any reading of the request's path.
    pub(crate) fn matches(&self, facts: &Facts<'_, '_>) -> Result<(), Unmet> {
        facts.any(|reading| self.matches.check(reading))
    }
}
