//! Reads what a rule says about budgets: its unit, what becomes of reservations, and when its use is reported.

use tidegate_core::{Algorithm, CostUnit};

use super::read_limit::Counting;
use super::read_rule::{Taken, chosen};
use super::rule::{Consistency, Unsettled};
use crate::internal::document::{Fields, Problems};

pub(super) const UNSETTLED: [(&str, Unsettled); 2] = [
    ("keep", Unsettled::Keep),
    ("give_back", Unsettled::GiveBack),
];

/// The keys of a rule that are about budgets.
pub(super) struct Budget {
    pub(super) unit: CostUnit,
    pub(super) unsettled: Unsettled,
    pub(super) warn_at: Option<u8>,
}

impl Budget {
    pub(super) fn read(
        fields: &Fields<'_>,
        counting: &Counting,
        sync: Consistency,
        problems: &mut Problems,
    ) -> Self {
        let warn_at = fields.integer("warn_at", problems);
        Self {
            unit: read_unit(fields.take("unit"), counting, problems),
            unsettled: read_unsettled(fields.take("unsettled"), sync, problems),
            warn_at: warn_at.and_then(|percent| u8::try_from(percent).ok()),
        }
    }
}

/// What a rule counts. Permits are held by requests, and adaptive limits follow how requests go.
fn read_unit(taken: Taken<'_>, counting: &Counting, problems: &mut Problems) -> CostUnit {
    let Some((spot, node)) = taken else {
        return CostUnit::default();
    };
    let named = |name: &str| CostUnit::new(name).map_err(|error| error.to_string());
    let unit = spot.parsed(node, named, problems).unwrap_or_default();
    let of_requests = match counting.algorithm {
        Some(Algorithm::Concurrency { .. }) => Some("concurrency"),
        _ => counting.adaptive.map(|_| "adaptive"),
    };
    if let (Some(key), false) = (of_requests, unit.is_requests()) {
        let message = format!("`{key}` counts requests; remove `unit`");
        problems.error(&node.place, &spot, message);
    }
    unit
}

/// An instance that has taken a lease cannot tell what others find given back.
fn read_unsettled(taken: Taken<'_>, sync: Consistency, problems: &mut Problems) -> Unsettled {
    let unsettled = chosen(taken.clone(), &UNSETTLED, problems);
    if let (Unsettled::GiveBack, Consistency::Leased, Some((spot, node))) = (unsettled, sync, taken)
    {
        let message = "`give_back` does not go with `sync: leased`; write `sync: exact`, or `unsettled: keep`";
        problems.error(&node.place, &spot, message);
    }
    unsettled
}
