//! The record of a stored reservation as callers see it, and what the gate writes into the store's record.

use std::fmt;

use smol_str::SmolStr;
use tidegate_core::{ReservationId, ReservationPart, StoredReservation, Timestamp};

use super::{SettledLimit, Settlement};

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
        limit: part.limit,
        reserved: part.reserved,
        settled: part.settled,
        given_back: part.adjusted.given_back,
        overrun: part.adjusted.overrun,
        uncharged: part.adjusted.uncharged,
    }
}

/// What the gate writes next to a charge: `rule`, or `~rule` of one that only counts; then for each attribute of its key
/// a line `name=digest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartLabel {
    pub(super) rule: SmolStr,
    pub(super) is_shadow: bool,
    pub(super) key: Vec<(String, String)>,
}

impl PartLabel {
    pub(super) fn new(
        rule: &str,
        is_shadow: bool,
        key: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        Self {
            rule: rule.into(),
            is_shadow,
            key: key.into_iter().collect(),
        }
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut lines = text.split('\n');
        let rule = lines.next().unwrap_or_default();
        let shadow = rule.strip_prefix('~');
        // A digest has no `=`.
        let key = lines.filter_map(|line| line.rsplit_once('='));
        Self {
            rule: shadow.unwrap_or(rule).into(),
            is_shadow: shadow.is_some(),
            key: key
                .map(|(name, digest)| (name.to_owned(), digest.to_owned()))
                .collect(),
        }
    }
}

impl fmt::Display for PartLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shadow = if self.is_shadow { "~" } else { "" };
        write!(f, "{shadow}{}", self.rule)?;
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
        for label in [
            PartLabel::new("per-key", false, key.clone()),
            PartLabel::new("per-key", true, key),
            PartLabel::new("all", true, []),
        ] {
            assert_eq!(PartLabel::parse(&label.to_string()), label);
        }
    }
}
