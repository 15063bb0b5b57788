//! Reports a charge or a settlement that takes a counter to `warn_at` of its limit. It follows from that answer alone.

use tidegate_core::{ReservationPart, StoredReservation};

use super::receipt::{ChargedLimit, Receipt};
use super::stored_record::PartLabel;
use super::{Decision, Gate};
use crate::rules::Rule;

/// A counter that a charge or a settlement took from below `warn_at` of its limit to it, or above it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct WarnedLimit<'w> {
    /// The rule.
    pub rule: &'w Rule,
    key: WarnedKey<'w>,
    /// How much of the limit is used, after that.
    pub used: u64,
    /// The quota: requests per window, or the capacity of a bucket.
    pub limit: u64,
}

/// What is known of a counter.
#[derive(Debug, Clone, Copy)]
enum WarnedKey<'w> {
    /// Its name.
    Counter(&'w str),
    /// The attributes of its key with the digests of their values, as the record of a reservation has them.
    Digests(&'w [(String, String)]),
}

impl<'w> WarnedLimit<'w> {
    /// The attributes and values of the counter; none if all clients share it, or only their
    /// [digests](Self::key_digests) are known.
    pub fn key_values(&self) -> Vec<(&'w str, &'w str)> {
        match self.key {
            WarnedKey::Counter(key) => self.rule.values_of_key(key),
            WarnedKey::Digests(_) => Vec::new(),
        }
    }

    /// The attributes of the counter with the digests of their values, if a stored reservation was settled.
    pub fn key_digests(&self) -> &'w [(String, String)] {
        match self.key {
            WarnedKey::Counter(_) => &[],
            WarnedKey::Digests(digests) => digests,
        }
    }
}

/// Whether `added` took the use of a limit to this percentage of it.
fn crosses(percent: u8, limit: u64, used: u64, added: u64) -> bool {
    let threshold = u128::from(limit) * u128::from(percent);
    let is_reached = |used: u64| u128::from(used) * 100 >= threshold;
    added > 0 && is_reached(used) && !is_reached(used.saturating_sub(added))
}

impl Gate {
    /// Reports the counters that a request took to `warn_at` when it was charged.
    pub(super) fn warn_of_charges(&self, receipt: &Receipt) {
        let has_any = |decision: &Decision| decision.in_force().has_warnings();
        if !receipt.decisions().iter().any(has_any) {
            return;
        }
        for charged in &receipt.charged() {
            let outcome = charged.outcome;
            let used = outcome.limit.saturating_sub(outcome.remaining);
            self.warn(charged, used, charged.charge.cost);
        }
    }

    /// Reports a counter that was charged `added` more and has `used` so much now, if that took it to `warn_at`.
    pub(super) fn warn(&self, charged: &ChargedLimit<'_>, used: u64, added: u64) {
        let limit = charged.outcome.limit;
        let Some(percent) = charged.warn_at else {
            return;
        };
        if !crosses(percent, limit, used, added) {
            return;
        }
        charged.counts.count_warned();
        let rules = self.rules();
        if let (Some(observer), Some(rule)) = (&self.observer, rules.get(charged.rule)) {
            observer.warned(&WarnedLimit {
                rule: &rule,
                key: WarnedKey::Counter(charged.charge.key),
                used,
                limit,
            });
        }
    }
}

impl Gate {
    /// Reports the counters that settling a stored reservation took to `warn_at`, by the rules that are still in force.
    pub(super) fn warn_of_settlement(&self, settled: &StoredReservation) {
        let rules = self.rules();
        let overrun = |part: &&ReservationPart| part.adjusted.overrun > 0;
        for part in settled.parts.iter().filter(overrun) {
            let label = PartLabel::parse(&part.label);
            let rule = rules.get(&label.rule);
            let Some((rule, percent)) = rule.and_then(|rule| Some((rule, rule.warn_at()?))) else {
                continue;
            };
            let used = part.limit.saturating_sub(part.adjusted.remaining);
            if !crosses(percent, part.limit, used, part.adjusted.overrun) {
                continue;
            }
            rule.counts().count_warned();
            if let Some(observer) = &self.observer {
                observer.warned(&WarnedLimit {
                    rule: &rule,
                    key: WarnedKey::Digests(&label.key),
                    used,
                    limit: part.limit,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_crossed_once_on_the_way_up() {
        #[rustfmt::skip]
        let table = [
            // percent  limit   used    added   crosses
            (80,        100,    79,     79,     false),
            (80,        100,    80,     1,      true),
            (80,        100,    100,    100,    true),
            (80,        100,    81,     1,      false),
            (80,        100,    80,     0,      false),
            (1,         3,      1,      1,      true),
            (99,        3,      2,      1,      false),
            (99,        3,      3,      1,      true),
            (50,        u64::MAX, u64::MAX, 1,  false),
        ];
        for (percent, limit, used, added, expected) in table {
            let name = format!("{percent} % of {limit}: {used} after {added}");
            assert_eq!(crosses(percent, limit, used, added), expected, "{name}");
        }
    }
}
