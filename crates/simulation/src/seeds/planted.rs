//! Bugs that are planted into the script, to see whether seeds find them.

use tidegate_core::Algorithm;

use super::plan::SeedPlan;
use super::run_seed;
use crate::random::SeededRandom;
use crate::redis::ScriptChange;

/// Which seeds can show a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BugScope {
    /// Buckets with `sync: leased`.
    LeasedBuckets,
    /// The same, with demand that leaves units over when leases end.
    LeftInBuckets,
    /// Fixed windows with `sync: leased`, and demand that leaves units over at their ends.
    LeftInWindows,
    /// All.
    Any,
}

/// A planted bug.
#[derive(Debug, Clone, Copy)]
pub struct PlantedBug {
    /// What is wrong.
    pub name: &'static str,
    /// How the script is changed.
    pub changes: &'static [ScriptChange],
    /// The seeds that can show it.
    pub scope: BugScope,
    /// Within how many of these seeds, from 1 on, it must be found.
    pub within: usize,
}

impl PlantedBug {
    /// The first seed that finds it, and what that seed says.
    pub fn find(&self) -> Option<(u64, String)> {
        let seeds = (1..).filter(|seed| self.concerns(*seed)).take(self.within);
        let mut found = seeds.filter_map(|seed| {
            let report = run_seed(seed, self.changes);
            let broken = report.broken.into_iter().next()?;
            // A seed that fails anyway says nothing about the bug.
            let is_sound = run_seed(seed, &[]).broken.is_empty();
            is_sound.then_some((seed, broken))
        });
        found.next()
    }

    /// Whether a seed has faults, and a rule and demand that can show the bug.
    fn concerns(&self, seed: u64) -> bool {
        let plan = SeedPlan::draw(&mut SeededRandom::new(seed));
        let rule = &plan.rule;
        let is_left = rule.is_leased && plan.demand.has_leftovers();
        let is_shown = match self.scope {
            BugScope::LeasedBuckets => rule.is_leased && rule.algorithm.is_bucket(),
            BugScope::LeftInBuckets => is_left && rule.algorithm.is_bucket(),
            BugScope::LeftInWindows => is_left && rule.algorithm == Algorithm::FIXED_WINDOW,
            BugScope::Any => true,
        };
        is_shown && !plan.is_calm
    }
}

pub(super) const fn change(from: &'static str, to: &'static str) -> ScriptChange {
    ScriptChange { from, to }
}

/// Bugs that the seeds find. Those about the ends of leases need units that are left over then.
pub const PLANTED_BUGS: &[PlantedBug] = &[
    PlantedBug {
        name: "keys expire before their state is idle",
        changes: &[change(
            "return ceil(time / 1000) + 1",
            "return ceil(time / 1000) - 200",
        )],
        scope: BugScope::Any,
        within: 10,
    },
    PlantedBug {
        name: "debt leaks below what is out on lease",
        changes: &[
            change(
                "if whole < out then\n      whole, part = out, 0",
                "if false then\n      whole, part = out, 0",
            ),
            change(
                "if whole < out then\n    whole, part = out, 0",
                "if false then\n    whole, part = out, 0",
            ),
        ],
        scope: BugScope::LeasedBuckets,
        within: 60,
    },
    PlantedBug {
        name: "units that were used are carried into the next lease",
        changes: &[change(
            "local carried = previous and minus(previous.units, want.used) or 0",
            "local carried = previous and previous.units or 0",
        )],
        scope: BugScope::LeasedBuckets,
        within: 10,
    },
    PlantedBug {
        name: "a lease grants one more than there is",
        changes: &[change(
            "local units = max(carried, min(want.units, minus(limit.burst, owed)))",
            "local units = max(carried, min(want.units, minus(limit.burst, owed) + 1))",
        )],
        scope: BugScope::LeasedBuckets,
        within: 10,
    },
    PlantedBug {
        name: "the lease of a bucket is used after its end",
        changes: &[change(
            "local outcome = bucket.decide(limit, after, 0, now)\n  return outcome, after, units, ends_at",
            "local outcome = bucket.decide(limit, after, 0, now)\n  return outcome, after, units, ends_at + 1000000",
        )],
        scope: BugScope::LeftInBuckets,
        within: 300,
    },
    PlantedBug {
        name: "the end of a lease counts from the receipt of the reply",
        // As if the reply had been sent so much earlier.
        changes: &[change(
            "local reply, answers = { time }, 1",
            "local reply, answers = { time - 30000 }, 1",
        )],
        scope: BugScope::LeftInWindows,
        within: 300,
    },
    PlantedBug {
        name: "units of a window are given back to the next",
        changes: &[change(
            "if opened_at <= charged_at and charged_at < ends_at then",
            "if charged_at < ends_at then",
        )],
        scope: BugScope::LeftInWindows,
        within: 300,
    },
    PlantedBug {
        name: "a return is accepted twice, or after the end of its lease",
        changes: &[change(
            "if lease then\n    after.whole = after.whole - min(unused, lease.units)",
            "if true then\n    after.whole = max(0, after.whole - unused)",
        )],
        scope: BugScope::LeftInBuckets,
        within: 300,
    },
    PlantedBug {
        name: "a lease never ends",
        changes: &[
            change(
                "if lease.ends_at > at then\n      left",
                "if true then\n      left",
            ),
            change(
                "if lease.ends_at > at then\n      break",
                "if true then\n      break",
            ),
        ],
        scope: BugScope::LeftInBuckets,
        within: 300,
    },
];
