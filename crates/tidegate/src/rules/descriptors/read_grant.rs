//! Reads the limit of a descriptor: its `rate_limit`, and how it is counted from the block
//! `tidegate`.

use tidegate_core::limit::{MAX_COUNT, MAX_WINDOW_COUNT};
use tidegate_core::{Algorithm, LimitError, Micros, Rate, Window};

use super::read::read_flag;
use super::{Units, places};
use crate::internal::document::{Fields, Node, Problems, Spot};
use crate::rules::grant::Grant;
use crate::rules::keys::{OWN, RATE_LIMIT, REPLACED};
use crate::rules::read_limit::{self, Counting};
use crate::rules::read_rule::{ON_STORE_FAILURE_OF_DESCRIPTOR, SYNCS, chosen};
use crate::rules::rule::{Consistency, OnStoreFailure};

/// The units of time that a limit may have.
pub(in crate::rules) const UNITS: [(&str, Window); 7] = [
    ("second", Window::Span(Micros::SECOND)),
    ("minute", Window::Span(Micros::MINUTE)),
    ("hour", Window::Span(Micros::HOUR)),
    ("day", Window::Span(Micros::DAY)),
    ("week", Window::Span(Micros::WEEK)),
    ("month", Window::Month),
    ("year", Window::Year),
];

/// The content of a `rate_limit`.
pub(super) struct DescriptorLimit {
    pub(super) grant: Grant,
    pub(super) unit: Option<Window>,
    pub(super) name: String,
    pub(super) replaces: Vec<String>,
}

/// The content of a block `tidegate`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Own {
    algorithm: Option<Algorithm>,
    burst: Option<u64>,
    pub(super) max_delay: Option<Micros>,
    pub(super) on_store_failure: OnStoreFailure,
    pub(super) sync: Consistency,
}

/// Reads a `rate_limit`, and the block `tidegate` next to it.
pub(super) fn read_rate_limit(
    (spot, node): (&Spot, &Node),
    own: Option<&(Spot, &Node)>,
    units: Units,
    problems: &mut Problems,
) -> Option<(DescriptorLimit, Own)> {
    let mut fields = Fields::new(node, spot.clone(), &RATE_LIMIT, problems)?;
    let (unit, count) = (fields.take("unit"), fields.take("requests_per_unit"));
    let is_unlimited = read_flag(&fields, "unlimited", problems).0;
    let (name, replaces) = (fields.take("name"), fields.take("replaces"));
    places::ignore_others(&mut fields, &RATE_LIMIT, problems);
    let all_known = fields.done(problems);
    let name = name.and_then(|(spot, node)| spot.text(node, problems));
    let name = name.unwrap_or_default().to_owned();
    let replaces = read_replaces(replaces, &name, problems);
    if is_unlimited {
        if let Some((spot, node)) = &unit {
            let message = "what is unlimited has no limit; remove this, or `unlimited`";
            problems.error(&node.place, spot, message);
        }
        if let Some((spot, node)) = &count {
            read_count(spot, node, MAX_WINDOW_COUNT, problems);
            let message =
                "this has no effect, because the limit is `unlimited`; remove one of the two";
            problems.warning(&node.place, spot, message);
        }
        let limit = DescriptorLimit {
            grant: Grant::Unlimited,
            unit: None,
            name,
            replaces,
        };
        return Some((limit, Own::default()));
    }
    if unit.is_none() && all_known {
        let message = "the key `unit` is missing; write for example `unit: minute`";
        problems.error(&node.place, &spot.field("unit"), message);
    }
    if count.is_none() && all_known {
        let message = "the key `requests_per_unit` is missing, so this is 0 and denies all requests, as in envoyproxy/ratelimit; give a number, or write `unlimited: true`";
        problems.warning(&node.place, &spot.field("requests_per_unit"), message);
    }
    let window = unit.and_then(|(spot, node)| spot.parsed(node, read_unit, problems));
    let (own, counting) = read_own(own, problems);
    let count = match count {
        Some((spot, node)) => read_count(&spot, node, own.most(), problems),
        None => Some(0),
    };
    let (unit, count) = (window?, count?);
    let grant = match (grant_of(count, unit, &own, units), &counting) {
        (Ok(grant), _) => grant,
        (Err(error), Some(counting)) => {
            counting.refuse(&error, node, spot, problems);
            return None;
        }
        (Err(error), None) => {
            return spot.refused(node, error.to_string(), problems);
        }
    };
    let limit = DescriptorLimit {
        grant,
        unit: Some(unit),
        name,
        replaces,
    };
    Some((limit, own))
}

impl Own {
    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm.unwrap_or(Algorithm::FIXED_WINDOW)
    }

    /// Whether it counts in windows of the clock, which may grant nothing and may be exceeded.
    fn counts_excess(&self) -> bool {
        self.algorithm() == Algorithm::FIXED_WINDOW && self.burst.is_none()
    }

    /// The most that a limit may grant.
    fn most(&self) -> u64 {
        if self.counts_excess() {
            MAX_WINDOW_COUNT
        } else {
            MAX_COUNT
        }
    }
}

/// What so many requests per unit grant.
pub(super) fn grant_of(
    count: u64,
    unit: Window,
    own: &Own,
    units: Units,
) -> Result<Grant, LimitError> {
    if count == 0 && !own.counts_excess() {
        return Ok(Grant::Blocked);
    }
    let is_concurrency = matches!(own.algorithm(), Algorithm::Concurrency { .. });
    let mut rate = Rate::concurrent(count.min(own.most()));
    (rate.window, rate.burst) = ((!is_concurrency).then_some(unit), own.burst);
    let limit = units.limit(rate, own.algorithm())?;
    Ok(Grant::Limits(vec![limit]))
}

/// How many requests are granted. More than the algorithm can count is a warning, and is cut.
fn read_count(spot: &Spot, node: &Node, most: u64, problems: &mut Problems) -> Option<u64> {
    let count = spot.integer(node, 0, MAX_WINDOW_COUNT, problems)?;
    if count > most {
        let message = format!(
            "more than {most} requests cannot be counted by this algorithm, so this is {most}; for no limit, write `unlimited: true`"
        );
        problems.warning(&node.place, spot, message);
    }
    Some(count.min(most))
}

fn read_replaces(list: Option<(Spot, &Node)>, name: &str, problems: &mut Problems) -> Vec<String> {
    let Some((spot, node)) = list else {
        return Vec::new();
    };
    let mut replaced = Vec::new();
    for (spot, node) in spot.items(node, problems) {
        let Some(mut fields) = Fields::new(node, spot.clone(), &REPLACED, problems) else {
            continue;
        };
        let other = fields.take("name");
        places::ignore_others(&mut fields, &REPLACED, problems);
        fields.done(problems);
        let other = other.and_then(|(spot, node)| spot.text(node, problems));
        match other {
            None | Some("") => {
                let message = "give the name of the limit that is replaced: `{name: other}`";
                problems.error(&node.place, &spot, message);
            }
            Some(other) if other == name => {
                let message = "a limit cannot replace itself; give the name of another";
                problems.error(&node.place, &spot, message);
            }
            Some(other) => replaced.push(other.to_owned()),
        }
    }
    replaced
}

/// Reads the algorithm and the other options that the original does not have.
pub(super) fn read_own(
    own: Option<&(Spot, &Node)>,
    problems: &mut Problems,
) -> (Own, Option<Counting>) {
    let nothing = || (Own::default(), None);
    let Some((spot, node)) = own else {
        return nothing();
    };
    let Some(mut fields) = Fields::new(node, spot.clone(), &OWN, problems) else {
        return nothing();
    };
    let is_chosen = fields.key("algorithm").is_some();
    if !is_chosen {
        for option in OWN.iter().filter(|row| !row.needs.is_empty()) {
            let message = "this is an option of an `algorithm`; say which, for example `algorithm: token_bucket`";
            fields.refuse(option.name, message, problems);
        }
    }
    let counting = Counting::read(&fields, problems);
    let (burst, on_failure) = (fields.take("burst"), fields.take("on_store_failure"));
    let sync_at = fields.take("sync");
    fields.done(problems);
    let burst = burst.filter(|_| is_chosen);
    let burst = burst.and_then(|(spot, node)| spot.integer(node, 1, MAX_COUNT, problems));
    let own = Own {
        algorithm: counting.algorithm,
        burst,
        max_delay: counting.max_delay,
        on_store_failure: chosen(on_failure, &ON_STORE_FAILURE_OF_DESCRIPTOR, problems),
        sync: chosen(sync_at.clone(), &SYNCS, problems),
    };
    if let (Consistency::Leased, Some((spot, node)), Some(algorithm)) =
        (own.sync, sync_at, own.algorithm)
        && let Some(why_not) = read_limit::why_not(algorithm)
    {
        let message = format!("`leased` does not go with {why_not}; write `sync: exact`");
        problems.error(&node.place, &spot, message);
    }
    (own, Some(counting))
}

fn read_unit(text: &str) -> Result<Window, String> {
    let lower = text.to_ascii_lowercase();
    let unit = UNITS.iter().find(|(name, _)| *name == lower);
    unit.map(|(_, window)| *window).ok_or_else(|| {
        let names: Vec<&str> = UNITS.iter().map(|(name, _)| *name).collect();
        let suggestion = crate::internal::document::suggestion(&lower, &names);
        format!("`{text}` is not a unit{suggestion}; write one of `second`, `minute`, `hour`, `day`, `week`, `month` and `year`")
    })
}
