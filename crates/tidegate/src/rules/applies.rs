//! Whether a rule applies to a request, and if not, why: the same code decides and explains.

use tidegate_core::Timestamp;

use super::facts::Facts;
use super::matching::Match;
use super::rule::{Cost, Rule};

/// Attributes that every front end knows of a request, so that a client cannot leave them out.
pub(super) const ALWAYS_KNOWN: [&str; 4] = ["ip", "method", "path", "host"];

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

impl Unmet {
    /// Whether it is about the time of a request or where it goes, which do not change.
    pub(crate) fn is_about_route(self) -> bool {
        matches!(
            self,
            Self::StartsAt | Self::ExpiresAt | Self::Method | Self::Host | Self::Path | Self::Ip
        )
    }
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
        // An attribute that is missing only because of invalid credentials makes a rule apply, and never exempts a
        // request.
        let is_refused = |item: &Match| {
            let refused = facts.refused();
            refused.is_some_and(|refused| refused.reason(|name| item.reads(name)).is_some())
        };
        let excepted = self.except.iter().position(|item| {
            let holds = facts.all(|reading| item.check(reading, &self.unit));
            has_failed |= holds == Err(Unmet::Unevaluable);
            holds.is_ok() && !is_refused(item)
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
        facts.any(|reading| self.matches.check(reading, &self.unit))
    }

    /// Whether the rule reads an attribute: to match, to count, to choose a grant, or to charge.
    pub(crate) fn reads(&self, attribute: &str) -> bool {
        // A descriptor reads all entries of a request.
        self.descriptor.is_some()
            || self.per.iter().any(|name| name == attribute)
            || (attribute == "tier" && self.has_tiers())
            || matches!(&self.cost, Cost::Attribute(name) if name == attribute)
            || self.matches.reads(attribute)
            || self.except.iter().any(|item| item.reads(attribute))
    }

    /// Whether it reads an attribute that credentials may give.
    pub(super) fn reads_identity(&self) -> bool {
        let matches = || std::iter::once(&self.matches).chain(&self.except);
        self.descriptor.is_some()
            || self.has_tiers()
            || matches!(self.cost, Cost::Attribute(_))
            || self
                .per
                .iter()
                .any(|name| !ALWAYS_KNOWN.contains(&name.as_str()))
            || matches().any(|matches| !matches.attributes.is_empty() || matches.when.is_some())
    }

    /// Whether it counts by the address of a client and nothing else.
    pub(crate) fn is_by_address(&self) -> bool {
        self.per == ["ip"]
    }
}
