//! Seeds: each is a run of some instances with demand and faults that follow from a number, and is checked
//! against what is promised.
//!
//! - Never over the bound: by the clock of Redis no more is admitted than the limit, plus one limit for
//!   each event that loses state; without Redis, no more than the instance's share by its own clock.
//! - What is lost comes back: when nothing goes wrong any more and every lease has ended, a single instance is
//!   admitted the whole limit. For some buckets it asks for a part of the limit meanwhile, so that nothing comes
//!   back just because the state expires.
//! - Under saturation and without faults, at least 98 % of the limit is used. A unit that is used later than one
//!   store would use it, but by the end of its lease, counts as used.

mod demand;
mod fault;
mod judge;
mod plan;
mod planted;
mod reservations;
mod rule;
mod run;
mod timeline;
mod verdict;

use crate::redis::ScriptChange;
pub use planted::{BugScope, PLANTED_BUGS, PlantedBug};
pub use reservations::{RESERVATION_BUGS, ReservationBug, ReservationReport, run_reservations};
use run::SeedRun;

/// What happened in a seed.
#[derive(Debug, Clone)]
pub struct SeedReport {
    /// The seed.
    pub seed: u64,
    /// The hash of all that happened.
    pub trace: u64,
    /// How many requests were answered.
    pub answers: u64,
    /// How many of them were admitted.
    pub admitted: u64,
    /// How many were decided without Redis.
    pub degraded: u64,
    /// How much of the limit was used, in hundredths of a percent, where that is promised.
    pub used: Option<u64>,
    /// The promises that were broken, in words.
    pub broken: Vec<String>,
    /// What the seed decided: the rule, the instances, the faults.
    pub plan: String,
}

/// Runs a seed. The `changes` are made to the script in Redis, to plant bugs.
pub fn run_seed(seed: u64, changes: &[ScriptChange]) -> SeedReport {
    let mut run = SeedRun::new(seed, changes);
    run.play();
    run.report(seed)
}
