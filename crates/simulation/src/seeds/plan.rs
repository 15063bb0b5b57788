//! A plan: all that a seed decides before it runs.

use super::demand::{DemandRange, SeedDemand};
use super::fault::{FaultRange, SeedFault};
use super::rule::SeedRule;
use crate::clocks::Drift;
use crate::instance::InstanceSettings;
use crate::network::Latency;
use crate::random::SeededRandom;

/// When instances have connected and counted each other, in milliseconds: nothing happens before.
pub(crate) const SETTLED: u64 = 1_000;

/// The most that a clock drifts, in parts of a million.
const MOST_DRIFT: u64 = 500;

/// All that a seed decides.
#[derive(Debug, Clone)]
pub(crate) struct SeedPlan {
    pub(crate) rule: SeedRule,
    pub(crate) instances: Vec<InstanceSettings>,
    pub(crate) server_drift: Drift,
    pub(crate) demand: SeedDemand,
    /// With the millisecond at which each happens.
    pub(crate) faults: Vec<(u64, SeedFault)>,
    /// The millisecond at which demand ends.
    pub(crate) end: u64,
    /// Whether nothing goes wrong, so that the limit must be used.
    pub(crate) is_calm: bool,
}

impl SeedPlan {
    pub(crate) fn draw(random: &mut SeededRandom) -> Self {
        let is_calm = random.happens(150);
        let rule = SeedRule::draw(random, is_calm);
        let count = usize::try_from(random.between(1, 4)).unwrap_or(1);
        let has_drift = random.happens(600);
        let drift = |random: &mut SeededRandom| Drift {
            ppm: if has_drift {
                random.between(0, 2 * MOST_DRIFT).cast_signed() - MOST_DRIFT.cast_signed()
            } else {
                0
            },
        };
        let instances = (0..count).map(|_| InstanceSettings {
            drift: drift(random),
            start_after: random.below(20_000),
            ahead: random.below(4_000_000).cast_signed() - 2_000_000,
            latency: Latency {
                most: random.between(200, if is_calm { 500 } else { 3_000 }),
                ..Latency::LOCAL
            },
            ..InstanceSettings::new(rule.yaml(rule.count))
        });
        let instances: Vec<InstanceSettings> = instances.collect();
        let server_drift = drift(random);
        let window = rule.window.get() / 1_000;
        let per_second = rule.count * 1_000 / window;
        let (demand, faults, end) = if is_calm {
            let demand = SeedDemand::saturating(random, count, per_second);
            (demand, Vec::new(), SETTLED + (4 * window).max(6_000))
        } else {
            let range = DemandRange {
                instances: count,
                per_second,
                capacity: rule.limit(rule.count).capacity(),
                window,
                span: rule.span().map(|span| span.get() / 1_000),
                is_leased: rule.is_leased,
            };
            let demand = SeedDemand::draw(random, range);
            let end = SETTLED + random.between(1_200, 2_400).max(demand.least_time());
            let range = FaultRange {
                instances: count,
                count: rule.count,
                window,
            };
            let mut faults: Vec<(u64, SeedFault)> = (0..random.between(1, 6))
                .map(|_| {
                    let at = random.between(SETTLED, end - 200);
                    let fault = if demand.has_leftovers() && random.happens(500) {
                        SeedFault::hold_or_pause(random, range)
                    } else {
                        SeedFault::draw(random, range)
                    };
                    let (at, fault) = fault.aligned(random, at, (&demand, &rule));
                    (at.max(SETTLED), fault)
                })
                .collect();
            faults.sort_by_key(|(at, _)| *at);
            (demand, faults, end)
        };
        Self {
            rule,
            instances,
            server_drift,
            demand,
            faults,
            end,
            is_calm,
        }
    }
}
