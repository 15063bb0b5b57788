//! Reservations: a seed makes, settles, cancels and extends them at any of its instances, and forgets some, while
//! processes, the network and the server fail.
//!
//! - Never over: open estimates and settled costs, each up to its estimate, are at no time more than the limit.
//! - Nothing is lost for longer than its ttl: when nothing goes wrong any more and all have ended, what was settled is
//!   charged, and what was never settled is kept or given back, as the rule says. What takes up to the lease's end to come
//!   back of instances that crash with leased units is not.
//! - A call that is repeated answers the same.

mod books;
mod check;
mod play;

use crate::redis::ScriptChange;
use crate::seeds::planted::change;

use play::ReservationRun;

/// What happened in a seed.
#[derive(Debug, Clone)]
pub struct ReservationReport {
    /// The hash of all that happened.
    pub trace: u64,
    /// How many reservations were asked for.
    pub asked: u64,
    /// How many were made.
    pub made: u64,
    /// How many of them were settled or cancelled.
    pub settled: u64,
    /// How many calls were not answered.
    pub unanswered: u64,
    /// The promises that were broken, in words.
    pub broken: Vec<String>,
    /// What the seed decided.
    pub plan: String,
}

/// Runs a seed with reservations. The `changes` are made to the script in Redis, to plant bugs.
pub fn run_reservations(seed: u64, changes: &[ScriptChange]) -> ReservationReport {
    let mut run = ReservationRun::new(seed, changes);
    run.play();
    run.report()
}

/// A planted bug.
#[derive(Debug, Clone, Copy)]
pub struct ReservationBug {
    /// What is wrong.
    pub name: &'static str,
    /// How the script is changed.
    pub change: ScriptChange,
    /// Within how many seeds, from 1 on, it must be found.
    pub within: u64,
}

impl ReservationBug {
    /// The first seed that finds it, and what that seed says.
    pub fn find(&self) -> Option<(u64, String)> {
        let mut found = (1..=self.within).filter_map(|seed| {
            let broken = run_reservations(seed, &[self.change]).broken;
            Some((seed, broken.into_iter().next()?))
        });
        // A seed that fails anyway says nothing about the bug.
        found.find(|(seed, _)| run_reservations(*seed, &[]).broken.is_empty())
    }
}

/// Bugs that the seeds find.
pub const RESERVATION_BUGS: &[ReservationBug] = &[
    ReservationBug {
        name: "what is settled can be settled again",
        change: change(
            "if record.settled then\n    local is_same",
            "if false then\n    local is_same",
        ),
        within: 20,
    },
    ReservationBug {
        name: "what has ended is given back each time",
        change: change("      remove(task.key, name)\n    end", "    end"),
        within: 20,
    },
    ReservationBug {
        name: "what has ended is never given back",
        change: change(
            "call('ZRANGEBYSCORE', queue, '-inf', format('%.0f', time), 'WITHSCORES')",
            "{}",
        ),
        within: 20,
    },
    ReservationBug {
        name: "units of a lease are given back in Redis too",
        change: change("cost = max(cost, part.cost)", "cost = cost"),
        within: 20,
    },
];
