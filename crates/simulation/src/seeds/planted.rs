//! Bugs that are planted into the script, to see whether seeds find them.

use crate::redis::ScriptChange;

/// A planted bug.
#[derive(Debug, Clone, Copy)]
pub struct PlantedBug {
    /// What is wrong.
    pub name: &'static str,
    /// How the script is changed.
    pub changes: &'static [ScriptChange],
    /// Within how many seeds from 1 on it must be found.
    pub within: u64,
}

const fn change(from: &'static str, to: &'static str) -> ScriptChange {
    ScriptChange { from, to }
}

/// All of them.
pub const PLANTED_BUGS: &[PlantedBug] = &[
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
        within: 100,
    },
    PlantedBug {
        name: "the lease of a bucket is used after its end",
        changes: &[change(
            "local outcome = bucket.decide(limit, after, 0, now)\n  return outcome, after, units, ends_at",
            "local outcome = bucket.decide(limit, after, 0, now)\n  return outcome, after, units, ends_at + 1000000",
        )],
        within: 100,
    },
    PlantedBug {
        name: "the end of a lease counts from the receipt of the reply",
        // As if the reply had been sent so much earlier.
        changes: &[change(
            "local reply, answers = { time }, 1",
            "local reply, answers = { time - 30000 }, 1",
        )],
        within: 100,
    },
    PlantedBug {
        name: "units that were used are carried into the next lease",
        changes: &[change(
            "local carried = previous and minus(previous.units, want.used) or 0",
            "local carried = previous and previous.units or 0",
        )],
        within: 100,
    },
    PlantedBug {
        name: "a lease grants one more than there is",
        changes: &[change(
            "local units = max(carried, min(want.units, minus(limit.burst, owed)))",
            "local units = max(carried, min(want.units, minus(limit.burst, owed) + 1))",
        )],
        within: 100,
    },
    PlantedBug {
        name: "units of a window are given back to the next",
        changes: &[change(
            "if opened_at <= charged_at and charged_at < ends_at then",
            "if charged_at < ends_at then",
        )],
        within: 100,
    },
    PlantedBug {
        name: "a return is accepted twice, or after the end of its lease",
        changes: &[change(
            "if lease then\n    after.whole = after.whole - min(unused, lease.units)",
            "if true then\n    after.whole = max(0, after.whole - unused)",
        )],
        within: 100,
    },
    PlantedBug {
        name: "keys expire before their state is idle",
        changes: &[change(
            "return ceil(time / 1000) + 1",
            "return ceil(time / 1000) - 200",
        )],
        within: 100,
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
        within: 100,
    },
];
