//! The record of a stored reservation as callers see it, and what the gate writes into the store's record.

use std::fmt;

use smol_str::SmolStr;
use tidegate_core::{ReservationId, ReservationPart, StoredReservation, Timestamp};

use super::{SettledLimit, Settlement};
use crate::rules::Rule;

/// A stored reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReservationRecord {
    /// Its id.
    pub id: ReservationId,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends, or would have ended.
    pub expires_at: Timestamp,
    /// Whether it is settled or cancelled.
    pub is_settled: bool,
    /// Whether this gate alone keeps it, because the store was unavailable.
    pub is_degraded: bool,
    /// What it holds in each counter and, once it is settled, what that changed.
    pub settlement: Settlement,
}

impl ReservationRecord {
    pub(super) fn new(stored: &StoredReservation) -> Self {
        let (estimate, settled) = (stored.estimate.clone(), stored.settled.clone());
        Self {
            id: stored.id,
            created_at: stored.created_at,
            expires_at: stored.expires_at,
            is_settled: settled.is_some(),
            is_degraded: false,
            settlement: Settlement::new(
                estimate.clone(),
                settled.unwrap_or(estimate),
                stored.parts.iter().map(settled_limit).collect(),
            ),
        }
    }
}

fn settled_limit(part: &ReservationPart) -> SettledLimit {
    let label = PartLabel::parse(&part.label);
    SettledLimit {
        rule: label.rule,
        key: label.key,
        unit: part.unit.clone(),
        is_shadow: label.is_shadow,
        is_candidate: label.is_candidate,
        limit: part.limit,
        reserved: part.reserved,
        settled: part.settled,
        given_back: part.adjusted.given_back,
        overrun: part.adjusted.overrun,
        uncharged: part.adjusted.uncharged,
    }
}

/// What the gate writes next to a charge: `rule`, after `~` if it only counts, and after `^` if it is the candidate; then
/// for each attribute of its key a line `name=digest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartLabel {
    pub(super) rule: SmolStr,
    pub(super) is_shadow: bool,
    pub(super) is_candidate: bool,
    pub(super) key: Vec<(String, String)>,
}

impl PartLabel {
    pub(super) fn new(
        rule: &Rule,
        is_shadow: bool,
        key: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        Self {
            rule: rule.id().into(),
            is_shadow,
            is_candidate: rule.is_candidate(),
            key: key.into_iter().collect(),
        }
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut lines = text.split('\n');
        let rule = lines.next().unwrap_or_default();
        let shadow = rule.strip_prefix('~');
        let rule = shadow.unwrap_or(rule);
        let candidate = rule.strip_prefix('^');
        // A digest has no `=`.
        let key = lines.filter_map(|line| line.rsplit_once('='));
        Self {
            rule: candidate.unwrap_or(rule).into(),
            is_shadow: shadow.is_some(),
            is_candidate: candidate.is_some(),
            key: key
                .map(|(name, digest)| (name.to_owned(), digest.to_owned()))
                .collect(),
        }
    }
}

impl fmt::Display for PartLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shadow = if self.is_shadow { "~" } else { "" };
        let candidate = if self.is_candidate { "^" } else { "" };
        write!(f, "{shadow}{candidate}{}", self.rule)?;
        for (name, digest) in &self.key {
            // The name of an attribute may have any character: one with a line feed would be two lines.
            write!(f, "\n{}={digest}", name.replace('\n', " "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_written() {
        let key = [("api_key", "0123456789ab"), ("header.x=y", "ba9876543210")];
        let key: Vec<(String, String)> = key
            .iter()
            .map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned()))
            .collect();
        let rule = Rule::builder("per-key").per(["api_key"]).limit("2/s");
        let rule = rule.candidate("1/s").build().unwrap();
        let candidate = rule.candidate().unwrap();
        for label in [
            PartLabel::new(&rule, false, key.clone()),
            PartLabel::new(&rule, true, key.clone()),
            PartLabel::new(candidate, true, key),
            PartLabel::new(candidate, false, []),
        ] {
            assert_eq!(PartLabel::parse(&label.to_string()), label);
        }
    }
}
